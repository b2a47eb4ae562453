"""The DistributedDataParallel hook beside plain DDP over all sites: passes that use some parameters, scaled gradients, overflows."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest

import fluvial

torch = pytest.importorskip("torch", reason="needs PyTorch")
if not torch.distributed.is_available():
    pytest.skip("this PyTorch has no torch.distributed", allow_module_level=True)

import fluvial.torch  # noqa: E402

SCRIPT = """
import json, os, sys

import numpy as np
import torch

import fluvial
import fluvial.torch

socket, store, rank, ranks, share, out, *options = sys.argv[1:]
share = int(share)
torch.set_num_threads(1)
torch.distributed.init_process_group("gloo", init_method="file://" + store, rank=int(rank), world_size=int(ranks))
STEPS, DDP = 6, torch.nn.parallel.DistributedDataParallel
# Step by step, which experts each place uses.
USES = [[{0}, {0, 1}], [{0, 1}, {0, 1}], [{0}, {0}], [set(), {1}], [{0, 2}, {0}], [{0}, {0, 1}]]


class Experts(torch.nn.Module):
    def __init__(self, dead=()):
        super().__init__()
        self.first, self.dead = torch.nn.Linear(8, 8), dead  # which experts are used and count nothing
        self.experts = torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))  # the last one is used nowhere

    def forward(self, x, uses):
        x = self.first(x)
        return x + sum(self.experts[expert](x).tanh() * (expert not in self.dead) for expert in sorted(uses))


def unused(site, option):
    model = Experts({1} if option == "dead" else ())
    ddp = DDP(model, find_unused_parameters=True, bucket_cap_mb=0.0001, gradient_as_bucket_view=option == "view")
    if site:
        ddp.register_comm_hook(None, fluvial.torch.ddp_hook(site, option, model, samples=16))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9, weight_decay=0.01)
    none = []
    for step, batch in enumerate(torch.randn(STEPS, 16, 8, generator=torch.Generator().manual_seed(share))):
        optimizer.zero_grad(set_to_none=option != "zeros")
        if step == 4:
            with ddp.no_sync():
                ddp(batch, {0, 3} if option == "more" else {0}).square().mean().backward()
        ddp(batch, USES[step][share]).square().mean().backward()
        none.append([name for name, parameter in model.named_parameters() if parameter.grad is None])
        optimizer.step()
    return model, none


class Scaler:  # what torch.cuda.amp.GradScaler does, on processors too
    def __init__(self):
        self.scale, self.skipped = 2.0**16, []

    def get_scale(self):
        return self.scale

    def step(self, optimizer):
        gradients = [parameter.grad.div_(self.scale) for group in optimizer.param_groups for parameter in group["params"]]
        self.skipped.append(not all(torch.isfinite(gradient).all() for gradient in gradients))
        if self.skipped[-1]:
            self.scale /= 2
        else:
            optimizer.step()


def scaled(site, option):
    model, scaler = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.Tanh(), torch.nn.Linear(30, 4)), Scaler()
    ddp = DDP(model, bucket_cap_mb=0.0001)
    if site:
        ddp.register_comm_hook(None, fluvial.torch.ddp_hook(site, option, model, samples=16, scaler=scaler))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1, momentum=0.9)
    for step, batch in enumerate(torch.randn(STEPS, 16, 8, generator=torch.Generator().manual_seed(share))):
        optimizer.zero_grad()
        # The first pass overflows at both places, the third one at one.
        excess = 1e38 if step == 0 or (step == 2 and share == 1) else 1
        (ddp(batch).square().mean() * scaler.scale * excess).backward()
        scaler.step(optimizer)
    return model, [scaler.skipped, scaler.scale]


said, arrays = {}, {}
for option in options:
    torch.manual_seed(3)
    site = fluvial.connect(socket) if socket else None
    model, said[option] = (scaled if option == "scaled" else unused)(site, option)
    arrays.update({option + "/" + name: value.numpy().copy() for name, value in model.state_dict().items()})
    if site:
        site.close()
np.savez(out, said=json.dumps(said), **arrays)
os._exit(0)  # PyTorch 2.15 aborts now and then when a process with Gloo ends otherwise, with or without a hook
"""
OPTIONS = ["none", "zeros", "view", "more", "dead", "scaled"]


def begun(folder, places):
    """The script for each (socket, group, rank, ranks), each with data of its own."""
    workers = []
    for share, (socket, group, rank, ranks) in enumerate(places):
        out = f"{folder}/{group}-{share}.npz"
        arguments = [socket, f"{folder}/{group}", str(rank), str(ranks), str(share), out, *OPTIONS]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        workers.append((subprocess.Popen([sys.executable, "-c", SCRIPT, *arguments], env=environment), out))
    return workers


def ended(workers):
    """What each said, and its models."""
    assert [worker.wait(timeout=120) for worker, _ in workers] == [0] * len(workers)
    found = [dict(np.load(out)) for _, out in workers]
    return [(json.loads(str(model.pop("said"))), model) for model in found]


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Of two ranks of plain DDP, and of two sites with a rank each."""
    folder, workers = tmp_path_factory.mktemp("ddp"), []
    experts = torch.nn.ModuleDict({"first": torch.nn.Linear(8, 8), "experts": torch.nn.ModuleList(torch.nn.Linear(8, 8) for _ in range(4))})
    small = torch.nn.Sequential(torch.nn.Linear(8, 30), torch.nn.Tanh(), torch.nn.Linear(30, 4))
    starts = {**{option: fluvial.zeros_like(experts) for option in OPTIONS}, "dead": fluvial.torch.zeros_like(experts)}
    starts["scaled"] = fluvial.torch.zeros_like(small)
    try:
        with fluvial.testing.LocalFederation(sites=2) as local:
            workers += begun(folder, [("", "plain", rank, 2) for rank in range(2)])
            workers += begun(folder, [(local.worker_socket(index), f"site-{index}", 0, 1) for index in range(2)])
            for option in OPTIONS:
                local.start_run(option, starts[option], rounds=6, optimizer="mean")
                local.wait(option, timeout_s=120)
            found = ended(workers)
        yield found[:2], found[2:]
    finally:
        for worker, _ in workers:
            worker.kill()


def of(results, option):
    return [
        (said[option], {name: array for name, array in model.items() if name.startswith(option + "/")})
        for said, model in results
    ]


@pytest.mark.parametrize("option", OPTIONS)
def test_the_sites_stay_the_same(results, option):
    (_, first), (_, second) = of(results[1], option)
    for name, array in first.items():
        assert np.array_equal(array, second[name]), name


@pytest.mark.parametrize("option", ["none", "zeros", "view", "dead", "scaled"])
def test_they_are_what_plain_ddp_makes(results, option):
    """Not of "more": what a pass without a reduction used, and the one after it did not, plain DDP leaves different at its ranks."""
    ((plain, expected), _), sites = of(results[0], option), of(results[1], option)
    for said, model in sites:
        assert said == plain
        for name, array in expected.items():
            np.testing.assert_allclose(model[name], array, rtol=1e-5, atol=1e-6, err_msg=name)


def test_what_the_passes_were_like(results):
    said = results[0][0][0]
    assert said["none"][0] == [f"experts.{number}.{kind}" for number in (2, 3) for kind in ("weight", "bias")]
    assert "experts.1.weight" not in said["dead"][0], "where it is used its gradient is zero"
    assert said["scaled"] == [[True, False, True, False, False, False], 2.0**14]
