"""A character-level transformer, trained by a federation of two sites that hold different texts.

    python3 examples/pytorch/characters.py [rounds]

The sites take local AdamW steps and the server Nesterov's on what changed (DiLoCo, Douillard et al. 2023; less momentum
than its 0.9, for so few rounds). The inner optimizer stays at its site; nothing but the model travels.
"""

import multiprocessing
import pathlib
import sys

import torch
from torch import nn

import fluvial

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = ["LICENSE", "docs/design/exactly-once.md"]  # one a site
LENGTH, WIDTH, BATCH = 48, 64, 16
SERVER = "nesterov:lr=0.5,momentum=0.7"


def text(index):
    return torch.tensor([min(ord(letter), 127) for letter in (ROOT / TEXTS[index]).read_text("utf-8")])


class Characters(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.letters, self.places = nn.Embedding(128, WIDTH), nn.Embedding(LENGTH, WIDTH)
        layer = nn.TransformerEncoderLayer(WIDTH, 4, 4 * WIDTH, dropout=0.0, batch_first=True, norm_first=True)
        self.layers = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.out = nn.Linear(WIDTH, 128, bias=False)
        self.out.weight = self.letters.weight  # tied: travels once

    def forward(self, x):
        future = torch.full((x.shape[1], x.shape[1]), float("-inf"), device=x.device).triu(diagonal=1)
        return self.out(self.layers(self.letters(x) + self.places.weight[: x.shape[1]], mask=future))


def loss_of(model, source, generator):
    starts = torch.randint(len(source) - LENGTH, (BATCH,), generator=generator).tolist()
    batch = torch.stack([source[start : start + LENGTH + 1] for start in starts])
    return nn.functional.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def train(socket, index, seed=0):
    torch.set_num_threads(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"  # on a GPU, results stay there for the agent
    model, source = Characters().to(device), text(index).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    for round in fluvial.connect(socket).rounds("characters"):
        round.load_into(model)
        generator = torch.Generator().manual_seed(1000 * seed + round.number)
        for _ in range(round.local_steps):
            loss = loss_of(model, source, generator)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        round.submit(model, samples=len(source), metrics={"loss": loss.item()})


def main(rounds):
    with fluvial.testing.LocalFederation(sites=len(TEXTS)) as federation:
        workers = [multiprocessing.Process(target=train, args=(federation.worker_socket(i), i)) for i in range(2)]
        [worker.start() for worker in workers]
        federation.start_run("characters", Characters(), rounds=rounds, local_steps=10, codec="bf16", optimizer=SERVER)
        federation.wait("characters", progress=True)
        model = Characters()
        fluvial.load_arrays(model, federation.model("characters"))
        [worker.join() for worker in workers]
    with torch.no_grad():
        losses = [loss_of(model, text(index), torch.Generator().manual_seed(0)).item() for index in range(2)]
    print(f"{rounds} rounds, nats a letter: " + ", ".join(f"{t} {loss:.2f}" for t, loss in zip(TEXTS, losses)))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 15)
