"""A plain gRPC C++ server that sums (apps/grpc), with mutual TLS."""

import os
import subprocess

import numpy

import work

PORT = 8001


def main():
    task = work.read_task()
    work.prepare(task)
    work.make_certificates("tls")
    same = [str(task["params"]), str(task["rounds"]), task["folder"]]
    server = subprocess.Popen([task["bin"] + "/grpc_server", str(PORT), "tls", str(task["sites"]), *same],
                              stdin=subprocess.PIPE, env=os.environ | {"FLUVIAL_ROLE": "server"})
    sites = [work.start("site", [task["bin"] + "/grpc_site", PORT, "tls", site, *same], f"site-{site}.log")
             for site in range(task["sites"])]
    work.wait_all(sites, task["limit_s"])
    server.stdin.close()
    work.wait_all([server], 60)
    work.finish(task, numpy.fromfile("final.f32", dtype=numpy.float32))


main()
