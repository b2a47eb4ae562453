"""Results in the memory of a GPU: what goes there, what the agent is told, and when host memory is used after all."""

import ctypes
import pathlib
import re
import warnings

import numpy as np
import pytest

import emulated_cuda
import fluvial
from emulated_cuda import UUIDS, Array, opened
from fake_agent import FakeAgent
from fluvial import _device

pytestmark = emulated_cuda.needs_library
FLOATS = {"w": np.arange(6, dtype=np.float32).reshape(2, 3), "none": np.empty((0, 2), np.float32), "b": np.ones(4, np.float32)}
COUNTED = {"first": np.arange(3, dtype=np.int64), **FLOATS, "seen": np.array([7], np.int32)}


@pytest.fixture(autouse=True)
def driver():
    emulated_cuda.use()
    yield
    _device.LIBRARY = "libcuda.so.1"


@pytest.fixture
def agent(tmp_path):
    with FakeAgent(tmp_path / "a", FLOATS, devices=UUIDS[:1]) as fake:
        yield fake


@pytest.fixture
def counting(tmp_path):
    with FakeAgent(tmp_path / "a", COUNTED, devices=UUIDS[:1]) as fake:
        yield fake


def flat(model):
    return [value for array in model.values() if array.dtype.kind == "f" for value in array.reshape(-1).tolist()]


def plus(model, number):
    return {name: array + np.array(number, array.dtype) for name, array in model.items()}


def on_gpu(model, ordinal=0):
    """Averaged tensors as arrays of the GPU's, counters as they are."""
    return {name: Array(array, ordinal) if array.dtype.kind == "f" else array for name, array in model.items()}


def test_a_model_on_a_gpu_stays_there(agent):
    handles = set()
    model = on_gpu(FLOATS)
    for number in (1, 2, 3):
        agent.task(number, FLOATS)
        for name in model:
            model[name].set(FLOATS[name] + number)
        next(agent.rounds).submit(model, samples=5, metrics={"loss": 0.5})
        message, with_memfd = agent.receive()
        done = message.task_done
        assert not with_memfd and done.id == number and done.weight == 5
        assert opened(done.device).tolist()[:10] == flat(plus(FLOATS, number))
        handles.add(done.device.handle)
    assert len(handles) == 1


def test_counters_come_beside_it(counting):
    counting.task(1, COUNTED)
    next(counting.rounds).submit(on_gpu(plus(COUNTED, 2)), samples=1)
    message, with_memfd = counting.receive()
    assert with_memfd and opened(message.task_done.device).tolist()[:10] == flat(plus(COUNTED, 2))
    arrays = counting.result_arrays()
    assert arrays["first"].tolist() == [2, 3, 4] and arrays["seen"].tolist() == [9]


def test_an_update_leaves_counters_as_they_are(counting):
    counting.task(1, COUNTED)
    next(counting.rounds).submit_update(on_gpu(FLOATS), samples=1)
    message, with_memfd = counting.receive()
    assert with_memfd and message.task_done.update and opened(message.task_done.device).tolist()[:10] == flat(FLOATS)
    arrays = counting.result_arrays()
    assert arrays["first"].tolist() == [0, 1, 2] and arrays["seen"].tolist() == [7]


def test_an_update_in_parts_from_anywhere(counting):
    counting.task(1, COUNTED)
    parts = next(counting.rounds).parts(samples=2)
    parts.add({"b": Array(FLOATS["b"])})
    ready, with_memfd = counting.receive()
    assert with_memfd and opened(ready.task_ready.device).tolist()[6:10] == [1] * 4
    parts.add({"w": FLOATS["w"].astype(np.float64), "none": Array(FLOATS["none"], ordinal=1)})  # the first decided
    message, with_memfd = counting.receive()
    assert not with_memfd and not message.task_ready.HasField("device")
    parts.finish()
    message, with_memfd = counting.receive()
    assert not with_memfd and not message.task_done.HasField("device")
    assert opened(ready.task_ready.device).tolist()[:10] == flat(FLOATS)
    assert counting.result_arrays()["seen"].tolist() == [7]


def test_an_allreduce_of_a_gpus_vector(tmp_path):
    zeros = {"x": np.zeros(3, np.float32)}
    with FakeAgent(tmp_path / "a", zeros, devices=UUIDS) as agent:
        agent.task(1, zeros)
        agent.committed(1, {"x": np.full(3, 1.5)})
        mean = agent.site.allreduce(Array([1, 2, 3], ordinal=1), run="run")
        message, with_memfd = agent.receive()
        assert mean.tolist() == [1.5] * 3 and not with_memfd
        assert message.task_done.device.device == UUIDS[1]
        assert opened(message.task_done.device).tolist()[:3] == [1, 2, 3]


