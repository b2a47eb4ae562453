"""The DistributedDataParallel hook: buckets of any kind find their places, and come back as the mean."""

import os
import signal
import subprocess
import sys
import threading

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent

torch = pytest.importorskip("torch", reason="needs PyTorch")
distributed = torch.distributed
if not distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

import fluvial.torch  # noqa: E402


@pytest.fixture
def alone(tmp_path):
    """A process group of this process alone."""
    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


def failure(backward):
    """What went wrong in a hook: the error itself, or with older PyTorch one with its name and text."""
    with pytest.raises((RuntimeError, fluvial.FluvialError, KeyboardInterrupt)) as failed:
        backward()
    return repr(failed.value)


def network():
    torch.manual_seed(3)
    middle = torch.nn.Linear(600, 600)  # more than the megabyte that DDP's first bucket may have
    tanh, last = torch.nn.Tanh(), torch.nn.Linear(600, 3)
    return torch.nn.Sequential(torch.nn.Linear(40, 600), tanh, middle, tanh, last)


def hand_in(agent, number):
    """Gives the worker a round; returns its answer's kind, how many parts came before, and the update."""
    agent.task(number, {tensor.name: np.zeros(tensor.shape) for tensor in agent.schema})
    parts = 0
    while True:
        message, _ = agent.receive()
        if message.WhichOneof("body") != "task_ready":
            return message.WhichOneof("body"), parts, None if agent.result is None else agent.result_arrays()
        parts += 1


def play(agent, rounds, results, factor):
    """Commits `factor` times what the worker handed over, round after round; keeps how the ranges came."""
    for number in range(1, rounds + 1):
        results.append(hand_in(agent, number))
        agent.committed(number, {name: factor * array for name, array in results[-1][-1].items()})
    agent.run_ended()


@pytest.mark.parametrize("buckets", [{"bucket_cap_mb": 0.002}, {}])
def test_gradients_come_back_as_what_was_committed(tmp_path, alone, buckets):
    model, plain = network(), network()
    x = torch.randn(8, 40, generator=torch.Generator().manual_seed(1))
    plain(x).square().mean().backward()
    results = []
    with FakeAgent(tmp_path / "a", fluvial.zeros_like(model)) as agent:
        playing = threading.Thread(target=play, args=(agent, 3, results, 0.5))
        playing.start()
        ddp = torch.nn.parallel.DistributedDataParallel(model, **buckets)
        ddp.register_comm_hook(None, fluvial.torch.ddp_hook(agent.site, "run", model, samples=8))
        for _ in range(3):  # DDP builds its buckets anew after the first pass, in the order in which gradients came
            ddp.zero_grad()
            ddp(x).square().mean().backward()
            for name, parameter in model.named_parameters():
                assert torch.equal(parameter.grad, 0.5 * plain.get_parameter(name).grad), name
        playing.join()
        assert "RunEnded" in failure(lambda: ddp(x).square().mean().backward())
    assert max(parts for _, parts, _ in results) > 1
    for body, _, update in results:
        assert body == "task_done"
        for name, array in update.items():
            assert np.array_equal(array, plain.get_parameter(name).grad.numpy()), name


def test_a_run_that_steps_is_refused(tmp_path, alone):
    module = torch.nn.Linear(2, 1)
    model = {name: values.detach().numpy() for name, values in module.named_parameters()}
    with FakeAgent(tmp_path / "a", model) as agent:
        agent.task(1, model, optimizer="fedavg")
        ddp = torch.nn.parallel.DistributedDataParallel(module)
        ddp.register_comm_hook(None, fluvial.torch.ddp_hook(agent.site, "run", module))
        assert "optimizer.name" in failure(lambda: ddp(torch.ones(4, 2)).sum().backward())
        assert agent.receive()[0].WhichOneof("body") == "task_failed"


def test_a_run_of_another_model_is_refused_and_the_round_handed_back(tmp_path, alone):
    model = network()
    with FakeAgent(tmp_path / "a", {"other": np.zeros(3, np.float32)}) as agent:
        agent.task(1, {"other": np.zeros(3)})
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        ddp.register_comm_hook(None, fluvial.torch.ddp_hook(agent.site, "run", model))
        wrong = failure(lambda: ddp(torch.zeros(1, 40)).sum().backward())
        assert "ModelMismatch" in wrong and "zeros_like" in wrong
        message, _ = agent.receive()
        assert message.WhichOneof("body") == "detach"


