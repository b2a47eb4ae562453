"""Handwritten digits with DistributedDataParallel: two sites, two ranks each, one mean gradient a step.

    python3 examples/pytorch/digits_ddp.py [steps]

The ranks of a site share a process group of their own (Gloo); between the sites the gradients go through the
federation. The loss is scaled as in mixed precision: the hook is told the scaler and sends unscaled gradients.
"""

import multiprocessing
import sys
import tempfile

import torch
from digits_cnn import BATCH, cnn, images
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import fluvial
import fluvial.torch

SITES, RANKS, HELD_BACK = 2, 2, 360


class Scaler:
    """For processors what torch.cuda.amp.GradScaler() is for GPUs: a step whose scaled gradients overflow is skipped."""

    def __init__(self):
        self.factor = 2.0**16

    def get_scale(self):
        return self.factor

    def scale(self, loss):
        return loss * self.factor

    def step(self, optimizer):
        gradients = [parameter.grad.div_(self.factor) for group in optimizer.param_groups for parameter in group["params"]]
        self.overflows = not all(gradient.isfinite().all() for gradient in gradients)
        if not self.overflows:
            optimizer.step()

    def update(self):
        self.factor *= 0.5 if self.overflows else 1


def train(socket, store, rank, share, steps, results):
    torch.set_num_threads(1)
    torch.distributed.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=RANKS)
    x, y = (data[HELD_BACK + share :: SITES * RANKS] for data in images())
    model = cnn()  # the same at every site: the seed is fixed
    ddp = DistributedDataParallel(model)
    site = fluvial.connect(socket)
    scaler = Scaler()
    ddp.register_comm_hook(None, fluvial.torch.ddp_hook(site, "gradients", model, samples=BATCH, scaler=scaler))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    generator = torch.Generator().manual_seed(share)
    for _ in range(steps):
        batch = torch.randint(len(y), (BATCH,), generator=generator)
        optimizer.zero_grad()
        scaler.scale(nn.functional.cross_entropy(ddp(x[batch]), y[batch])).backward()
        scaler.step(optimizer)
        scaler.update()
    results.put((share, [parameter.detach().numpy() for parameter in model.parameters()]))
    torch.distributed.destroy_process_group()


def main(steps):
    results = multiprocessing.Queue()
    with fluvial.testing.LocalFederation(SITES, workers=RANKS) as federation, tempfile.TemporaryDirectory() as folder:
        workers = []
        for share in range(SITES * RANKS):
            site, rank = divmod(share, RANKS)
            place = federation.worker_socket(site), f"{folder}/site-{site}"
            workers.append(multiprocessing.Process(target=train, args=(*place, rank, share, steps, results)))
            workers[-1].start()
        federation.start_run("gradients", fluvial.torch.zeros_like(cnn()), rounds=steps, optimizer="mean", plan=PLAN)
        federation.wait("gradients", progress=10)
        trained = [parameters for _, parameters in (results.get() for _ in workers)]
        [worker.join() for worker in workers]
    same = all((a == b).all() for parameters in trained[1:] for a, b in zip(trained[0], parameters))
    model = cnn()
    with torch.no_grad():
        [parameter.copy_(torch.from_numpy(value)) for parameter, value in zip(model.parameters(), trained[0])]
        x, y = images()
        accuracy = (model(x[:HELD_BACK]).argmax(1) == y[:HELD_BACK]).float().mean().item()
    print(f"{steps} steps, accuracy on {HELD_BACK} images that no site has: {100 * accuracy:.1f} %")
    print(f"the four copies are {'the same, bit for bit' if same else 'different'}")


PLAN = {"deadlines": {"soft_ms": 60_000, "adaptive": False, "hard_ms": 120_000}}  # no step without a site

if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 60)
