"""Late is next, against an independent loop: each committed model from what the sites trained, in numpy."""

import threading

import numpy as np

import fluvial
from test_federation import in_threads

ROUNDS = 8
SAMPLES = (3, 5, 4)
FACTORS = (512, 362, 296, 256)  # of 512, by how many rounds late; for staleness_power = 0.5


def trained(site, number):
    """What the site adds to its base in the round of this number."""
    return np.random.default_rng(100 * site + number).uniform(-1, 1, 40).astype(np.float32)


def test_each_committed_model_is_what_a_loop_makes_of_updates_that_missed_their_rounds():
    start = np.random.default_rng(7).standard_normal(40).astype(np.float32)
    plan = {"late": "next", "staleness_max": 3, "deadlines": {"soft_ms": 500, "adaptive": False}}
    with fluvial.testing.LocalFederation(sites=3, aggregators=1) as local:
        local.start_run("late", {"w": start}, rounds=ROUNDS, participants=2, plan=plan)
        begun, newest = threading.Condition(), [0]

        def work(index):
            with local.connect(index) as site:
                for round in site.rounds("late"):
                    base = round.arrays()["w"]
                    with begun:
                        newest[0] = max(newest[0], round.number)
                        begun.notify_all()
                        if index == 2:  # always two rounds behind the others
                            begun.wait_for(lambda: newest[0] >= min(round.number + 2, ROUNDS))
                    round.submit({"w": base + trained(index, round.number)}, samples=SAMPLES[index])

        in_threads(3, work)
        local.wait("late", timeout_s=60)
        rounds = local.rounds("late")
        late = 0
        for number, round in enumerate(rounds, start=1):
            moved, samples = np.zeros(40), 0
            for site in round["contributors"]:
                index = int(site["name"].split("-")[1]) - 1
                factor = FACTORS[site["staleness"]] / 512
                late += site["staleness"] > 1
                moved += SAMPLES[index] * factor * trained(index, number - site["staleness"])
                samples += SAMPLES[index]
            expected = local.model("late", number - 1)["w"] + moved / samples
            np.testing.assert_allclose(local.model("late", number)["w"], expected, rtol=0, atol=2e-6)
        assert late >= 2, "or nothing was shown"
