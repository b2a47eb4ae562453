"""The peers: how each is installed, started, and what its row says."""

import os

import install


class Peer:
    """`title` and `security` stand in the table; `settings` goes into the task that the driver reads.

    `rounds_per_s` of a quick peer, roughly, with 1 M parameters: it is measured over more rounds, so that samples tell.
    """

    def __init__(self, title, security, driver, installer, has_server=True, rounds_per_s=0, **settings):
        self.title, self.security, self.driver, self.rounds_per_s = title, security, driver, rounds_per_s
        self.installer, self.has_server, self.settings = installer, has_server, settings

    def rounds(self, asked, params):
        """At least as many as asked, and for about three seconds, but no more than 400 for that."""
        return max(asked, min(400, round(3 * self.rounds_per_s * 10**6 / params)))


PEERS = {
    "fluvial": Peer("Fluvial", "mTLS, durable", "fluvial", None, rounds_per_s=10, codec="fp32", down=""),
    "flower": Peer("Flower", "TLS", "flower", install.flower),
    "nvflare": Peer("NVIDIA FLARE, provisioned", "mTLS", "nvflare", install.nvflare, simulator=False, poll_s=None),
    "nvflare-fast": Peer("NVIDIA FLARE, provisioned, asks every 0.1 s", "mTLS", "nvflare", install.nvflare, simulator=False,
                         poll_s=0.1),
    "nvflare-simulator": Peer("NVIDIA FLARE's simulator", "plaintext", "nvflare", install.nvflare, has_server=False,
                              simulator=True, poll_s=None),
    "grpc": Peer("gRPC, C++, a server that sums", "mTLS", "grpc", install.grpc, rounds_per_s=60),
    "gloo": Peer("Gloo, all-reduce", "plaintext", "collective", install.gloo, has_server=False, rounds_per_s=60, backend="gloo"),
    "mpi": Peer("MPI, all-reduce over TCP", "plaintext", "collective", install.mpi, has_server=False, rounds_per_s=400,
                backend="mpi"),
}


def fluvial_with(codecs):
    """The peers, with a row of Fluvial for each of `codecs`: CODEC, or CODEC/DOWN with the plan's key `down`."""
    rows = {}
    for text in codecs:
        codec, _, down = text.partition("/")
        plain = text == "fp32"
        title = "Fluvial" if plain else f"Fluvial, {codec} up, {down or 'fp32'} down"
        rows["fluvial" if plain else f"fluvial {text}"] = Peer(
            title, "mTLS, durable", "fluvial", None, rounds_per_s=10, codec=codec, down=down)
    return rows | {name: peer for name, peer in PEERS.items() if name != "fluvial"}


def installed(name, fluvial, folder, here):
    """What the driver needs to know of where the peer is. Raises install.NotHere."""
    if name.startswith("fluvial"):
        if not os.access(fluvial, os.X_OK):
            raise install.NotHere(f"no executable {fluvial} (./dev build makes it; --fluvial names another)")
        return {"bin": os.path.dirname(fluvial), "python": install.PYTHON, "fluvial": fluvial, "version": version(fluvial)}
    return PEERS[name].installer(folder, os.path.join(here, "apps"))


def version(fluvial):
    import subprocess

    ran = subprocess.run([fluvial, "--version"], stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return ran.stdout.strip().splitlines()[0] if ran.returncode == 0 and ran.stdout.strip() else "fluvial"
