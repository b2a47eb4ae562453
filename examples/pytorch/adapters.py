"""A pretrained network that every site has, and adapters (LoRA) that alone travel.

    python3 examples/pytorch/adapters.py [rounds]

The network has learned digits 0 to 4 in one place and is frozen. The sites see all ten digits, and train rank-4 adapters beside
its layers and the last layer: 7 % of the values. Each site keeps a bias of its own, which never leaves it. Nothing but the
round's `only=` says so; the run starts from a file with these tensors alone.
"""

import multiprocessing
import sys

import torch
from digits_cnn import BATCH, SITES, images
from torch import nn

import fluvial

WIDTH, RANK, HELD_BACK = 256, 4, 360
ONLY = ["*.lora_*", "last.*"]  # what travels; `own_bias` is personal, all else is frozen


class LoRA(nn.Module):
    """y = W x + b + B A x, with W and b frozen (Hu et al., 2021, arXiv:2106.09685). B begins at 0."""

    def __init__(self, base):
        super().__init__()
        self.base = base.requires_grad_(False)
        self.lora_a = nn.Parameter(torch.randn(RANK, base.in_features) / base.in_features**0.5)
        self.lora_b = nn.Parameter(torch.zeros(base.out_features, RANK))

    def forward(self, x):
        return self.base(x) + x @ self.lora_a.T @ self.lora_b.T


class Network(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(64, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.last = nn.Linear(WIDTH, 10)
        self.own_bias = nn.Parameter(torch.zeros(10))

    def forward(self, x):
        hidden = torch.relu(self.second(torch.relu(self.first(x.flatten(1)))))
        return self.last(hidden) + self.own_bias


def steps(model, x, y, count, generator, lr):
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=lr, momentum=0.9)
    for _ in range(count):
        batch = torch.randint(len(y), (BATCH,), generator=generator)
        loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item()


def pretrained():
    """What every site downloaded once: the same bits everywhere, since the seed is fixed."""
    torch.set_num_threads(1)
    x, y = (data[HELD_BACK:] for data in images())
    network = Network()
    steps(network, x[y < 5], y[y < 5], 200, torch.Generator().manual_seed(1), lr=0.1)
    torch.manual_seed(2)
    network.first, network.second = LoRA(network.first), LoRA(network.second)
    return network


def train(socket, site_index):
    model = pretrained()
    x, y = (data[HELD_BACK + site_index :: SITES] for data in images())
    frozen = model.first.base.weight.clone()
    for round in fluvial.connect(socket).rounds("adapters"):
        round.load_into(model, only=ONLY)
        generator = torch.Generator().manual_seed(round.number * SITES + site_index)
        loss = steps(model, x, y, round.local_steps, generator, round.parameters["learning_rate"])
        round.submit(model, samples=len(y), metrics={"loss": loss}, only=ONLY)
    assert torch.equal(model.first.base.weight, frozen) and model.own_bias.abs().sum() > 0


def accuracy(model):
    x, y = images()
    with torch.no_grad():
        return (model(x[:HELD_BACK]).argmax(1) == y[:HELD_BACK]).float().mean().item()


def main(rounds):
    model = pretrained()
    before = accuracy(model)
    with fluvial.testing.LocalFederation(sites=SITES) as federation:
        workers = [multiprocessing.Process(target=train, args=(federation.worker_socket(i), i)) for i in range(SITES)]
        [worker.start() for worker in workers]
        federation.start_run(
            "adapters", model, only=ONLY, rounds=rounds, codec="int8", local_steps=8, worker={"learning_rate": 0.05}
        )
        federation.wait("adapters", progress=True)
        adapters = federation.model("adapters")
        [worker.join() for worker in workers]
    fluvial.load_arrays(model, adapters, only=ONLY)
    values, all_values = sum(array.size for array in adapters.values()), sum(p.numel() for p in model.parameters())
    print(f"{len(adapters)} tensors travelled, {values} of {all_values} values ({100 * values / all_values:.0f} %)")
    after = accuracy(model)
    print(f"{rounds} rounds, accuracy on images that no site has: {100 * before:.1f} % before, {100 * after:.1f} % after")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
