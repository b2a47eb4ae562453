#!/usr/bin/env python3
"""asynchrony.py [--training-s S] [--minutes M] [--seed N] [--json FILE]: seconds to the same loss, by real processes.

Ten sites below two aggregators, each a process of its own on this machine; one of them trains for five times as long as the
others. The training is that of `fluvial bench asynchrony` (a softmax regression of 210 values), made longer by sleeping, so the
processor is idle and time is what it costs to wait. The same modes, one run after the other. Needs the Python package on
PYTHONPATH and the executable in FLUVIAL_EXECUTABLE.
"""

import argparse
import datetime
import json
import sys
import threading
import time

import fluvial
import numpy as np

SITES, AGGREGATORS, CLASSES, FEATURES, SLOW = 10, 2, 10, 20, 9
STEPS, BATCH, RATE, CLOSED = 10, 20, 0.1, 0.9


def softmax(scores):
    scores = np.exp(scores - scores.max(axis=1, keepdims=True))
    return scores / scores.sum(axis=1, keepdims=True)


def loss(model, features, classes):
    chances = softmax(features @ model["weight"].T + model["bias"])
    return float(-np.log(chances[np.arange(len(classes)), classes] + 1e-12).mean())


def gradient(model, features, classes):
    error = softmax(features @ model["weight"].T + model["bias"])
    error[np.arange(len(classes)), classes] -= 1
    return {"weight": error.T @ features / len(classes), "bias": error.mean(axis=0)}


def data_of(seed):
    """Each site's points: its own mix of the classes, all shifted in its own direction."""
    centres = np.random.default_rng(seed).normal(0, 0.7, (CLASSES, FEATURES))
    sites = []
    for site in range(SITES):
        rng = np.random.default_rng([seed, site])
        shares = np.exp(rng.normal(0, 1.5, CLASSES))
        shift = rng.normal(0, 0.5, FEATURES)
        classes = rng.choice(CLASSES, rng.integers(100, 300), p=shares / shares.sum())
        features = centres[classes] + shift + rng.normal(0, 1, (len(classes), FEATURES))
        sites.append((features, classes))
    return sites


def empty():
    return {"weight": np.zeros((CLASSES, FEATURES), np.float32), "bias": np.zeros(CLASSES, np.float32)}


def least_loss(features, classes):
    model, speed = empty(), empty()
    for _ in range(300):
        slope = gradient(model, features, classes)
        for name in model:
            speed[name] = 0.9 * speed[name] + slope[name]
            model[name] = model[name] - 0.3 * speed[name]
    return loss(model, features, classes)


def modes(training_s):
    """Names and what a plan says, as `fluvial bench asynchrony` has them."""
    usual = {"soft_ms": int(1500 * training_s * 2), "hard_ms": int(6000 * training_s), "soft_min_ms": int(500 * training_s)}
    patient = {"soft_ms": int(15000 * training_s), "hard_ms": int(30000 * training_s), "adaptive": False}
    windows = {"mode": "async", "staleness_max": 16, "deadlines": usual, "participants": {"quorum": 1}}
    half = SITES // 2
    return {
        "rounds": {"deadlines": usual, "participants": {"quorum": half}},
        "rounds, all awaited": {"deadlines": patient},
        "late is next": {"deadlines": usual, "participants": {"quorum": half}, "late": "next", "staleness_max": 5},
        f"windows, goal {half}": {**windows, "async": {"goal": half}},
        f"windows, goal {half}, fair": {**windows, "async": {"goal": half, "fairness": "rate"}},
        "windows, goal 1": {**windows, "async": {"goal": 1}, "optimizer": {"learning_rate": 0.6}},
    }


def train(federation, run, site, points, training_s):
    features, classes = points
    rng = np.random.default_rng(site)
    slowness = 5 if site == SLOW else 1
    with fluvial.connect(federation.worker_socket(site)) as worker:
        for round in worker.rounds(run):
            model = {name: np.array(values, np.float64) for name, values in round.arrays().items()}
            for _ in range(STEPS):
                some = rng.integers(0, len(classes), BATCH)
                slope = gradient(model, features[some], classes[some])
                for name in model:
                    model[name] -= RATE * slope[name]
            time.sleep(training_s * slowness * rng.uniform(0.8, 1.2))
            round.submit({name: values.astype(np.float32) for name, values in model.items()}, samples=len(classes))


def seconds_of(row):
    return datetime.datetime.fromisoformat(row["committed_at"].replace("Z", "+00:00")).timestamp()


def measure(federation, name, plan, sites, options):
    run = name.replace(" ", "-").replace(",", "")
    began = time.time()
    federation.start_run(run, empty(), rounds=100_000, plan={"models_kept": 100_000, **plan})
    threads = [
        threading.Thread(target=train, args=(federation, run, site, sites[site], options.training_s)) for site in range(SITES)
    ]
    [thread.start() for thread in threads]
    time.sleep(options.minutes * 60)
    federation.stop_run(run)
    [thread.join() for thread in threads]
    features = np.concatenate([points[0] for points in sites])
    classes = np.concatenate([points[1] for points in sites])
    rows = federation.rounds(run)
    first, least = loss(empty(), features, classes), least_loss(features, classes)
    target = first - CLOSED * (first - least)
    losses, reached = [], None
    for row in rows:
        losses.append(loss(federation.model(run, row["round"]), features, classes))
        if reached is None and losses[-1] <= target:
            reached = (seconds_of(row) - began, row["round"])
    counted = [one["name"] for row in rows for one in row["contributors"]]
    slow = counted.count(federation.sites[SLOW]) / max(1, len(counted))
    last = losses[3 * len(losses) // 4 :]
    return {
        "mode": name,
        "seconds": reached and reached[0],
        "commits": reached and reached[1],
        "all": len(rows),
        "of_slow": slow,
        "end_loss": sum(last) / max(1, len(last)),
        "least_loss": least,
    }


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--training-s", type=float, default=1, help="of a fast site, on average (%(default)s)")
    options.add_argument("--minutes", type=float, default=2, help="of each run (%(default)s)")
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--json", help="write the figures to this file")
    options = options.parse_args()
    sites = data_of(options.seed)
    found = []
    with fluvial.testing.LocalFederation(sites=SITES, aggregators=AGGREGATORS) as federation:
        print(f"{'mode':24} {'seconds':>8} {'commits':>8} {'in all':>7} {'of slow':>8} {'end loss':>9}")
        for name, plan in modes(options.training_s).items():
            figures = measure(federation, name, plan, sites, options)
            found.append(figures)
            reached = "-" if figures["seconds"] is None else f"{figures['seconds']:.1f}"
            commits = "-" if figures["commits"] is None else figures["commits"]
            print(
                f"{name:24} {reached:>8} {commits:>8} {figures['all']:7} {figures['of_slow']:8.1%} {figures['end_loss']:9.3f}",
                flush=True,
            )
        print(f"the least loss of any model: {found[0]['least_loss']:.3f}")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as out:
            json.dump(found, out, indent=1)
    return 0


if __name__ == "__main__":
    sys.exit(main())
