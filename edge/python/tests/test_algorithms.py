"""FedProx, SCAFFOLD and DiLoCo: what they compute, by hand, and in a federation."""

import numpy as np
import pytest

import fluvial
from fake_agent import FakeAgent
from test_federation import in_threads

RATE = 0.1


def start(seed=1):
    rng = np.random.default_rng(seed)
    return {"w": rng.standard_normal(6).astype(np.float32), "seen": np.array([0], np.int64)}


class Quadratic:
    """Half the squared distance to an optimum of the site's own: gradients that differ between sites."""

    def __init__(self, index):
        self.target = np.random.default_rng(100 + index).standard_normal(6).astype(np.float32)

    def gradient(self, model):
        return {"w": model["w"] - self.target}


def descend(model, gradient):
    model["w"] -= np.float32(RATE) * gradient["w"]


def test_fedprox_adds_the_proximal_term(tmp_path):
    with FakeAgent(tmp_path / "a", start()) as agent:
        agent.task(1, start(2))
        prox = fluvial.FedProx(mu=0.25)
        model = start(3)
        prox.begin(next(agent.rounds), model)
        assert np.array_equal(model["w"], start(2)["w"])
        model["w"] += 2
        gradient = {"w": np.ones(6, np.float32)}
        prox.correct(model, gradient)
        np.testing.assert_allclose(gradient["w"], 1.5, rtol=1e-6)
    with pytest.raises(ValueError, match="mu is -1"):
        fluvial.FedProx(-1)


def test_fedprox_and_scaffold_change_the_gradients_of_torch_modules(tmp_path):
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    model = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.BatchNorm1d(2)).to(torch.float64)
    initial = fluvial.Scaffold.model(model)
    assert [name for name in initial if name.startswith("control/")] == [
        "control/0.weight", "control/0.bias", "control/1.weight", "control/1.bias",
    ]  # fmt: skip
    with FakeAgent(tmp_path / "a", initial) as agent:
        agent.task(1, {**initial, "control/0.weight": np.full((2, 3), 0.5)})
        scaffold, prox = fluvial.Scaffold(learning_rate=RATE), fluvial.FedProx(2)
        round = next(agent.rounds)
        scaffold.begin(round, model)
        for _ in range(2):
            model(torch.ones(4, 3, dtype=torch.float64)).sum().backward()
            for parameter in model.parameters():
                parameter.grad.fill_(1)
            scaffold.correct(model)
            assert torch.allclose(model[0].weight.grad, torch.full((2, 3), 1.5, dtype=torch.float64))
            torch.optim.SGD(model.parameters(), RATE).step()
        scaffold.submit(round, model, samples=1)
        agent.receive()
        # (x - y) / (K eta) is the mean corrected gradient, 1.5; so c_i' = 0 - 0.5 + 1.5
        np.testing.assert_allclose(agent.result_arrays()["control/0.weight"], 1.5, rtol=1e-5)
        np.testing.assert_allclose(agent.result_arrays()["control/1.bias"], 1.0, rtol=1e-5)
    with FakeAgent(tmp_path / "b", fluvial.models.to_arrays(model)) as agent:
        agent.task(1, fluvial.models.to_arrays(model))
        prox.begin(next(agent.rounds), model)
        with torch.no_grad():
            model[0].bias += 0.5
        model[0].bias.grad.fill_(1)
        prox.correct(model)
        assert torch.allclose(model[0].bias.grad, torch.full((2,), 2.0, dtype=torch.float64))


@pytest.fixture
def three():
    with fluvial.testing.LocalFederation(sites=3) as local:
        yield local


def test_fedprox_with_mu_0_is_fedavg_bit_for_bit(three):
    committed = {}
    for name, mu in (("plain", None), ("zero", 0.0), ("pulled", 0.5)):
        three.start_run(name, start(), rounds=3, local_steps=4)

        def train(index):
            prox = fluvial.FedProx(mu or 0.0)
            problem, model = Quadratic(index), start()
            with three.connect(index) as site:
                for round in site.rounds(name):
                    round.load_into(model) if mu is None else prox.begin(round, model)
                    for _ in range(round.local_steps):
                        gradient = problem.gradient(model)
                        if mu is not None:
                            prox.correct(model, gradient)
                        descend(model, gradient)
                    round.submit(model, samples=index + 1)

        in_threads(3, train)
        committed[name] = three.model(name)["w"]
    assert np.array_equal(committed["plain"], committed["zero"])
    # By hand: a site's steps shrink the distance to a point between its optimum and the round's start.
    w = start()["w"].astype(np.float64)
    for _ in range(3):
        ends = []
        for index in range(3):
            y = w.copy()
            for _ in range(4):
                y -= RATE * (y - Quadratic(index).target + 0.5 * (y - w))
            ends.append(y)
        w = sum((index + 1) * end for index, end in enumerate(ends)) / 6
    np.testing.assert_allclose(committed["pulled"], w, rtol=0, atol=2e-6)


