"""What a stand-in coordinator answers: members, rounds and a timeline with every member that the admin API knows of."""

import datetime
import math
import random

DAY = datetime.timedelta(days=1)


def ago(seconds):
    at = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(seconds=seconds)
    return at.strftime("%Y-%m-%dT%H:%M:%S.") + f"{at.microsecond // 1000:03}Z"


def node(number, name, role, region, parent="coordinator", **more):
    return {"id": number, "name": name, "role": role, "region": region, "weight_max": 1000000, "connected": True,
            "enrolled_at": ago(90_000), "advertise": "", "revoked": False, "quarantined": False, "quarantine_reason": "",
            "ahead": "", "removed": False, "parent": parent, "parent_wished": parent, "lease_epoch": 5, "past": None,
            "pace": None, "workers": 1, "doing": "idle", "progress": None, "since": ago(5_000),
            "certificate_ends_at": ago(-20 * 3_600), **more}


def pace(p50, late=0, score=1.0):
    return {"rounds": 17, "late": late, "p50_s": p50, "p95_s": 1.3 * p50, "train_p50_s": 0.8 * p50, "transfer_p50_s": 0.15 * p50,
            "merge_p50_s": 0.05 * p50, "score": score, "straggler": score >= 2}


def members():
    return [
        node(1, "eu-west-1", "aggregator", "eu/west", workers=None, bytes={"up": 61_000_000, "down": 122_000_000}),
        node(2, "eu-north-1", "aggregator", "eu/north", workers=None, bytes={"up": 29_000_000, "down": 122_000_000}),
        node(3, "hospital-amsterdam", "site", "eu/west", "eu-west-1", pace=pace(3.1), doing="training", bytes={"up": 21_000_000, "down": 122_000_000}),
        node(4, "hospital-brussels", "site", "eu/west", "eu-west-1", pace=pace(3.4), doing="waiting", workers=2,
             bytes={"up": 20_000_000, "down": 122_000_000}),
        node(5, "hospital-cologne", "site", "eu/west", "eu-west-1", pace=pace(8.2, 4, 2.4), doing="sending",
             progress={"done_bytes": 730_000, "total_bytes": 1_200_000, "eta_s": 1.4}, bytes={"up": 20_000_000, "down": 122_000_000}),
        node(6, "hospital-oslo", "site", "eu/north", "eu-north-1", pace=pace(3.3), doing="waiting", bytes={"up": 29_000_000, "down": 122_000_000}),
        node(7, "hospital-tampere", "site", "eu/north", "eu-north-1", connected=False, since=ago(252), doing=None, workers=0),
        node(8, "hospital-uppsala", "site", "eu/north", "coordinator", parent_wished="eu-north-1", workers=0, doing="idle",
             past={"aggregator": "eu-north-1", "reason": "was away (12 s)"}, certificate_ends_at=ago(-3 * 86_400),
             bytes={"up": 9_000_000, "down": 122_000_000}),
        node(9, "clinic-zurich", "site", "eu/west", "eu-west-1", connected=False, quarantined=True,
             quarantine_reason="submitted two digests for one submission", doing=None, workers=None),
    ]


def rounds(many, run=3):
    chance = random.Random(7)
    listed = []
    for number in range(1, many + 1):
        loss = 0.16 + 2.1 * math.exp(-number / 7) + 0.05 * chance.random()
        contributors = [{"site": 3 + i, "name": name, "weight": 350, "digest": "ab" * 32, "metrics": {"loss": loss}}
                        for i, name in enumerate(("hospital-amsterdam", "hospital-brussels", "hospital-cologne", "hospital-oslo"))]
        late = number % 5 == 2
        listed.append({"run": run, "round": number, "attempt": 1, "participants": 5 if late else 4, "contributors": contributors,
                       "refused": [], "late": 1 if late else 0,
                       "late_sites": [{"site": 7, "name": "hospital-tampere", "reason": "no worker attached"}] if late else [],
                       "weight": 1400, "model_sha256": "cd" * 32, "seconds": 3.2 + 1.8 * chance.random() * chance.random(),
                       "bytes_up": 4_800_000 + int(1e5 * chance.random()), "bytes_down": 9_600_000,
                       "metrics": {"loss": loss, "accuracy": 1 - loss / 3, "gradient_norm": 4 * loss + chance.random()},
                       "evaluation": {"test_accuracy": 1 - 0.9 * math.exp(-number / 6) - 0.03, "test_loss": loss * 1.07},
                       "committed_at": ago(4 * (many - number))})
    return listed