@pytest.fixture
def ctrl_c():
    """Presses it, for the thread that runs the tests."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    signal.signal(signal.SIGINT, before)


def test_ctrl_c_in_a_backward_pass_ends_it(tmp_path, alone, ctrl_c):
    model = network()
    x = torch.ones(2, 40)
    with FakeAgent(tmp_path / "a", fluvial.zeros_like(model)) as agent:

        def play_and_press():
            _, _, update = hand_in(agent, 1)
            ctrl_c()  # it waits for the mean
            pressed.wait()
            agent.committed(1, update)
            _, _, update = hand_in(agent, 2)
            agent.committed(2, {name: 0.5 * array for name, array in update.items()})

        pressed = threading.Event()
        playing = threading.Thread(target=play_and_press)
        playing.start()
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        ddp.register_comm_hook(None, fluvial.torch.ddp_hook(agent.site, "run", model))
        assert "KeyboardInterrupt" in failure(lambda: ddp(x).square().mean().backward())
        pressed.set()
        # Who goes on all the same is in the next round.
        again = network()
        ddp = torch.nn.parallel.DistributedDataParallel(again)
        ddp.register_comm_hook(None, fluvial.torch.ddp_hook(agent.site, "run", again))
        ddp(x).square().mean().backward()
        playing.join()
        plain = network()
        plain(x).square().mean().backward()
        for name, parameter in again.named_parameters():
            assert torch.equal(parameter.grad, 0.5 * plain.get_parameter(name).grad), name


class Bucket:
    """What DDP hands to a hook."""

    def __init__(self, *parameters):
        self._parameters = parameters
        self._buffer = torch.cat([parameter.grad.reshape(-1) for parameter in parameters])

    def parameters(self):
        return list(self._parameters)

    def gradients(self):
        parts = self._buffer.split([parameter.numel() for parameter in self._parameters])
        return [part.view_as(parameter) for part, parameter in zip(parts, self._parameters)]

    def buffer(self):
        return self._buffer


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_any_order_and_a_pass_that_was_left(tmp_path, dtype):
    model = torch.nn.ParameterDict({name: torch.nn.Parameter(torch.zeros(3, 2, dtype=dtype)) for name in "abc"})
    for number, parameter in enumerate(model.parameters(), start=1):
        parameter.grad = torch.full((3, 2), float(number), dtype=dtype)
    results = []
    with FakeAgent(tmp_path / "a", fluvial.zeros_like(model)) as agent:
        hook = fluvial.torch.ddp_hook(agent.site, "run", model)
        playing = threading.Thread(target=play, args=(agent, 2, results, 10.0))
        playing.start()
        for order in (["c", "ab"], ["b", "ca"]):
            buckets = [Bucket(*(model[name] for name in names)) for names in order]
            futures = [hook(None, bucket) for bucket in buckets]
            for names, future, bucket in zip(order, futures, buckets):
                assert future.wait() is bucket.buffer() or torch.equal(future.wait(), bucket.buffer())
                expected = torch.cat([10 * model[name].grad.reshape(-1) for name in names])
                assert bucket.buffer().dtype == dtype and torch.equal(bucket.buffer(), expected)
        playing.join()
    assert [(body, parts) for body, parts, _ in results] == [("task_done", 2)] * 2
    with FakeAgent(tmp_path / "b", fluvial.zeros_like(model)) as agent:
        hook = fluvial.torch.ddp_hook(agent.site, "run", model)
        zeros = {name: np.zeros((3, 2)) for name in "abc"}
        agent.task(1, zeros)
        hook(None, Bucket(model["a"]))
        assert agent.receive()[0].WhichOneof("body") == "task_ready"
        with pytest.raises(fluvial.AgentUnavailable):  # the same bucket again: a new pass, so it attaches anew
            hook(None, Bucket(model["a"]))
        assert agent.receive()[0].WhichOneof("body") == "detach"


def one_pass(tmp_path, module, forward, start=None, commit=None, inner=None, **hook):
    """One backward pass in which half of what was handed over is committed; what was handed over."""
    results = []
    with FakeAgent(tmp_path / "a", start or fluvial.zeros_like(module)) as agent:

        def play():
            results.append(hand_in(agent, 1))
            if results[0][0] == "task_done":
                agent.committed(1, commit or {name: array * np.array(0.5, array.dtype) for name, array in results[0][2].items()})

        playing = threading.Thread(target=play)
        playing.start()
        try:
            ddp = torch.nn.parallel.DistributedDataParallel(inner or module)
            ddp.register_comm_hook(None, fluvial.torch.ddp_hook(agent.site, "run", module, timeout_s=30, **hook))
            forward(ddp).backward()
        finally:
            playing.join()
    return results[0][2]


class Words(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.embedding, self.last = torch.nn.Embedding(10, 4, sparse=True), torch.nn.Linear(4, 2)

    def forward(self, words):
        return self.last(self.embedding(words))


def test_sparse_gradients_come_back_sparse(tmp_path, alone):
    model, plain, words = Words(), Words(), torch.tensor([7, 1, 7])
    plain(words).square().sum().backward()
    given = one_pass(tmp_path, model, lambda ddp: ddp(words).square().sum())
    assert np.array_equal(given["embedding.weight"], plain.embedding.weight.grad.to_dense().numpy())
    assert model.embedding.weight.grad.is_sparse
    for one, other in zip(model.parameters(), plain.parameters()):
        assert torch.equal(one.grad.to_dense(), 0.5 * other.grad.to_dense())


def test_what_ddp_is_told_to_ignore_stays_the_sites_own(tmp_path, alone):
    model, plain, x = torch.nn.Sequential(torch.nn.Linear(4, 2)), torch.nn.Sequential(torch.nn.Linear(4, 2)), torch.ones(3, 4)
    plain.load_state_dict(model.state_dict())
    plain(x).square().sum().backward()
    torch.nn.parallel.DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(model, ["0.bias"])
    assert not one_pass(tmp_path, model, lambda ddp: ddp(x).square().sum())["0.bias"].any()
    assert torch.equal(model[0].weight.grad, 0.5 * plain[0].weight.grad) and torch.equal(model[0].bias.grad, plain[0].bias.grad)


def test_a_parameter_whose_gradient_never_comes_is_named(tmp_path, alone):
    whole = torch.nn.ModuleDict({"inside": torch.nn.Linear(4, 2), "outside": torch.nn.Linear(4, 2)})
    run = lambda: one_pass(tmp_path, whole, lambda ddp: ddp(torch.ones(3, 4)).sum(), inner=whole["inside"])  # noqa: E731
    assert "no gradient of outside.weight, outside.bias" in failure(run)


def test_a_parameter_that_only_other_sites_used_gets_their_mean(tmp_path, alone):
    model = torch.nn.ModuleDict({"used": torch.nn.Linear(2, 1), "theirs": torch.nn.Linear(2, 1), "nobodys": torch.nn.Linear(2, 1)})
    model.forward = lambda x: model["used"](x)
    means = {name: np.full(tensor.shape, 0.25 * ("nobodys" not in name), np.float32) for name, tensor in model.named_parameters()}
    with FakeAgent(tmp_path / "a", means) as agent:
        agent.task(1, means)
        agent.committed(1, means)
        ddp = torch.nn.parallel.DistributedDataParallel(model, find_unused_parameters=True)
        ddp.register_comm_hook(None, fluvial.torch.ddp_hook(agent.site, "run", model))
        ddp(torch.ones(1, 2)).sum().backward()
    assert model["theirs"].weight.grad.tolist() == [[0.25, 0.25]] == model["used"].weight.grad.tolist()
    assert model["nobodys"].weight.grad is None


def refuse_answer(agent, round, reason):
    while agent.receive()[0].WhichOneof("body") != "task_done":
        pass
    agent.refused(round, reason)


def test_gradients_that_count_nowhere_end_the_pass_with_the_reason(tmp_path, alone):
    model = torch.nn.Linear(2, 1)
    with FakeAgent(tmp_path / "a", fluvial.zeros_like(model)) as agent:
        agent.task(1, {"weight": np.zeros(2), "bias": np.zeros(1)})
        answered = threading.Thread(target=refuse_answer, args=(agent, 1, "tensor 'bias', value 0 is inf after training"))
        answered.start()
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        ddp.register_comm_hook(None, fluvial.torch.ddp_hook(agent.site, "run", model))
        with pytest.warns(RuntimeWarning, match="counts nowhere"):
            said = failure(lambda: (ddp(torch.ones(3, 2)).sum() * 1e39).backward())
        answered.join()
        assert "UpdateRefused" in said and "value 0 is inf" in said and "scaler=" in said
        agent.task(1, {"weight": np.zeros(2), "bias": np.zeros(1)})  # its next attempt
        agent.committed(1, {"weight": np.ones(2), "bias": np.ones(1)})
        model.zero_grad(set_to_none=True)
        ddp = torch.nn.parallel.DistributedDataParallel(model)
        ddp.register_comm_hook(None, fluvial.torch.ddp_hook(agent.site, "run", model))
        ddp(torch.ones(3, 2)).sum().backward()
        assert model.bias.grad.tolist() == [1]


class Scale:
    def get_scale(self):
        return 4.0


def test_a_scaler_needs_a_run_that_can_tell_overflows(tmp_path, alone):
    def scaled(model, start):
        return one_pass(tmp_path, model, lambda ddp: 4 * ddp(torch.ones(3, 2)).sum(), start, scaler=Scale())

    model = torch.nn.Linear(2, 1)
    assert "fluvial.torch.zeros_like" in failure(lambda: scaled(model, fluvial.zeros_like(model)))
    (tmp_path / "a").unlink()
    model = torch.nn.Linear(2, 1)
    given = scaled(model, fluvial.torch.zeros_like(model))
    assert given["bias"].tolist() == [3] and given["ddp.flags"].tolist() == [1, 1, 0]
    assert model.bias.grad.tolist() == [6], "half of it, scaled again"


STEPS = """
import os
import sys