def scaffold_round(scaffold, problem, model, round, samples):
    scaffold.begin(round, model)
    for _ in range(round.local_steps):
        gradient = problem.gradient(model)
        scaffold.correct(model, gradient)
        descend(model, gradient)
    scaffold.submit(round, model, samples=samples)


def test_the_sum_of_control_variates_is_the_federations(tmp_path):
    """Three workers, the coordinator by hand: all count, one is late, one is refused, one process starts anew."""
    samples = np.array([1.0, 2.0, 5.0])
    c, w = np.zeros(6), start()["w"].astype(np.float64)
    workers = [fluvial.Scaffold(learning_rate=RATE) for _ in samples]
    initial = fluvial.Scaffold.model(start())
    agents = [FakeAgent(tmp_path / str(index), initial) for index in range(3)]
    residuals = {"w": np.zeros((3, 6)), "control/w": np.zeros((3, 6))}
    outcomes = [None] * 3
    all_in = ["counted"] * 3
    plan = [all_in, ["counted", "late", "counted"], all_in, ["refused", "counted", "late"], ["unused"] * 3, all_in]
    for number, fates in enumerate(plan, start=1):
        base = {"w": w, "control/w": c, "seen": np.array([0])}
        steps = {"w": np.zeros(6), "control/w": np.zeros(6)}
        for index, agent in enumerate(agents):
            if number == 4:
                state, workers[index] = workers[index].state(), fluvial.Scaffold(learning_rate=RATE)
                workers[index].restore(state)
            agent.task(number, base, previous=outcomes[index])
            round = next(agent.rounds)
            round.local_steps = 3
            scaffold_round(workers[index], Quadratic(index), start(), round, int(samples[index]))
            agent.receive()
            for name, step in steps.items():
                moved = agent.result_arrays()[name] - np.float32(base[name])
                if fates[index] == "counted":
                    step += samples[index] * (moved + residuals[name][index])
                    residuals[name][index] = 0
                elif fates[index] == "late":
                    residuals[name][index] += moved
            outcomes[index] = (number, fates[index])
        w, c = w + steps["w"] / samples.sum(), c + steps["control/w"] / samples.sum()
    for index, agent in enumerate(agents):  # what became of the last round
        agent.task(9, {"w": w, "control/w": c, "seen": np.array([0])}, previous=outcomes[index])
        workers[index].begin(next(agent.rounds), start())
        agent.close()
    own = np.array([worker.state()["own"]["w"] for worker in workers])
    np.testing.assert_allclose(samples @ own, samples.sum() * c, rtol=0, atol=1e-5)
    assert np.abs(c).max() > 0.05


def test_scaffold_in_a_federation(three):
    """Sites with optima of their own: FedAvg with many local steps stays between them, SCAFFOLD's mean is exact."""
    workers, numbers = [fluvial.Scaffold(learning_rate=RATE) for _ in range(3)], {}
    three.start_run(
        "scaffold", fluvial.Scaffold.model(start()), rounds=8, local_steps=5,
        plan={**fluvial.Scaffold.plan(3), "participants": {"quorum": 2},
              "deadlines": {"soft_ms": 50_000, "adaptive": False, "hard_ms": 60_000}},
    )  # fmt: skip

    def train(index):
        problem, model, site = Quadratic(index), start(), three.connect(index)
        for round in site.rounds("scaffold"):
            if round.number == 3 and index == 2:
                continue  # not there: its control variate stays
            scaffold_round(workers[index], problem, model, round, 1)
            numbers[index] = round.number
        last = three.model("scaffold", 8)
        # All of the last round counted: then the next c_i is the one that holds.
        assert numbers[index] == 8
        workers[index].last = workers[index].state()["next"]["w"], last

    in_threads(3, train)
    c = workers[0].last[1]["control/w"]
    np.testing.assert_allclose(sum(worker.last[0] for worker in workers), 3 * c, rtol=0, atol=1e-5)
    optimum = sum(Quadratic(index).target for index in range(3)) / 3
    np.testing.assert_allclose(workers[0].last[1]["w"], optimum, rtol=0, atol=0.05)


def algorithm_1(rounds, sites, steps, global_rate, absent):
    """The paper's lines 2 to 17, in float64: x and c after each round."""
    x, c = np.float64(start()["w"]), np.zeros(6)
    own = np.zeros((sites, 6))
    for number in range(1, rounds + 1):
        drawn = [index for index in range(sites) if (number, index) not in absent]
        moved_x, moved_c = np.zeros(6), np.zeros(6)
        for index in drawn:
            y, target = x.copy(), np.float64(Quadratic(index).target)
            for _ in range(steps):
                y -= RATE * (y - target - own[index] + c)
            following = own[index] - c + (x - y) / (steps * RATE)
            moved_x, moved_c = moved_x + (y - x), moved_c + (following - own[index])
            own[index] = following
        x, c = x + global_rate / len(drawn) * moved_x, c + moved_c / sites
        yield x, c


