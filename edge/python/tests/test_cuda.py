"""PyTorch models on a real GPU, against real agents that use it: what is committed is what host memory gives."""

import numpy as np
import pytest

import fluvial
from test_federation import in_threads
from test_gpus import START, on_gpus, step

torch = pytest.importorskip("torch", reason="needs PyTorch")
if not torch.cuda.is_available():
    pytest.skip("needs a GPU, and a PyTorch that uses it", allow_module_level=True)

ROUNDS = 3


def on_gpu(array, dtype=torch.float32):
    tensor = torch.from_numpy(np.array(array))
    return tensor.cuda().to(dtype) if tensor.is_floating_point() else tensor.cuda()


def submit(round, worker):
    moved = step(worker, round.number)
    model = {name: on_gpu(array) + (on_gpu(moved[name]) if name in moved else 0) for name, array in round.arrays().items()}
    round.submit({**model, "seen": model["seen"] + worker}, samples=worker + 1)


def submit_update_in_half_precision(round, worker):
    moved = {name: on_gpu(array, torch.bfloat16) for name, array in step(worker, round.number).items()}
    moved["w"] = moved["w"].t().contiguous().t()  # as it often comes: not contiguous
    round.submit_update(moved, samples=worker + 1)


def in_parts_of_another_stream(round, worker):
    moved = step(worker, round.number)
    parts = round.parts(samples=worker + 1)
    with torch.cuda.stream(torch.cuda.Stream()):
        for name in moved:
            waited = on_gpu(moved[name])
            torch.cuda._sleep(20_000_000)  # in the stream: what follows is late
            parts.add({name: waited * 2})
    parts.finish()


@pytest.mark.parametrize("codec", ["fp32", "int8"])
@pytest.mark.parametrize("answer", [submit, submit_update_in_half_precision, in_parts_of_another_stream])
def test_what_is_committed_is_what_host_memory_gives(codec, answer):
    settings = {"site.reduction": "direct"}  # as GPUs add: others have other last bits
    committed = {}
    for device in (False, True):
        with fluvial.testing.LocalFederation(sites=2, workers=2, settings=settings) as federation:
            federation.start_run("run", START, rounds=ROUNDS, codec=codec)

            def work(worker):
                with fluvial.connect(federation.worker_socket(worker // 2), device=device) as site:
                    for round in site.rounds("run"):
                        answer(round, worker)

            in_threads(4, work)
            committed[device] = federation.model("run")
            counts = [on_gpus(federation, index) for index in range(2)]
            assert counts == [(ROUNDS, ROUNDS) if device else (0, 0)] * 2
    for name, array in committed[False].items():
        assert np.array_equal(committed[True][name], array), name
    assert not np.array_equal(committed[True]["w"], START["w"])
