"""One run: whether it learns, how fast, and what it costs."""

from panels import BAD, GOOD, WARNING, Query, board, graph, number, quantile

PER_ROUND = "increase(fluvial_coordinator_rounds_committed_total[$__rate_interval])"


def progress():
    return [
        number("Run", "none", "Which run is it? The active one, or the last.", "max(fluvial_coordinator_run)", width=3),
        number("Rounds committed", "none", "How far is it?", "max(fluvial_coordinator_model_version)", width=3),
        number("Rounds planned", "none", "How many are there to be?", "max(fluvial_coordinator_run_rounds_planned)", width=3),
        number("Time left", "s", "When will it be done, if rounds go on as in the last half hour?",
               "sum((fluvial_coordinator_run_rounds_planned > 0) - fluvial_coordinator_model_version)"
               " / (sum(rate(fluvial_coordinator_rounds_committed_total[30m])) > 0)", width=3),
        number("Waits for sites", "none", "Does no round open because too few sites are connected? 1: yes.",
               "max(fluvial_coordinator_run_waits_for_sites)", ((None, GOOD), (1, BAD)), width=3),
        number("Sites to spare", "none", "How many connected sites may go away before no round opens any more?",
               "sum(fluvial_coordinator_sites_available - (fluvial_coordinator_participants_needed > 0))",
               ((None, BAD), (0, WARNING), (1, GOOD)), width=3),
        number("Quorum", "none", "How many contributions does a commit need?", "max(fluvial_coordinator_quorum)", width=3),
        number("Attempts a round", "none", "Do rounds commit at the first attempt? 1: all of them, in the last hour.",
               "sum(increase(fluvial_coordinator_attempts_total[1h]))"
               " / (sum(increase(fluvial_coordinator_rounds_opened_total[1h])) > 0)",
               ((None, GOOD), (1.2, WARNING), (2, BAD)), width=3),
    ]


def learning():
    return [
        graph("What workers report", "none", "Does the loss fall? Means over the sites of each committed round, by the names "
              "that the workers give.", Query("fluvial_coordinator_training_metric", "{{name}}"), least=None),
        graph("Evaluation", "none", "Is the committed model good? What the evaluators at the coordinator report of it.",
              Query("fluvial_coordinator_evaluation_metric", "{{name}}"), least=None),
        graph("Length of the step", "none", "Does the model still move, or does it run away? 2-norm of new minus old model.",
              Query("fluvial_coordinator_step_norm", "step"), log=True, width=8),
        graph("Length of updates", "none", "Does a site pull much harder than the others? 2-norm of each site's last update.",
              Query("fluvial_site_update_norm", "{{instance}}"), log=True, width=8),
        graph("Length of residuals", "none", "Do the sites get rid of what a codec leaves out? It should not grow for ever.",
              Query("fluvial_site_residual_norm", "{{instance}}"), log=True, width=8),
    ]


def who():
    return [
        graph("Contributions a round", "none", "How many sites count, and how many come too late?",
              Query("sum by (outcome) (increase(fluvial_coordinator_contributions_total[$__rate_interval]))"
                    " / ignoring (outcome) group_left sum(%s)" % PER_ROUND, "{{outcome}}"), stacked=True),
        graph("Share of the time that workers train", "percentunit", "What is the network's part? The rest is waiting and "
              "sending: compression and overlap are bought for it.",
              Query("avg(rate(fluvial_site_training_seconds_total[$__rate_interval]))", "mean of the sites"),
              Query("min(rate(fluvial_site_training_seconds_total[$__rate_interval]))", "least")),
        graph("What late sites were doing", "none", "Why are sites late? Where each was when its round was committed.",
              Query("sum by (phase) (increase(fluvial_coordinator_late_sites_total[$__rate_interval])) > 0", "{{phase}}"),
              stacked=True),
        graph("Old updates a commit, with late = next or windows", "none", "Does much of a commit come from models of before? Updates that were "
              "counted in a later round than their own, and how many rounds late they were.",
              Query("sum(increase(fluvial_coordinator_contributions_stale_total[$__rate_interval])) / sum(%s)" % PER_ROUND, "old updates"),
              Query("sum(increase(fluvial_coordinator_staleness_rounds_total[$__rate_interval])) / sum(%s)" % PER_ROUND,
                    "rounds that they were late, together")),
        graph("Shares of the commits, with late = next or windows", "percentunit", "Does a slow site still have its say? Its part of what was "
              "counted; with windows the fast ones have more.",
              Query("sum by (site) (increase(fluvial_coordinator_site_contributions_total[$__rate_interval]))"
                    " / ignoring (site) group_left sum(increase(fluvial_coordinator_site_contributions_total[$__rate_interval]))",
                    "{{site}}")),
        graph("Stragglers", "none", "Who holds the others up? How many times the median site's time; from 2 on it is one.",
              Query("fluvial_coordinator_site_straggler_score", "{{site}}")),
    ]


