"""Parts of a model that ranks of a group hand over: the layouts of DTensors, many ranges, and rounds that overlap.

PyTorch's DTensors need a process group and a PyTorch that is newer than many have. What is emulated here is what a rank sees of one: its
part of the tensor, its place in the mesh, the placements.
"""

import importlib
import sys
import types

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent
from fluvial import _pieces
from test_federation import in_threads

torch = pytest.importorskip("torch", reason="needs PyTorch")


class Shard:
    def __init__(self, dim):
        self.dim = dim


class _StridedShard(Shard):
    def __init__(self, dim, split_factor):
        super().__init__(dim)
        self.split_factor = split_factor


class Replicate:
    pass


class Partial:
    dim = 0


class Mesh:
    def __init__(self, mesh, rank):
        self.mesh = torch.tensor(mesh)
        ((*self._places,),) = (self.mesh == rank).nonzero().tolist()

    def size(self, dimension):
        return self.mesh.shape[dimension]

    def get_local_rank(self, dimension):
        return self._places[dimension]


class DTensor:
    def __init__(self, whole, local, mesh, placements):
        self.shape, self.dtype, self._local, self.device_mesh, self.placements = whole.shape, whole.dtype, local, mesh, placements

    def is_floating_point(self):
        return self.dtype.is_floating_point

    def to_local(self):
        return self._local


@pytest.fixture
def fsdp(monkeypatch):
    emulated = types.ModuleType("torch.distributed.tensor")
    emulated.DTensor, emulated.Replicate, emulated.Shard = DTensor, Replicate, Shard
    monkeypatch.setitem(sys.modules, "torch.distributed.tensor", emulated)
    monkeypatch.delitem(sys.modules, "fluvial.fsdp", raising=False)
    yield importlib.import_module("fluvial.fsdp")
    sys.modules.pop("fluvial.fsdp", None)
    if hasattr(fluvial, "fsdp"):
        del fluvial.fsdp


class Model:
    def __init__(self, parameters, buffers):
        self._parameters, self._buffers = parameters, buffers

    def named_parameters(self):
        return self._parameters.items()

    def named_buffers(self):
        return self._buffers.items()


def cut(whole, mesh, placements, order):
    """A rank's part, as torch.chunk deals it out, one dimension of the mesh after the other in this order."""
    for dimension in order:
        chunks = torch.chunk(whole, mesh.size(dimension), placements[dimension].dim)
        place = mesh.get_local_rank(dimension)
        empty = whole.narrow(placements[dimension].dim, 0, 0)
        whole = chunks[place] if place < len(chunks) else empty
    return whole.clone()