HOST = {
    "numpy": lambda: FLOATS,
    "another GPU than the agent's": lambda: on_gpu(FLOATS, ordinal=1),
    "two GPUs": lambda: {**on_gpu(FLOATS), "b": Array(FLOATS["b"], ordinal=1)},
    "in part": lambda: {**on_gpu(FLOATS), "w": FLOATS["w"]},
    "another dtype": lambda: {**on_gpu(FLOATS), "w": Array(FLOATS["w"], dtype=np.float64)},
}


def submitted_through_host_memory(agent, model):
    agent.task(1, FLOATS)
    next(agent.rounds).submit(model, samples=1)
    message, with_memfd = agent.receive()
    assert with_memfd and not message.task_done.HasField("device")
    assert flat(agent.result_arrays()) == flat(FLOATS)


@pytest.mark.parametrize("kind", HOST)
def test_what_is_not_all_on_the_agents_gpu_goes_through_host_memory(agent, kind):
    submitted_through_host_memory(agent, HOST[kind]())


def test_memory_that_the_driver_says_is_no_gpus_goes_through_host_memory(agent, monkeypatch):
    call = _device._Driver.call

    def says_host(self, called, *arguments):
        call(self, called, *arguments)
        if called == "cuPointerGetAttribute":
            arguments[0]._obj.value = -2  # such as of the host's own memory, where a GPU reads that

    model = on_gpu(FLOATS)
    monkeypatch.setattr(_device._Driver, "call", says_host)
    submitted_through_host_memory(agent, model)


def test_an_agent_without_gpus_and_a_worker_that_wants_none(tmp_path):
    with FakeAgent(tmp_path / "a", FLOATS) as agent:
        submitted_through_host_memory(agent, on_gpu(FLOATS))
    with FakeAgent(tmp_path / "b", FLOATS, devices=UUIDS, device=False) as agent:
        submitted_through_host_memory(agent, on_gpu(FLOATS))


def test_a_round_to_overlap_with_is_in_host_memory(agent):
    agent.task(1, FLOATS)
    round = next(agent.rounds)
    round.submit(on_gpu(plus(FLOATS, 1)), samples=1, overlap=True)
    message, with_memfd = agent.receive()
    assert with_memfd and not message.task_done.HasField("device")
    round = next(agent.rounds)
    assert flat(round.arrays()) == flat(plus(FLOATS, 1))
    agent.task(2, plus(FLOATS, 10))
    round.submit(on_gpu(plus(FLOATS, 3)), samples=1)
    agent.receive()
    assert flat(agent.result_arrays()) == flat(plus(FLOATS, 12))


def test_each_round_goes_where_its_model_is(agent):
    agent.task(1, FLOATS)
    next(agent.rounds).submit(on_gpu(plus(FLOATS, 1)), samples=1)
    assert not agent.receive()[1]
    submitted_through_host_memory(agent, FLOATS)
    agent.task(3, FLOATS)
    next(agent.rounds).submit(on_gpu(plus(FLOATS, 3)), samples=1)
    message, with_memfd = agent.receive()
    assert not with_memfd and opened(message.task_done.device).tolist()[:10] == flat(plus(FLOATS, 3))


def refusing(name):
    call = _device._Driver.call

    def refuse(self, called, *arguments):
        if called == name:
            raise _device.DeviceError(f"{name}: operation not supported (801)")
        call(self, called, *arguments)

    return refuse


REFUSED = ["cuMemAlloc_v2", "cuIpcGetMemHandle", "cuMemcpyDtoDAsync_v2", "cuPointerGetAttribute"]