import numpy as np
import torch

import fluvial
import fluvial.torch

socket, store, rank, ranks, share, out = sys.argv[1:]
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=int(rank), world_size=int(ranks))
torch.manual_seed(3)
model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 4))
ddp = torch.nn.parallel.DistributedDataParallel(model)
if socket:
    ddp.register_comm_hook(None, fluvial.torch.ddp_hook(fluvial.connect(socket), "steps", model, samples=16))
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
x = torch.randn(3, 16, 20, generator=torch.Generator().manual_seed(int(share)))
for batch in x:
    optimizer.zero_grad()
    ddp(batch).square().mean().backward()
    optimizer.step()
np.savez(out, **{name: value.numpy() for name, value in model.state_dict().items()})
os._exit(0)  # PyTorch 2.15 aborts now and then when a process with Gloo ends otherwise, with or without a hook
"""


def parameters_after_steps(folder, places):
    """Runs the script once for each (socket, group, rank, ranks), each with data of its own."""
    outs, workers = [], []
    for share, (socket, group, rank, ranks) in enumerate(places):
        outs.append(f"{folder}/{group}-{share}.npz")
        arguments = [socket, f"{folder}/{group}", str(rank), str(ranks), str(share), outs[-1]]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        workers.append(subprocess.Popen([sys.executable, "-c", STEPS, *arguments], env=environment))
    try:
        assert [worker.wait(timeout=120) for worker in workers] == [0] * len(workers)
    finally:
        for worker in workers:
            worker.kill()
    return [dict(np.load(out)) for out in outs]


def test_three_steps_over_two_sites_are_those_of_one_process_group(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(20, 30), torch.nn.Tanh(), torch.nn.Linear(30, 4))
    (expected, _) = parameters_after_steps(tmp_path, [("", "plain", rank, 2) for rank in range(2)])
    with fluvial.testing.LocalFederation(sites=2) as local:
        local.start_run("steps", fluvial.zeros_like(model), rounds=3, optimizer="mean")
        sites = [(local.worker_socket(index), f"site-{index}", 0, 1) for index in range(2)]
        first, second = parameters_after_steps(tmp_path, sites)
    for name, array in expected.items():
        assert np.array_equal(first[name], second[name]), name
        np.testing.assert_allclose(first[name], array, rtol=1e-6, atol=1e-7)