def bytes_and_time():
    def ratio(role, tier):
        sums = [f'sum by (codec) (rate(fluvial_{role}_{what}_total{{tier="{tier}"}}[$__rate_interval]))'
                for what in ("update_fp32_bytes", "update_bytes")]
        return f"{sums[0]} / ({sums[1]} > 0)"

    return [
        graph("Compression", "suffix: x", "What does the codec save? How many times larger the updates would be as fp32.",
              Query(ratio("site", "parent"), "sites: {{codec}}"), Query(ratio("aggregator", "parent"), "aggregators: {{codec}}"),
              width=8),
        graph("Updates, bytes a round", "bytes", "What does a round cost on the way up, at each tier?",
              Query('sum(increase(fluvial_site_update_bytes_total{tier="parent"}[$__rate_interval])) / sum(%s)' % PER_ROUND,
                    "from the sites"),
              Query('sum(increase(fluvial_coordinator_update_bytes_total{tier="children"}[$__rate_interval])) / sum(%s)'
                    % PER_ROUND, "to the coordinator"), width=8),
        graph("Models, bytes a round", "bytes", "What does a round cost on the way down, at each tier?",
              Query('sum(increase(fluvial_site_model_bytes_total{tier="parent"}[$__rate_interval])) / sum(%s)' % PER_ROUND,
                    "to the sites"),
              Query('sum(increase(fluvial_coordinator_model_bytes_total{tier="children"}[$__rate_interval])) / sum(%s)'
                    % PER_ROUND, "from the coordinator"), width=8),
        graph("The model on its way down, bytes", "bytes", "Does `down` make it smaller? What a child that has the model before is sent.",
              Query("fluvial_coordinator_model_whole_bytes", "whole"), Query("fluvial_coordinator_model_down_bytes", "sent"), width=8),
        graph("Forms in which models are sent a round", "none", "Does everybody get the small form? Whole: to who is new, was restarted, "
              "missed a round, or is of 0.2.",
              Query('sum by (form) (increase({__name__=~"fluvial_(coordinator|aggregator)_models_sent_total"}[$__rate_interval]))'
                    " / ignoring (form) group_left sum(%s)" % PER_ROUND, "{{form}}"), stacked=True, width=8),
        graph("Models that came ahead", "none", "Does the way down overlap with what is done at the root? Models that were fetched before "
              "their commit, by site and aggregator: used, or dropped since another was committed.",
              Query('sum by (outcome) (increase({__name__=~"fluvial_(aggregator|site)_models_ahead_total"}[$__rate_interval]))'
                    " / ignoring (outcome) group_left sum(%s)" % PER_ROUND, "{{outcome}}"), stacked=True, width=8),
        graph("What the way down leaves out", "none", "Do sites train from nearly what the server has? 2-norm, beside that of the last step: "
              "it should stay about as long as a step, not grow for ever.",
              Query("fluvial_coordinator_model_left_out_norm", "left out"), Query("fluvial_coordinator_step_norm", "step"),
              log=True, width=8),
        graph("How long a round takes", "s", "Where is a round slow: at its typical sites, or at a few?",
              Query(quantile(0.5, "fluvial_coordinator_round_seconds"), "round, median"),
              Query(quantile(0.5, "fluvial_coordinator_site_round_seconds"), "a site, median"),
              Query(quantile(0.95, "fluvial_coordinator_site_round_seconds"), "a site, slowest in twenty"), width=8),
        graph("Memory for updates", "bytes", "Does the coordinator have room for what comes? Beyond the limit updates go to "
              "disk.", Query("fluvial_coordinator_staging_bytes", "in memory"),
              Query("fluvial_coordinator_staging_spilled_bytes", "on disk"),
              Query("fluvial_coordinator_staging_limit_bytes", "limit"), width=8),
    ]


def dashboard():
    return board("fluvial-run", "Fluvial: one run", "Does the run learn, how fast, and what does it cost?", [], [
        ("How far it is", progress()), ("What it learns", learning()), ("Who takes part", who()),
        ("What it costs", bytes_and_time())])