LINE, SQUARE, CUBE = [0, 1, 2], [[0, 1, 2], [3, 4, 5]], [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
LAYOUTS = {  # a mesh, placements, and in which order the mesh's dimensions cut
    "rows": (LINE, [Shard(0)], [0]),
    "columns": (LINE, [Shard(1)], [0]),
    "last dimension, from behind": (LINE, [Shard(-1)], [0]),
    "replicated": (LINE, [Replicate()], []),
    "rows and columns": (SQUARE, [Shard(0), Shard(1)], [0, 1]),
    "rows twice": (SQUARE, [Shard(0), Shard(0)], [0, 1]),
    "HSDP": (SQUARE, [Replicate(), Shard(0)], [1]),
    "HSDP the other way": (SQUARE, [Shard(1), Replicate()], [0]),
    "FSDP over TP of the same rows": (SQUARE, [_StridedShard(0, 3), Shard(0)], [1, 0]),
    "FSDP over TP of columns": (SQUARE, [Shard(0), Shard(1)], [0, 1]),
    "HSDP over TP of the same rows": (CUBE, [Replicate(), _StridedShard(0, 2), Shard(0)], [2, 1]),
    "FSDP over two cuts of the same rows": (CUBE, [_StridedShard(0, 4), Shard(0), Shard(0)], [1, 2, 0]),
    "three dimensions": (CUBE, [Shard(2), Shard(0), Shard(1)], [0, 1, 2]),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_rank_loads_and_hands_over_its_part_of_any_layout(tmp_path, fsdp, layout):
    mesh, placements, order = LAYOUTS[layout]
    rng = np.random.default_rng(3)
    model = {
        "w": rng.standard_normal((7, 5, 3)).astype(np.float32),  # which nothing here divides
        "n": np.array([4, 5], np.int64),
        "v": rng.standard_normal((4, 4, 2)).astype(np.float32),
        "plain": rng.standard_normal(5).astype(np.float32),
    }
    ranks = torch.tensor(mesh).numel()
    total = sum(array.nbytes for array in model.values())
    whole, covered = np.zeros(total, np.uint8), np.zeros(total, int)
    for rank in range(ranks):
        with FakeAgent(tmp_path / str(rank), model, group="trainer", rank=rank, ranks=ranks) as agent:
            place = Mesh(mesh, rank)
            locals_ = {name: cut(torch.from_numpy(model[name]), place, placements, order) for name in ("w", "v")}
            sharded = {
                name: DTensor(torch.from_numpy(model[name]), torch.full_like(local, 9), place, placements)
                for name, local in locals_.items()
            }
            here = Model({**sharded, "plain": torch.zeros(5)}, {"n": torch.zeros(2, dtype=torch.int64)})
            agent.task(1, model)
            round = next(agent.rounds)
            fsdp.load(round, here)
            for name, local in locals_.items():
                assert torch.equal(sharded[name].to_local(), local), name
                sharded[name].to_local().add_(1)
            for tensor in (here._parameters["plain"], here._buffers["n"]):
                tensor.add_(1)
            fsdp.submit(round, here, samples=2, metrics={"loss": 1.0})
            message, with_memory, answered = agent.answer_of_rank()
            assert with_memory and message.task_done.weight == 2
            data = np.concatenate([part.reshape(-1).view(np.uint8) for part in agent.result_arrays().values()])
            for first, count in answered:
                covered[first : first + count] += 1
                whole[first : first + count] = data[first : first + count]
    assert covered.tolist() == [1] * total
    for name, array in agent.schema.views(whole).items():
        assert np.array_equal(array, model[name] + 1), name


@pytest.mark.parametrize(
    "placements, local, what",
    [
        ([Partial(), Shard(0)], (2, 4), "tensor w is placed as .*Partial.*expected Shard, Replicate"),
        ([_StridedShard(0, 4), Shard(0)], (2, 4), "tensor w is placed as .*_StridedShard"),
        ([_StridedShard(0, 3), Shard(1)], (2, 4), "tensor w is placed as .*_StridedShard"),
        ([Shard(0), Shard(1)], (3, 4), r"expected \[3, 2\] of it here, and there are \[3, 4\]"),
    ],
)
def test_a_layout_that_is_no_part_is_named(tmp_path, fsdp, placements, local, what):
    model = {"w": np.zeros((6, 4), np.float32)}
    with FakeAgent(tmp_path / "a", model, group="trainer", rank=0, ranks=6) as agent:
        agent.task(1, model)
        round = next(agent.rounds)
        here = Model({"w": DTensor(torch.zeros(6, 4), torch.zeros(local), Mesh(SQUARE, 0), placements)}, {})
        for use in (lambda: fsdp.load(round, here), lambda: fsdp.submit(round, here, samples=1)):
            with pytest.raises(fluvial.ModelMismatch, match=what):
                use()
        with pytest.raises(fluvial.ModelMismatch, match=r"tensor w has shape \[4, 6\]"):
            fsdp.load(round, Model({"w": torch.zeros(4, 6)}, {}))


def test_meshes_beside_each_other_hand_a_tensor_over_once(tmp_path, fsdp):
    """Tensor parallelism alone, on each of two replicas: the mesh of a replica says nothing of the other."""
    model = {"w": np.arange(8, dtype=np.float32).reshape(4, 2)}
    covered = np.zeros(32, int)
    for rank in range(4):
        with FakeAgent(tmp_path / str(rank), model, group="trainer", rank=rank, ranks=4) as agent:
            agent.task(1, model)
            round = next(agent.rounds)
            mesh = Mesh([0, 1] if rank < 2 else [2, 3], rank)
            fsdp.submit(round, Model({"w": DTensor(torch.zeros(4, 2), torch.zeros(4, 1), mesh, [Shard(1)])}, {}), samples=1)
            for first, count in agent.answer_of_rank()[2]:
                covered[first : first + count] += 1
    assert covered.tolist() == [1] * 32


def test_more_ranges_than_an_agent_takes_are_refused_before_they_are_sent(tmp_path, fsdp, monkeypatch):
    monkeypatch.setattr(_pieces, "RANGES_MAX", 5)
    model = {"w": np.zeros((6, 4), np.float32)}
    with FakeAgent(tmp_path / "a", model, group="trainer", rank=0, ranks=2) as agent:
        agent.task(1, model)
        round = next(agent.rounds)
        here = Model({"w": DTensor(torch.zeros(6, 4), torch.zeros(6, 2), Mesh([0, 1], 0), [Shard(1)])}, {})
        with pytest.raises(fluvial.ModelMismatch, match=r"6 ranges of the model's bytes, of which an agent takes 5.*Shard\(0\)"):
            fsdp.submit(round, here, samples=1)


def test_parts_overlap_with_the_round_before(tmp_path, fsdp):
    """l_(r+1) = theta_(r+1) + (e_r - l_r) in this rank's part; what is replicated is handed over by another rank, and goes on here, too."""
    rng = np.random.default_rng(9)

    def theta():
        return {"w": rng.standard_normal((6, 4)).astype(np.float32), "b": rng.standard_normal(3).astype(np.float32)}

    start = theta()
    with FakeAgent(tmp_path / "a", start, group="trainer", rank=1, ranks=2) as agent:
        local, plain = torch.zeros(6, 2), torch.zeros(3)
        here = Model({"w": DTensor(torch.zeros(6, 4), local, Mesh([0, 1], 1), [Shard(1)]), "b": plain}, {})
        agent.task(1, start)
        base = start
        for number in range(1, 5):
            round = next(agent.rounds)
            assert round.number == number
            fsdp.load(round, here)
            if number == 1:
                now = {"w": start["w"][:, 2:].copy(), "b": start["b"].copy()}
            else:
                with pytest.raises(fluvial.RoundClosed, match="goes on from the part"):
                    round.arrays()
                with pytest.raises(fluvial.RoundClosed, match="goes on from the part"):
                    round.submit_shard(np.zeros(24), 0, samples=1)
            assert np.array_equal(local.numpy(), now["w"]) and np.array_equal(plain.numpy(), now["b"])
            steps = {"w": rng.standard_normal((6, 2)).astype(np.float32), "b": rng.standard_normal(3).astype(np.float32)}
            local += torch.from_numpy(steps["w"])
            plain += torch.from_numpy(steps["b"])
            end = {"w": local.numpy().copy(), "b": plain.numpy().copy()}
            if number > 1:
                base = theta()
                agent.task(number, base)
            fsdp.submit(round, here, samples=1, overlap=number < 4)
            message, _, answered = agent.answer_of_rank()
            assert message.task_done.id == number and answered == [(16 * row + 8, 8) for row in range(6)]
            if number == 1:
                now = end
            else:
                now = {"w": base["w"][:, 2:] + (end["w"] - now["w"]), "b": base["b"] + (end["b"] - now["b"])}
            assert np.array_equal(agent.result_arrays()["w"][:, 2:], now["w"])


def experts(count):
    return {f"experts.{index}.w": np.full((2, 2), index, np.float32) for index in range(count)}


def test_a_rank_hands_thousands_of_tensors_over_and_trains_on_meanwhile():
    """As a mixture of experts is: of each of 2,500 tensors a row, at a real agent."""
    start = experts(2_500)
    with fluvial.testing.LocalFederation(sites=1) as federation:
        federation.start_run("experts", start, rounds=2, codec="fp32")

        def rank(index):
            places = [4 * tensor + 2 * index for tensor in range(len(start))]
            with fluvial.connect(str(federation.worker_socket(0)), group="trainer", rank=index, ranks=2) as site:
                for round in site.rounds("experts"):
                    flat = round.flat()
                    rows = [flat[place : place + 2] + 1 for place in places]
                    round.submit_shard(rows, places, samples=1, overlap=True)

        in_threads(2, rank)
        federation.wait("experts", timeout_s=120)
        committed = federation.model("experts")
    assert all(np.array_equal(committed[name], array + 2) for name, array in start.items())


def test_thousands_of_parts_in_no_order():
    start = {name: np.zeros_like(array) for name, array in experts(5_000).items()}
    names = list(start)
    with fluvial.testing.LocalFederation(sites=1) as federation:
        federation.start_run("parts", start, rounds=1, codec="fp32", optimizer="mean")
        for round in federation.connect(0).rounds("parts"):
            parts = round.parts(samples=1)
            for some in (names[::2], names[1::4], names[3::4]):
                parts.add({name: np.full((2, 2), 3, np.float32) for name in some})
            parts.finish()
        federation.wait("parts", timeout_s=120)
        assert all((array == 3).all() for array in federation.model("parts").values())
