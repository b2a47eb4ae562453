"""A plan's `down`: what a worker trains from is what the sent bytes decode to; what people get is the master."""

import numpy as np
import pytest

import fluvial

START = {"w": np.linspace(-1, 1, 500).astype(np.float32)}
STEP = np.full(500, 0.00123, np.float32)


@pytest.fixture
def small():
    with fluvial.testing.LocalFederation(sites=1) as local:
        yield local


def train(federation, **about):
    """Two rounds; the models that the worker was given."""
    federation.start_run("run", START, rounds=2, **about)
    given = []
    with federation.connect(0) as site:
        for round in site.rounds("run"):
            given.append(round.arrays()["w"].copy())
            round.submit_update({"w": STEP}, samples=1)
    federation.wait("run", timeout_s=60)
    return given


def bf16(values):
    """The nearest of 8 bits of precision, of two the even one."""
    bits = values.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000).view(np.float32)


def test_rounded_models_are_trained_from_and_the_master_is_not_rounded(small):
    first, second = train(small, down="bf16")
    np.testing.assert_array_equal(first, START["w"])  # a run's initial model travels whole
    np.testing.assert_array_equal(second, bf16(START["w"] - STEP))
    master = START["w"] - STEP - STEP
    np.testing.assert_allclose(small.model("run")["w"], master, rtol=0, atol=1e-7)
    assert not np.array_equal(bf16(master), master)


def test_a_difference_reaches_the_worker(small):
    _, second = train(small, down="delta:fp16")
    np.testing.assert_allclose(second, START["w"] - STEP, rtol=0, atol=1e-6)


def test_what_cannot_go_down_is_refused_with_what_can(small):
    with pytest.raises(fluvial.FederationFailed, match="as in delta:int8"):
        small.start_run("run", START, down="delta:qsgd")


# ---- a loop of its own: int8 up and a difference of int8 down, drawn by the plan's seed ---------------------------------

WORD = np.uint64(0xFFFFFFFF)


def mix(z):
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
    return z ^ (z >> 31)


def name_number(name):
    """The lower half of SplitMix64's first number from FNV-1a of a site's name; of the model on its way down it is empty."""
    number = 0xCBF29CE484222325
    for byte in name.encode():
        number = ((number ^ byte) * 0x100000001B3) % 2**64
    return mix((number + 0x9E3779B97F4A7C15) % 2**64) % 2**32


def random_bits(seed, round, name, count):
    """Philox4x32-10, 16 bits a coordinate (docs/formats/codecs.md)."""
    key = mix((mix((seed + 0x9E3779B97F4A7C15) % 2**64) + name_number(name)) % 2**64)
    keys = [key & 0xFFFFFFFF, key >> 32]
    at = np.arange(count, dtype=np.uint64)
    words = [8 * (at // 64) + at % 32 // 4, np.zeros(count, np.uint64), np.full(count, round, np.uint64), np.zeros(count, np.uint64)]
    for _ in range(10):
        low, high = words[0] * np.uint64(0xD2511F53), words[2] * np.uint64(0xCD9E8D57)
        words = [high >> np.uint64(32) ^ words[1] ^ np.uint64(keys[0]), high & WORD, low >> np.uint64(32) ^ words[3] ^ np.uint64(keys[1]), low & WORD]
        keys = [(keys[0] + 0x9E3779B9) % 2**32, (keys[1] + 0xBB67AE85) % 2**32]
    word = np.choose((2 * (at % 64 // 32) + 1 - at % 4 // 2).astype(int), words)
    return np.where(at % 2 == 0, word & np.uint64(0xFFFF), word >> np.uint64(16)).astype(np.int64)


def int8(values, bits, block=256):
    """What a vector's stochastic int8 decodes to."""
    out = np.empty_like(values)
    for begin in range(0, len(values), block):
        some = values[begin : begin + block]
        scale = np.abs(some).max() / np.float32(127)
        units = np.rint(some * (np.float32(2**14) / scale)).astype(np.int64)
        out[begin : begin + block] = (units + (bits[begin : begin + block] >> 2) >> 14).astype(np.float32) * scale
    return out


def update_of(values, site, number):
    """What a site finds, from the model that it trains from."""
    return (values * np.float32(0.1) + np.float32(0.01 * (site + 1)) * np.sin(np.arange(values.size, dtype=np.float32) * number)).astype(np.float32)


def by_hand(seed, rounds, names):
    master = trained = START["w"]
    residuals = [np.zeros_like(master) for _ in names]
    masters = []
    for number in range(1, rounds + 1):
        total = np.zeros(master.size, np.int64)
        for site, name in enumerate(names):
            whole = update_of(trained, site, number) + residuals[site]
            sent = int8(whole, random_bits(seed, number, name, whole.size))
            residuals[site] = whole - sent
            total += np.rint(sent.astype(np.float64) * ((site + 1) * 2.0**24)).astype(np.int64)
        mean = (total.astype(np.float64) * 2.0**-24 / 3).astype(np.float32)
        master = (master.astype(np.float64) - mean.astype(np.float64)).astype(np.float32)
        trained = trained + int8(master - trained, random_bits(seed, number, "", master.size))
        masters.append(master)
    return masters


def test_the_same_plan_twice_comes_to_the_same_models_as_a_loop_in_numpy():
    rounds = 4
    with fluvial.testing.LocalFederation(sites=2) as federation:
        for name, seed in [("first", 7), ("again", 7), ("other", 8)]:  # the journal numbers them 1, 2 and 3
            plan = {"seed": seed, "fraction_bits": 24, "value_abs_max": 64}
            federation.start_run(name, START, rounds=rounds, codec="int8", down="delta:int8", plan=plan)

            def worker(site, index):
                for round in site.rounds(name):
                    round.submit_update({"w": update_of(round.arrays()["w"], index, round.number)}, samples=index + 1)

            federation.train(worker)
            federation.wait(name, timeout_s=60)
            for number, master in enumerate(by_hand(seed, rounds, federation.sites), 1):
                np.testing.assert_array_equal(federation.model(name, number)["w"], master, err_msg=f"{name}, round {number}")
    assert not np.array_equal(by_hand(7, rounds, federation.sites)[-1], by_hand(8, rounds, federation.sites)[-1])