@pytest.mark.parametrize("global_rate", [1.0, 0.7])
def test_scaffold_is_the_papers_algorithm_1(three, global_rate):
    """Whoever is in counts alike, whoever is missing: the model takes their whole mean, c the part of all workers."""
    absent, name = {(2, 0), (3, 2), (4, 2), (6, 1)}, f"paper-{global_rate}"
    three.start_run(
        name, fluvial.Scaffold.model(start()), rounds=7, local_steps=4,
        plan={**fluvial.Scaffold.plan(3), "participants": {"quorum": 2},
              "deadlines": {"soft_ms": 50_000, "adaptive": False, "hard_ms": 60_000}},
    )  # fmt: skip

    def train(index):
        scaffold, problem, model = fluvial.Scaffold(RATE, global_learning_rate=global_rate), Quadratic(index), start()
        for round in three.connect(index).rounds(name):
            if (round.number, index) in absent:
                continue
            scaffold.begin(round, model)
            for _ in range(round.local_steps):
                gradient = problem.gradient(model)
                scaffold.correct(model, gradient)
                descend(model, gradient)
            scaffold.submit(round, model)

    in_threads(3, train)
    *_, (x, c) = algorithm_1(7, 3, 4, global_rate, absent)
    last = three.model(name, 7)
    np.testing.assert_allclose(last["w"], x, rtol=0, atol=2e-5)
    np.testing.assert_allclose(last["control/w"], c, rtol=0, atol=2e-5)


def test_scaffold_says_what_is_missing(tmp_path):
    for wrong in ({"learning_rate": 0}, {"learning_rate": 1, "global_learning_rate": -1}):
        with pytest.raises(ValueError, match="expected more than 0"):
            fluvial.Scaffold(**wrong)
    with pytest.raises(ValueError, match="workers is 0"):
        fluvial.Scaffold.plan(0)
    with FakeAgent(tmp_path / "a", start()) as agent:
        agent.task(1, start())
        with pytest.raises(fluvial.ModelMismatch, match="Scaffold.model"):
            fluvial.Scaffold(learning_rate=1).begin(next(agent.rounds), start())
    with FakeAgent(tmp_path / "b", fluvial.Scaffold.model(start())) as agent:
        agent.task(1, fluvial.Scaffold.model(start()))
        scaffold, model, round = fluvial.Scaffold(learning_rate=1), start(), next(agent.rounds)
        scaffold.begin(round, model)
        with pytest.raises(ValueError, match="correct"):
            scaffold.submit(round, model, samples=1)
        with pytest.raises(TypeError, match="gradients"):
            scaffold.correct(model)


def test_diloco_of_one_site_at_rate_1_without_momentum_is_local_training():
    with fluvial.testing.LocalFederation(sites=1) as local:
        local.start_run("one", start(), rounds=4, local_steps=3, optimizer="nesterov:lr=1,momentum=0")
        problem, model, alone = Quadratic(0), start(), start()
        with fluvial.DiLoCo(local.connect(0), "one", model, samples=7) as diloco:
            steps, more = 0, True
            while more:
                descend(model, problem.gradient(model))
                descend(alone, problem.gradient(alone))
                steps += 1
                more = diloco.step({"loss": 0.0})
        assert steps == 12 and diloco.round is None and not diloco.step()
        np.testing.assert_allclose(local.model("one")["w"], alone["w"], rtol=0, atol=1e-6)


def test_diloco_overlapped_over_three_sites(three):
    three.start_run("late", start(), rounds=6, local_steps=4, optimizer="nesterov:lr=0.7,momentum=0.5")

    def train(index):
        problem, model = Quadratic(index), start()
        with fluvial.DiLoCo(three.connect(index), "late", model, overlap=True) as diloco:
            while True:
                descend(model, problem.gradient(model))
                if not diloco.step():
                    break

    in_threads(3, train)
    # By hand: each site's step of round r + 1 was made from what it submitted in round r.
    theta, b = start()["w"].astype(np.float64), np.zeros(6)
    local = [theta.copy() for _ in range(3)]
    for number in range(6):
        submitted = []
        for index in range(3):
            end = local[index].copy()
            for _ in range(4):
                end -= RATE * (end - Quadratic(index).target)
            submitted.append(end if number == 0 else theta + (end - local[index]))
        mean = theta - sum(submitted) / 3
        local, b = submitted, 0.5 * b + mean
        theta = theta - 0.7 * (mean + 0.5 * b)
    np.testing.assert_allclose(three.model("late")["w"], theta, rtol=0, atol=5e-6)
