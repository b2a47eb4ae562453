"""Handwritten digits and a small CNN, trained by a federation of four sites on this machine.

    python3 examples/pytorch/digits_cnn.py [rounds]

Each site is a process of its own and sees its own images; what a script for a real site needs is train() alone.
"""

import gzip
import multiprocessing
import pathlib
import sys

import numpy as np
import torch
from torch import nn

import fluvial

DATA = pathlib.Path(__file__).resolve().parents[1] / "digits" / "digits.csv.gz"
SITES, BATCH = 4, 32


def images():
    with gzip.open(DATA, "rt") as file:
        table = np.loadtxt(file, delimiter=",", dtype=np.float32)
    x, y = torch.from_numpy(table[:, :64]).reshape(-1, 1, 8, 8) / 16, torch.from_numpy(table[:, 64]).long()
    order = torch.randperm(len(y), generator=torch.Generator().manual_seed(1))
    return x[order], y[order]


def cnn():
    torch.manual_seed(1)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(512, 10),
    )  # fmt: skip


def train(socket, site_index):
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"  # on a GPU, results stay there for the agent
    x, y = (data[360 + site_index :: SITES].to(device) for data in images())
    model = cnn().to(device)
    site = fluvial.connect(socket)
    for round in site.rounds("digits"):
        round.load_into(model)
        optimizer = torch.optim.SGD(model.parameters(), lr=round.parameters["learning_rate"], momentum=0.9)
        generator = torch.Generator().manual_seed(round.number * SITES + site_index)
        for _ in range(round.local_steps):
            batch = torch.randint(len(y), (BATCH,), generator=generator)
            loss = nn.functional.cross_entropy(model(x[batch]), y[batch])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        round.submit(model, samples=len(y), metrics={"loss": loss.item()})


def main(rounds):
    with fluvial.testing.LocalFederation(sites=SITES, aggregators=2) as federation:
        workers = [multiprocessing.Process(target=train, args=(federation.worker_socket(i), i)) for i in range(SITES)]
        for worker in workers:
            worker.start()
        federation.start_run("digits", cnn(), rounds=rounds, codec="int8", local_steps=8, worker={"learning_rate": 0.1})
        federation.wait("digits", progress=True)
        model = cnn()
        fluvial.load_arrays(model, federation.model("digits"))
        for worker in workers:
            worker.join()
    x, y = images()
    with torch.no_grad():
        accuracy = (model(x[:360]).argmax(1) == y[:360]).float().mean().item()
    print(f"{rounds} rounds, accuracy on 360 images that no site has: {100 * accuracy:.1f} %")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
