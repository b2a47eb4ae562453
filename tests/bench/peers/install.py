"""Where each peer is, after it was installed under build/peers if it was not there. Versions stand here alone.

NotHere carries the reason why a peer cannot be had on this machine: the table names it as not run.
"""

import hashlib
import os
import shutil
import subprocess

FLOWER = "flwr==1.41.0"
NVFLARE = "nvflare==2.9.0"
PYTHON = "/usr/bin/python3"  # the distribution's: with numpy, and PyTorch and mpi4py if they are installed


class NotHere(Exception):
    pass


def _run(arguments, what):
    """What a command prints."""
    ran = subprocess.run(arguments, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                         check=False)
    if ran.returncode != 0:
        lines = [line for line in ran.stdout.splitlines() if line.strip()]
        raise NotHere(f"{what}: {lines[-1].strip() if lines else 'failed'}")
    return ran.stdout.strip()


def _environment(folder, package):
    """The bin folder of a virtual environment with `package` (NAME==VERSION) and numpy."""
    place = os.path.join(folder, package.partition("==")[0])
    stamp = os.path.join(place, "installed")
    if not os.path.exists(stamp) or open(stamp, encoding="utf-8").read() != package:
        shutil.rmtree(place, ignore_errors=True)
        _run([PYTHON, "-m", "venv", place], "no virtual environment (Debian: python3-venv)")
        _run([place + "/bin/pip", "install", "-q", "--disable-pip-version-check", "numpy", package], f"pip install {package}")
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(package)
    return os.path.join(place, "bin")


def flower(folder, _apps):
    place = _environment(folder, FLOWER)
    return {"bin": place, "python": place + "/python", "version": FLOWER.replace("==", " ")}


def nvflare(folder, _apps):
    place = _environment(folder, NVFLARE)
    return {"bin": place, "python": place + "/python", "version": NVFLARE.replace("==", " ")}


def grpc(folder, apps):
    """Builds apps/grpc; its sources are two files, so there is no build system."""
    for tool in ("pkg-config", "protoc", "grpc_cpp_plugin"):
        if not shutil.which(tool):
            raise NotHere(f"no {tool} (Debian: libgrpc++-dev, protobuf-compiler-grpc, pkg-config)")
    version = _run(["pkg-config", "--modversion", "grpc++"], "no gRPC for C++ (Debian: libgrpc++-dev)")
    flags = _run(["pkg-config", "--cflags", "--libs", "grpc++", "protobuf"], "pkg-config grpc++").split()
    compiler = shutil.which("clang++-19") or shutil.which("g++") or shutil.which("c++")
    if not compiler:
        raise NotHere("no C++ compiler")
    place, source = os.path.join(folder, "grpc"), os.path.join(apps, "grpc")
    root = os.path.abspath(os.path.join(apps, "../../../.."))
    stamp, state = os.path.join(place, "installed"), _digest(source) + f" {compiler} {version}"
    if not os.path.exists(stamp) or open(stamp, encoding="utf-8").read() != state:
        os.makedirs(place, exist_ok=True)
        plugin = shutil.which("grpc_cpp_plugin")
        _run(["protoc", "-I", source, "--cpp_out", place, "--grpc_out", place, f"--plugin=protoc-gen-grpc={plugin}",
              source + "/sum.proto"], "protoc")
        generated = [place + "/sum.pb.cc", place + "/sum.grpc.pb.cc"]
        for name in ("server", "site"):
            _run([compiler, "-std=c++20", "-O3", "-march=native", "-I", place, "-I", root, f"{source}/{name}.cc",
                  *generated, *flags, "-lpthread", "-o", f"{place}/grpc_{name}"], f"building apps/grpc/{name}.cc")
        with open(stamp, "w", encoding="utf-8") as file:
            file.write(state)
    return {"bin": place, "python": PYTHON, "version": f"gRPC {version}"}


def _digest(folder):
    """Of all files of a folder."""
    content = hashlib.sha256()
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            content.update(name.encode() + b"\0" + file.read())
    return content.hexdigest()


def gloo(_folder, _apps):
    version = _run([PYTHON, "-c", "import torch.distributed, torch; print(torch.__version__)"], "no PyTorch (Debian: python3-torch)")
    return {"bin": "", "python": PYTHON, "version": f"PyTorch {version}"}


def mpi(_folder, _apps):
    if not shutil.which("mpirun"):
        raise NotHere("no mpirun (Debian: openmpi-bin)")
    version = _run([PYTHON, "-c", "import mpi4py; print(mpi4py.__version__)"], "no mpi4py (Debian: python3-mpi4py)")
    return {"bin": "", "python": PYTHON, "version": f"{_run(['mpirun', '--version'], 'mpirun').splitlines()[0]}, mpi4py {version}"}
