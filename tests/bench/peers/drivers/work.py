"""The work that every peer does: site s returns, in round r (1, 2, ...), model + noise_s * (1 + r / 8).

The noise is random, another for each site, and made before anything is measured: a round costs a site one pass over
the model. So no two tensors of a run are the same, and the model after R rounds is known beforehand.
"""

import json
import os
import subprocess
import sys
import time

import numpy

CHECKED = 1000  # coordinates of the last model


def read_task():
    with open(sys.argv[1], encoding="utf-8") as file:
        task = json.load(file)
    os.chdir(task["folder"])
    return task


def prepare(task):
    random = numpy.random.default_rng(1)
    numpy.save("initial.npy", random.standard_normal(task["params"], dtype=numpy.float32))
    for site in range(task["sites"]):
        numpy.save(f"noise-{site}.npy", random.standard_normal(task["params"], dtype=numpy.float32))


def update(folder, site, round_number, model):
    noise = numpy.load(os.path.join(folder, f"noise-{site}.npy"), mmap_mode="r")
    local = numpy.multiply(noise, numpy.float32(1 + round_number / 8))
    local += model
    return local


def scale(task):
    """How often the noise is in the last model."""
    return sum(1 + r / 8 for r in range(1, task["rounds"] + 1))


def expected(task):
    model = numpy.load("initial.npy", mmap_mode="r")[:CHECKED].astype(numpy.float64)
    noise = sum(numpy.load(f"noise-{s}.npy", mmap_mode="r")[:CHECKED].astype(numpy.float64) for s in range(task["sites"]))
    return model + noise / task["sites"] * scale(task)


def finish(task, model, **details):
    """Writes the outcome; the process ends with an error when `model` is not the mean that was expected."""
    found = numpy.asarray(model).reshape(-1)[:CHECKED]
    worst = float(numpy.max(numpy.abs(found - expected(task)[: len(found)])))
    if not worst < 1e-4 * scale(task):  # each round rounds to fp32 once or twice
        sys.exit(f"the last model is not the mean of what was sent: off by {worst}")
    write_outcome(checked=True, **details)


def write_outcome(**outcome):
    with open("outcome.json", "w", encoding="utf-8") as file:
        json.dump(outcome, file)


def mark(folder, moment=None):
    """A round's result is there, now or at `moment` of time.monotonic()."""
    with open(os.path.join(folder, "marks"), "a", encoding="utf-8") as file:
        file.write(f"{time.monotonic() if moment is None else moment:.6f}\n")


def start(role, arguments, log, **environment):
    """A process of the peer. Its output goes to `log`, in the work folder."""
    with open(log, "ab") as output:
        return subprocess.Popen([str(argument) for argument in arguments], stdin=subprocess.DEVNULL, stdout=output,
                                stderr=output, env=os.environ | {"FLUVIAL_ROLE": role} | environment)


def wait_all(running, limit_s):
    """Until each has ended well."""
    end = time.monotonic() + limit_s
    for process in running:
        if process.wait(max(0.1, end - time.monotonic())) != 0:
            sys.exit(f"{process.args[0]} ended with status {process.returncode}")


def until(what, limit_s, done):
    """Asks `done` ten times a second until it is true."""
    end = time.monotonic() + limit_s
    while not done():
        if time.monotonic() > end:
            sys.exit(f"{what}: not after {limit_s} s")
        time.sleep(0.1)


def make_certificates(folder):
    """A certificate authority and one certificate for servers and clients on this machine: ca.crt, node.crt, node.key."""
    os.makedirs(folder, exist_ok=True)

    def openssl(*arguments):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    with open(os.path.join(folder, "names"), "w", encoding="utf-8") as file:
        file.write("subjectAltName=DNS:localhost,IP:127.0.0.1\n")
    key = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")
    openssl("req", "-x509", *key, "-days", "2", "-subj", "/CN=bench authority", "-keyout", "ca.key", "-out", "ca.crt")
    openssl("req", *key, "-subj", "/CN=localhost", "-keyout", "node.key", "-out", "node.csr")
    openssl("x509", "-req", "-days", "2", "-in", "node.csr", "-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial",
            "-extfile", "names", "-out", "node.crt")
