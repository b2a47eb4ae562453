"""A rank of an all-reduce: all_reduce.py FOLDER DRIVERS gloo|mpi. The work is that of drivers/work.py."""

import json
import sys

import numpy

FOLDER, DRIVERS, BACKEND = sys.argv[1:4]
sys.path.insert(0, DRIVERS)
import work  # noqa: E402


def gloo():
    import datetime
    import torch
    import torch.distributed as distributed

    distributed.init_process_group("gloo", init_method="env://", timeout=datetime.timedelta(minutes=10))
    def end():
        distributed.barrier()  # who leaves earlier breaks the others' connections
        distributed.destroy_process_group()

    return distributed.get_rank(), lambda values: distributed.all_reduce(torch.from_numpy(values)), end


def mpi():
    from mpi4py import MPI

    world = MPI.COMM_WORLD
    return world.Get_rank(), lambda values: world.Allreduce(MPI.IN_PLACE, values, op=MPI.SUM), world.Barrier


def main():
    with open(FOLDER + "/task.json", encoding="utf-8") as file:
        task = json.load(file)
    rank, sum_in_place, end = gloo() if BACKEND == "gloo" else mpi()
    model = numpy.load(FOLDER + "/initial.npy")
    for round_number in range(1, task["rounds"] + 1):
        model = work.update(FOLDER, rank, round_number, model)
        sum_in_place(model)
        model *= numpy.float32(1 / task["sites"])
        if rank == 0:
            work.mark(FOLDER)
    if rank == 0:
        numpy.save(FOLDER + "/final.npy", model[: work.CHECKED])
    end()


main()
