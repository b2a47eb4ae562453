"""metrics_by_site = false: what one site reports is nowhere, its part in the means is."""

import json
import sqlite3

import numpy as np
import pytest

import fluvial

LOSSES = [2.5, 31.0625]  # no time or size reads like the second


def worker(site, index):
    for round in site.rounds():
        round.submit({"w": round.arrays()["w"] + 1}, samples=10 * (index + 1), metrics={"loss": LOSSES[index]})


@pytest.fixture(scope="module", params=[False, True])
def trained(request):
    with fluvial.testing.LocalFederation(sites=2) as local:
        local.start_run("quiet", {"w": np.zeros(4, np.float32)}, rounds=2, plan={"metrics_by_site": request.param})
        local.train(worker)
        local.wait("quiet", timeout_s=60)
        yield local, request.param


def test_means_are_there_and_the_sites_own_where_the_plan_allows(trained):
    local, by_site = trained
    mean = pytest.approx((10 * LOSSES[0] + 20 * LOSSES[1]) / 30)
    own = [{"loss": loss} for loss in LOSSES] if by_site else [{}, {}]
    for round in local.rounds("quiet"):
        assert round["metrics"] == {"loss": mean}
        assert [site["metrics"] for site in round["contributors"]] == own
    assert [site["metrics"] for site in local.site_metrics("quiet")] == own * 2
    streamed = local._fluvial("rounds", "watch", "--from", "1", "--json").splitlines()
    for line in map(json.loads, streamed):
        if line["event"] == "committed":
            assert [site["metrics"] for site in line["contributors"]] == own


def test_commands_show_and_export_no_more(trained):
    local, by_site = trained
    shown = local._fluvial("rounds", "show", "latest")
    assert ("31.06" in shown) == by_site and "LOSS" in shown.upper(), shown
    exported = local._fluvial("run", "export", "1")
    assert ("31.06" in exported) == by_site and "metrics" in exported, exported
    assert ("31.06" in local._fluvial("run", "export", "1", "--format", "csv")) == by_site


def test_the_journal_has_no_more_and_is_verified(trained):
    local, by_site = trained
    copy = local.admin._post("/v1/backup", {})["journal"]
    with sqlite3.connect(f"file:{copy}?mode=ro", uri=True) as journal:
        kept = [json.loads(row[0]) for row in journal.execute("SELECT metrics FROM contributions ORDER BY round, site")]
    assert kept == ([{"loss": loss} for loss in LOSSES] * 2 if by_site else [{}] * 4)
    verified = json.loads(local._fluvial("rounds", "verify", "--json"))["rounds"]
    assert [(round["signed"], round["faults"]) for round in verified] == [(2, []), (2, [])]