def timeline(number=17, run=3):
    spans = []

    def add(who, role, parent, *steps):
        for name, start, end in steps:
            spans.append({"name": name, "node": who, "role": role, "parent": parent, "start_s": start, "end_s": end})

    for who, parent, fetched, trained, sent in (
            ("hospital-amsterdam", "eu-west-1", 0.21, 2.4, 2.9), ("hospital-brussels", "eu-west-1", 0.25, 3.35, 4.0),
            ("hospital-cologne", "eu-west-1", 0.3, 2.1, 2.5), ("hospital-oslo", "eu-north-1", 0.4, 2.7, 3.1)):
        add(who, "site", parent, ("fetch", 0.03, fetched), ("train", fetched, trained), ("encode", trained, trained + 0.08),
            ("persist", trained + 0.02, trained + 0.12), ("send", trained + 0.12, sent))
    add("eu-west-1", "aggregator", "coordinator", ("fetch", 0.01, 0.12), ("stage", 2.2, 4.0), ("accumulate", 2.5, 4.02), ("send", 4.02, 4.2))
    add("eu-north-1", "aggregator", "coordinator", ("fetch", 0.01, 0.2), ("stage", 2.7, 3.1), ("accumulate", 3.1, 3.14), ("send", 3.14, 3.3))
    add("coordinator", "coordinator", "", ("stage", 3.14, 4.2), ("accumulate", 4.2, 4.24), ("finalise", 4.24, 4.36), ("fsync", 4.36, 4.4),
        ("publish", 4.4, 4.42))
    return {"run": run, "round": number, "attempt": 1, "seconds": 4.42, "opened_at": ago(60),
            "words": f"round {number} took 4.4 s: 3.1 s training at hospital-brussels, 0.7 s its upload, 0.2 s the way of eu-west-1's sum, "
                     "0.2 s the optimizer step and the disk",
            "critical": [{"name": "train", "node": "hospital-brussels", "seconds": 3.1}, {"name": "send", "node": "hospital-brussels", "seconds": 0.65},
                         {"name": "send", "node": "eu-west-1", "seconds": 0.18}, {"name": "finalise", "node": "coordinator", "seconds": 0.12}],
            "clocks": [{"node": "hospital-brussels", "offset_s": 0.012, "uncertainty_s": 0.004}],
            "spans": spans, "missing": ["hospital-tampere"]}


def scene():
    """A federation in the middle of a round, with about everything that may be amiss at a site."""
    listed = rounds(17)
    run = {"id": 3, "name": "tumours", "status": "running", "reason": "", "round": 17, "rounds": 60, "codec": "int8",
           "model_sha256": "cd" * 32, "waiting": "",
           "open": {"round": 18, "attempt": 1, "participants": 5, "quorum": 3, "open_s": 6.2, "in": 2, "awaited": ["hospital-amsterdam", "hospital-cologne", "hospital-tampere"],
                    "soft_left_s": 4.2, "hard_left_s": 64.0}}
    status = {"role": "coordinator", "federation": "eu-oncology", "version": "0.3.0", "pin": "sha256:ab", "member_port": 7400,
              "enrol_port": 7401, "metrics_port": 9400, "sites_connected": 5, "aggregators_connected": 2, "staging_bytes": 0, "fault": "",
              "history": {"restores": 0, "began_at_epoch": 1, "lost": [], "ahead": []}, "last_backup": None, "run": run, "runs": [run],
              "waits": [{"node": "hospital-tampere", "what": "its update", "since": ago(252), "reason": "away", "do": "look at the machine, or let the quorum decide", "severity": "warning"},
                        {"node": "hospital-cologne", "what": "its update", "since": ago(3), "reason": "sending, 61 %", "do": "", "severity": "info", "doing": "sending", "progress": None},
                        {"node": "hospital-amsterdam", "what": "its update", "since": ago(3), "reason": "training", "do": "", "severity": "info", "doing": "training", "progress": None}],
              "problems": [{"severity": "error", "what": "in quarantine: submitted two digests for one submission", "node": "clinic-zurich",
                            "since": ago(4_000), "do": "find out why, then fluvial nodes clear clinic-zurich", "runbook": "docs/operations/failures.md"},
                           {"severity": "warning", "what": "its certificate ends in 3 days", "node": "hospital-uppsala", "since": ago(86_400),
                            "do": "enrol it again with a new token", "runbook": "docs/operations/runbook.md#fluvialcertificateexpiring"}]}
    opened = {"round": 18, "attempt": 1, "opened_at": ago(6), "soft_left_s": 4.2, "hard_left_s": 64.0,
              "sites": [{"name": "hospital-amsterdam", "state": "awaited", "reason": "", "doing": "training", "progress": None},
                        {"name": "hospital-brussels", "state": "in", "reason": "", "doing": "waiting", "progress": None},
                        {"name": "hospital-cologne", "state": "awaited", "reason": "", "doing": "sending", "progress": None},
                        {"name": "hospital-oslo", "state": "in", "reason": "", "doing": "waiting", "progress": None},
                        {"name": "hospital-tampere", "state": "away", "reason": "no connection", "do": "look at the machine", "doing": None, "progress": None}]}
    runs = [{"id": 1, "name": "tumours", "status": "stopped", "reason": "by an administrator", "rounds": 60, "committed": 12, "codec": "int8",
             "continues": 0, "created_at": ago(90_000)},
            {"id": 2, "name": "tumours", "status": "done", "reason": "", "rounds": 40, "committed": 40, "codec": "topk:ratio=0.05", "continues": 0,
             "created_at": ago(40_000)},
            {"id": 3, "name": "tumours", "status": "running", "reason": "", "rounds": 60, "committed": 17, "codec": "int8", "continues": 2,
             "created_at": ago(800)}]
    recent = [{"event": "state", "run": 3, "status": "running", "reason": "", "at": ago(90)}]
    for one in listed[-6:]:
        recent.append({"event": "opened", "run": 3, "round": one["round"], "attempt": 1, "participants": one["participants"], "at": ago(4 * (18 - one["round"]) + 3)})
        recent.append({**one, "event": "committed", "at": ago(4 * (18 - one["round"]))})
    return {"/session": {"read_only": False}, "/v1/status": status, "/v1/nodes": {"nodes": members()}, "/v1/runs": {"runs": runs},
            "/v1/rounds": {"pruned": 0, "rounds": listed}, "/v1/rounds/open": opened, "/v1/rounds/17/timeline": timeline(), "recent": recent}
