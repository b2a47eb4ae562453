"""The open round, and where the time of rounds goes."""

from panels import BAD, GOOD, WARNING, Query, board, graph, mean, number


def state(name):
    return f'sum(fluvial_coordinator_round_sites{{state="{name}"}})'


def now():
    return [
        number("Round", "none", "Which round is open, or was the last?", "max(fluvial_coordinator_round)", width=3),
        number("Attempt", "none", "How often was it begun? 0: no round is open.", "max(fluvial_coordinator_attempt)",
               ((None, GOOD), (2, WARNING), (3, BAD)), width=3),
        number("Age", "s", "For how long is it open?", "max(fluvial_coordinator_round_age_seconds)", width=3),
        number("In", "none", "How many sites' updates are in?", state("in"), width=3),
        number("Awaited", "none", "How many may still come?", state("awaited"), width=3),
        number("Away", "none", "How many participants are not connected?", state("away"), ((None, GOOD), (1, WARNING)), width=3),
        number("Refused", "none", "How many sent something that was refused?", state("refused"), ((None, GOOD), (1, BAD)),
               width=3),
        number("Missing", "none", "How many did an aggregator close without?", state("missing"), ((None, GOOD), (1, WARNING)),
               width=3),
    ]


def sites():
    return [
        graph("Participants by state", "none", "How do the sites come in, and is the quorum in reach? It is lost when in and "
              "awaited are fewer than the quorum.", Query("sum by (state) (fluvial_coordinator_round_sites)", "{{state}}"),
              Query("max(fluvial_coordinator_quorum)", "quorum")),
        graph("Age and deadlines", "s", "When does the round close without who is missing? At the soft deadline with a quorum; "
              "at the hard one the attempt ends.", Query("max(fluvial_coordinator_round_age_seconds)", "age"),
              Query("max(fluvial_coordinator_soft_deadline_seconds)", "soft deadline"),
              Query("max(fluvial_coordinator_hard_deadline_seconds)", "hard deadline")),
        graph("Refused, by reason", "none", "What is wrong with what sites send? stale and already_exists are harmless.",
              Query("sum by (reason) (increase(fluvial_coordinator_contributions_refused_total[$__rate_interval])) > 0",
                    "{{reason}}"), stacked=True),
        graph("Rounds at the aggregators", "none", "Which region's round is behind? The round that each has open, or had last.",
              Query("fluvial_aggregator_round", "{{instance}}"), least=None),
    ]


def at_the_sites():
    return [
        graph("Model on its way down", "s", "How long do sites wait for the model? From its name to its last byte.",
              Query(mean("fluvial_site_fetch_seconds", "instance"), "{{instance}}"), width=6),
        graph("Training", "s", "How long do the local steps take?",
              Query(mean("fluvial_site_train_seconds", "instance"), "{{instance}}"), width=6),
        graph("Encoding", "s", "How long does the codec take?",
              Query(mean("fluvial_site_encode_seconds", "instance"), "{{instance}}"), width=6),
        graph("Update on its way up", "s", "How long does an update take to the site's parent?",
              Query(mean("fluvial_site_upload_seconds", "instance"), "{{instance}}"), width=6),
    ]


def above():
    return [
        graph("Sums", "s", "How long does it take to add one update or partial?",
              Query(mean("fluvial_coordinator_merge_seconds"), "coordinator"),
              Query(mean("fluvial_aggregator_merge_seconds", "instance"), "{{instance}}"), width=6),
        graph("Partials on their way up", "s", "How long does a region's sum take to the coordinator?",
              Query(mean("fluvial_aggregator_partial_seconds", "instance"), "{{instance}}"), width=6),
        graph("The end of a round", "s", "What does a commit wait for: the optimizer and the model's file, or the journal?",
              Query(mean("fluvial_coordinator_finalise_seconds"), "mean, optimizer, model file"),
              Query(mean("fluvial_coordinator_commit_seconds"), "all until the commit"), width=6),
        graph("The journal", "s", "Does the journal hold rounds up?",
              Query(mean("fluvial_coordinator_journal_record_seconds", "record"), "{{record}}"), width=6),
        graph("Additions that wait", "none", "Does the sum keep up with what comes? Queued or running.",
              Query("fluvial_coordinator_lane_tasks", "coordinator"), Query("fluvial_aggregator_lane_tasks", "{{instance}}")),
        graph("Updates that passed every check", "none", "Does anything come in at all?",
              Query("sum(rate(fluvial_coordinator_updates_verified_total[$__rate_interval]))", "coordinator"),
              Query("sum by (instance) (rate(fluvial_aggregator_updates_verified_total[$__rate_interval]))", "{{instance}}")),
    ]


def dashboard():
    return board("fluvial-round", "Fluvial: one round", "Whom does the open round wait for, and where does the time go?", [], [
        ("The open round", now()), ("Its sites", sites()), ("Time at the sites", at_the_sites()),
        ("Time above them", above())])
