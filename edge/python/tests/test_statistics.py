"""Batch norm's running statistics: averaged, whatever the server's optimizer does with the parameters."""

import numpy as np
import pytest

import fluvial

MODEL = {
    "norm.weight": np.ones(3, np.float32),
    "norm.running_var": np.full(3, 8, np.float32),
    "norm.num_batches_tracked": np.array(0, np.int64),
}
# Of each site, round by round: what it has seen. A momentum of 0.9 would take the mean of these below 0.
VARIANCES = [[0.25, 0.125], [0.5, 0.25]]



@pytest.fixture(scope="module")
def two_sites():
    with fluvial.testing.LocalFederation(sites=2) as local:
        yield local, [local.connect(0), local.connect(1)]


def train(two_sites, name, **plan):
    """Two rounds of both sites; returns the model that they come to."""
    local, sites = two_sites
    local.start_run(name, MODEL, rounds=len(VARIANCES[0]), **plan)
    rounds = [site.rounds(name) for site in sites]
    for step in range(len(VARIANCES[0])):
        for own, of_site in zip(VARIANCES, rounds):
            round = next(of_site)
            model = {key: value.copy() for key, value in MODEL.items()}
            round.load_into(model)
            model["norm.weight"] -= 1
            model["norm.running_var"][:] = own[step]
            model["norm.num_batches_tracked"] += 5
            round.submit(model, samples=1)
    assert [next(of_site, None) for of_site in rounds] == [None, None]
    local.wait(name, timeout_s=60)
    return local.model(name)


@pytest.mark.parametrize("optimizer", ["fedavgm", "fedadam", "nesterov", "lamb"])
def test_statistics_are_the_mean_of_the_sites_own(two_sites, optimizer):
    committed = train(two_sites, f"averaged-{optimizer}", optimizer=optimizer)
    np.testing.assert_array_equal(committed["norm.running_var"], np.full(3, (0.125 + 0.25) / 2, np.float32))
    assert committed["norm.num_batches_tracked"] == 10
    assert not np.allclose(committed["norm.weight"], 1 - 2), "what averaging would give"


def test_none_steps_them_too(two_sites):
    with pytest.warns(UserWarning, match="Name them in optimizer.averaged"):
        committed = train(two_sites, "stepped", optimizer="fedavgm", plan={"optimizer": {"averaged": "none"}})
    assert (committed["norm.running_var"] < 0).all()
