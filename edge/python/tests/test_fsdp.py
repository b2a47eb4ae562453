"""FSDP2 on CPUs (Gloo): two ranks train a sharded model as one process trains the whole."""

import os
import subprocess
import sys
import tempfile

import numpy as np
import pytest

import fluvial

torch = pytest.importorskip("torch", reason="needs PyTorch")
pytest.importorskip("torch.distributed.tensor", reason="needs a PyTorch with FSDP2")

ROUNDS, STEPS, RANKS = 2, 3, 2

PARTS = """
import torch
from torch import nn

def network():
    torch.manual_seed(5)
    model = nn.Sequential(nn.Linear(6, 7), nn.BatchNorm1d(7, momentum=0.5), nn.Linear(7, 1))  # rows that do not divide
    model.register_buffer("seen", torch.zeros(3, dtype=torch.int64))
    return model

def data():
    x = torch.randn(64, 6, generator=torch.Generator().manual_seed(1))
    return x, x.sum(1, keepdim=True).sin()
"""

RANK = PARTS + """
import os
import sys
import fluvial
import fluvial.fsdp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

socket, store, rank, steps = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
mesh = init_device_mesh("cpu", (2,))
model = network().eval()
fully_shard(model[0], mesh=mesh)
fully_shard(model, mesh=mesh)
x, y = (part[rank::2] for part in data())
with fluvial.connect(socket, group="trainer", rank=rank, ranks=2) as site:
    for round in site.rounds("sharded"):
        fluvial.fsdp.load(round, model)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(steps):
            optimizer.zero_grad()
            (model(x) - y).square().mean().backward()
            optimizer.step()
        fluvial.fsdp.submit(round, model, samples=len(x) * 2)
os._exit(0)  # PyTorch 2.15 aborts now and then when a process with Gloo ends otherwise
"""


def test_two_ranks_train_what_one_process_trains():
    parts = {}
    exec(PARTS, parts)  # noqa: S102: the ranks' own source
    model = parts["network"]().eval()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with fluvial.testing.LocalFederation(sites=1) as federation, tempfile.TemporaryDirectory() as folder:
        federation.start_run("sharded", model, rounds=ROUNDS, codec="fp32", optimizer="fedavg")
        command = [sys.executable, "-B", "-c", RANK, str(federation.worker_socket(0)), f"{folder}/store"]
        ranks = [subprocess.Popen([*command, str(rank), str(STEPS)], env=environment) for rank in range(RANKS)]
        assert [rank.wait(120) for rank in ranks] == [0] * RANKS
        committed = federation.model("sharded")
    x, y = parts["data"]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(ROUNDS * STEPS):
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    for name, tensor in model.state_dict().items():
        assert np.allclose(committed[name], tensor.numpy(), atol=2e-6), name
