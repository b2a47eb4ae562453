"""An all-reduce among the sites, without a server: Gloo's through PyTorch's distributed package, or MPI's. Plaintext TCP.

No peer is a service here: no membership, no TLS, nothing durable. It is what the same sum costs on the same loopback.
"""

import os

import numpy

import work


def main():
    task = work.read_task()
    work.prepare(task)
    app = os.path.join(task["peers"], "apps", "all_reduce.py")
    drivers = os.path.join(task["peers"], "drivers")
    same = [task["python"], "-B", app, task["folder"], drivers, task["backend"]]
    if task["backend"] == "mpi":
        # Over TCP as between machines; Open MPI would take shared memory here.
        launcher = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--mca", "btl", "tcp,self", "--mca",
                    "btl_tcp_if_include", "lo", "--mca", "oob_tcp_if_include", "lo", "-n", task["sites"]]
        running = [work.start("site", launcher + same, "mpi.log")]
    else:
        running = [work.start("site", same, f"rank-{rank}.log", RANK=str(rank), WORLD_SIZE=str(task["sites"]),
                              MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", GLOO_SOCKET_IFNAME="lo", OMP_NUM_THREADS="1")
                   for rank in range(task["sites"])]
    work.wait_all(running, task["limit_s"])
    work.finish(task, numpy.load("final.npy"))


main()
