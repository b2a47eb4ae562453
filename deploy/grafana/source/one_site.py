"""One site: what its people ask when their coordinator's people call."""

from panels import BAD, GOOD, LIFE_LEFT, WARNING, Query, board, chosen, graph, life_left, mean, number, states

SITE = '{instance="$site"}'
UP = '{instance="$site", tier="parent"}'
CONNECTED = {0: ("no parent", BAD), 1: ("connected", GOOD)}


def now():
    return [
        number("Parent", "none", "Is it connected?", f"fluvial_site_connected{SITE}", ((None, BAD), (1, GOOD)),
               words=CONNECTED, width=3),
        number("Reconnects", "none", "How often did it look for a parent in the last hour?",
               f"increase(fluvial_site_reconnects_total{SITE}[1h])", ((None, GOOD), (5, WARNING), (100, BAD)), width=3),
        number("Workers", "none", "Are its workers there?", f"fluvial_site_workers{SITE}", ((None, BAD), (1, GOOD)), width=3),
        number("Workers expected", "none", "How many does a round wait for?", f"fluvial_site_workers_expected{SITE}", width=3),
        number("Training share", "percentunit", "How much of the time between the last two commits did its workers train?",
               f"fluvial_site_training_share_ratio{SITE}", width=3),
        number("Model", "none", "Which version of the model does it hold?", f"fluvial_site_model_version{SITE}", width=3),
        number("Rounds behind", "none", "How far is it behind the coordinator?",
               f"max(fluvial_coordinator_model_version) - max(fluvial_site_model_version{SITE})",
               ((None, GOOD), (2, WARNING), (5, BAD)), width=3),
        number("Certificate", "percentunit", "Does it renew its certificate? What is left of its life; from half of it on "
               "it renews.",
               life_left(f"fluvial_site_certificate_expiry_timestamp_seconds{SITE} - time()"), LIFE_LEFT, width=3),
    ]


def rounds():
    return [
        graph("Where a round's time goes", "s", "Does it fetch, train, encode or send for so long?",
              *(Query(mean(f"fluvial_site_{step}_seconds", only=SITE), step) for step in ("fetch", "train", "encode", "upload")),
              stacked=True),
        graph("Share of the time that workers train", "percentunit", "Do its GPUs wait for the network?",
              Query(f"rate(fluvial_site_training_seconds_total{SITE}[$__rate_interval])", "training")),
        graph("What became of its updates", "none", "Does it count? Late ones go into its next update; refused ones do not.",
              Query(f"increase(fluvial_site_outcomes_total{SITE}[$__rate_interval])", "{{outcome}}"),
              Query(f"increase(fluvial_site_train_failures_total{SITE}[$__rate_interval])", "training failed"),
              stacked=True, width=8),
        graph("Updates sent", "none", "Does it send again and again?",
              Query(f"increase(fluvial_site_updates_submitted_total{SITE}[$__rate_interval])", "first time"),
              Query(f"increase(fluvial_site_updates_resent_total{SITE}[$__rate_interval])", "again"), stacked=True, width=8),
        graph("What its workers report", "none", "Does it learn from its own data?",
              Query(f"fluvial_site_training_metric{SITE}", "{{name}}"), least=None, width=8),
    ]


def updates():
    return [
        graph("Length of the update and the residual", "none", "Is its update out of the ordinary? The residual is what it "
              "still owes.", Query(f"fluvial_site_update_norm{SITE}", "update"),
              Query(f"fluvial_site_residual_norm{SITE}", "residual"), log=True, width=8),
        graph("Age of the residual", "rounds", "For how many of its updates has none counted?",
              Query(f"fluvial_site_residual_age_rounds{SITE}", "age"), width=8),
        graph("Weight", "none", "How many samples does it claim?", Query(f"fluvial_site_update_weight{SITE}", "weight"), width=8),
        graph("Bytes on the wire", "Bps", "What does its line carry?",
              Query(f"rate(fluvial_site_sent_bytes_total{UP}[$__rate_interval])", "sent"),
              Query(f"rate(fluvial_site_received_bytes_total{UP}[$__rate_interval])", "received"),
              width=8),
        graph("Bytes that wait to be sent", "bytes", "Is its line slower than what it has to send?",
              Query(f"fluvial_site_outbox_bytes{UP}", "outbox"), width=8),
        graph("Compression", "suffix: x", "What does the codec save here?",
              Query("sum by (codec) (rate(fluvial_site_update_fp32_bytes_total%s[$__rate_interval])) / "
                    "(sum by (codec) (rate(fluvial_site_update_bytes_total%s[$__rate_interval])) > 0)" % (UP, UP), "{{codec}}"),
              width=8),
    ]


def machine():
    return [
        states("Parent", "When had it no parent?", Query(f"fluvial_site_connected{SITE}", "parent"), words=CONNECTED, height=4),
        graph("Attempts to connect", "none", "Why does it not reach its parent? `ok`: it did.",
              Query(f"increase(fluvial_site_parent_connects_total{SITE}[$__rate_interval])", "{{result}}"),
              stacked=True, width=8),
        graph("fsync", "s", "Is its disk slow? A site makes each update durable before it promises it.",
              Query(mean("fluvial_site_disk_fsync_seconds", "what", SITE), "{{what}}"), width=8),
        graph("Written to disk", "Bps", "How much does it write?",
              Query(f"rate(fluvial_site_disk_written_bytes_total{SITE}[$__rate_interval])", "{{what}}"), width=8),
        graph("GPU memory", "bytes", "How much memory do the agent's updates take from the training? 0: they are made on CPUs.",
              Query(f"fluvial_site_gpu_memory_bytes{SITE}", "taken"), width=8),
        graph("Work on GPUs", "percentunit", "How much of the time do the agent's own steps take on GPUs?",
              Query(f"rate(fluvial_site_gpu_seconds_total{SITE}[$__rate_interval])", "{{step}}"), width=8),
        graph("Updates made on GPUs", "none", "Are the GPUs used for sums and codecs? 0: these are done on CPUs.",
              Query(f"increase(fluvial_site_gpu_updates_total{SITE}[$__rate_interval])", "{{step}}"), width=8),
    ]


def dashboard():
    site = chosen("site", "site", "The process that is looked at.", "label_values(fluvial_site_workers, instance)")
    return board("fluvial-site", "Fluvial: one site", "Is this site well, does it count, and what does it wait for?", [site], [
        ("Now", now()), ("Rounds", rounds()), ("Updates", updates()), ("Machine", machine())])