@pytest.mark.parametrize("name", REFUSED)
def test_a_driver_that_refuses_costs_speed_and_nothing_else(agent, monkeypatch, name):
    models = [on_gpu(FLOATS) for _ in range(2)]
    with monkeypatch.context() as patched:
        patched.setattr(_device._Driver, "call", refusing(name))
        with pytest.warns(RuntimeWarning, match=f"through host memory.*{name}: operation not supported"):
            submitted_through_host_memory(agent, models[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it is said once
        submitted_through_host_memory(agent, models[1])


@pytest.mark.parametrize("name", REFUSED)
def test_an_agent_that_ends_after_that_ended_for_its_own_reasons(agent, monkeypatch, name):
    model = on_gpu(FLOATS)
    with monkeypatch.context() as patched, pytest.warns(RuntimeWarning, match="through host memory"):
        patched.setattr(_device._Driver, "call", refusing(name))
        submitted_through_host_memory(agent, model)
    agent.detach("the agent ends")
    with pytest.raises(fluvial.AgentUnavailable, match="the agent ends.*not over"):
        next(agent.rounds)
    assert agent.site.detach_reason == "the agent ends"


def test_a_machine_without_driver(agent):
    model = on_gpu(FLOATS)
    _device.LIBRARY = "libof-no-driver.so"
    with pytest.warns(RuntimeWarning, match="no CUDA driver that fits"):
        submitted_through_host_memory(agent, model)


def test_an_agent_that_cannot_open_the_memory_is_no_end_of_a_run(agent):
    agent.task(1, FLOATS)
    next(agent.rounds).submit(on_gpu(FLOATS), samples=1)
    agent.receive()
    agent.detach("share the IPC namespace of the containers")
    with pytest.raises(fluvial.AgentRefused, match="GPU's memory: share the IPC namespace"):
        next(agent.rounds)


def test_an_agent_that_ends_later_is(agent):
    agent.task(1, FLOATS)
    first = next(agent.rounds)
    first.submit(on_gpu(FLOATS), samples=1)
    agent.committed(1, FLOATS)
    agent.task(2, FLOATS)
    next(agent.rounds).submit(on_gpu(FLOATS), samples=1)
    agent.detach("the agent ends")
    with pytest.raises(fluvial.AgentUnavailable, match="the agent ends.*not over"):
        next(agent.rounds)
    assert agent.site.detach_reason == "the agent ends"


def test_memory_goes_when_its_run_has_ended(agent):
    before = emulated_cuda.allocations()
    agent.task(1, FLOATS)
    round = next(agent.rounds)  # a loop's variable holds the last round beyond its end
    round.submit(on_gpu(FLOATS), samples=1)
    assert emulated_cuda.allocations() == before + 1
    agent.run_ended()
    assert next(agent.rounds, None) is None
    assert emulated_cuda.allocations() == before


HEADER = pathlib.Path("/usr/local/cuda/include/cuda.h")
TYPES = {
    "unsigned int": ctypes.c_uint,
    "int": ctypes.c_int,
    "CUresult": ctypes.c_int,
    "CUdevice": ctypes.c_int,
    "CUpointer_attribute": ctypes.c_int,
    "size_t": ctypes.c_size_t,
    "CUdeviceptr": ctypes.c_uint64,
    "CUcontext": ctypes.c_void_p,
    "CUstream": ctypes.c_void_p,
    "char *": ctypes.c_char_p,
}


@pytest.mark.skipif(not HEADER.exists(), reason="needs the CUDA toolkit")
@pytest.mark.parametrize("name", _device._CALLS)
def test_calls_are_those_of_the_drivers_header(name):
    text = HEADER.read_text()
    plain = re.search(rf"#define (\w+) +(?:__CUDA_API_PT[SD][ZS]\()?{name}\)?\n", text)
    declared = re.search(rf"CUresult CUDAAPI {plain[1] if plain else name}\((.*?)\);", text, re.DOTALL)[1]
    if not plain:
        assert not re.search(rf"#define {name} ", text), "a newer version of it is meant"
    given = [] if declared == "void" else [part.replace("const ", "").strip() for part in declared.split(",")]
    assert len(given) == len(_device._CALLS[name])
    for argument, used in zip(given, _device._CALLS[name]):
        kind = re.fullmatch(r"(.*?)\w+", argument)[1].strip()
        if used is ctypes.c_void_p and kind.endswith("*"):
            continue
        expected = TYPES.get(kind) or ctypes.POINTER(TYPES[kind.removesuffix("*").strip()])
        assert used is expected, argument


def test_torch_converts_its_tensors_first(agent):
    torch = pytest.importorskip("torch", reason="needs PyTorch")

    class CudaTensor(torch.Tensor):
        """Says that it is on a GPU, and is in memory of the emulated one: so is what torch makes contiguous."""

        is_cuda = True

        def contiguous(self):
            return on_gpu(super().contiguous().as_subclass(torch.Tensor))

    def on_gpu(tensor):
        memory = Array(tensor.view(torch.uint8).numpy(), dtype=np.uint8)
        data = (ctypes.c_ubyte * memory.nbytes).from_address(memory.pointer)
        data.memory = memory  # which lives as long as a tensor over it
        flat = torch.from_numpy(np.frombuffer(data, np.uint8)).view(tensor.dtype)
        return flat.view(tensor.shape).as_subclass(CudaTensor)

    model = {
        "w": on_gpu(torch.from_numpy(FLOATS["w"]).half().t().contiguous()).t(),
        "b": on_gpu(torch.from_numpy(FLOATS["b"])).requires_grad_(),
        "none": torch.empty(0, 2),
    }
    assert not model["w"].is_contiguous() and model["w"].dtype == torch.float16
    agent.task(1, FLOATS)
    next(agent.rounds).submit(model, samples=1)
    message, with_memfd = agent.receive()
    assert not with_memfd and opened(message.task_done.device).tolist()[:10] == flat(FLOATS)
