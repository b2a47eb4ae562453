"""The federation at a glance: what a person looks at first, at night."""

from panels import BAD, GOOD, LIFE_LEFT, WARNING, Query, board, graph, life_left, number, quantile, states

RUN_WORDS = {0: ("no", "transparent"), 1: ("yes", GOOD)}
PAUSE_WORDS = {0: ("no", "transparent"), 1: ("yes", BAD)}
MEMBER_WORDS = {0: ("away", BAD), 1: ("connected", GOOD)}
ZERO_IS_GOOD = ((None, GOOD), (1, BAD))


def now():
    return [
        number("Alerts", "none", "Is anything wrong? The alerts that fire; their sections are in the runbook.",
               'count(ALERTS{alertname=~"Fluvial.*", alertstate="firing"}) or vector(0)', ZERO_IS_GOOD, width=3),
        number("Runs that paused themselves", "none", "Does a run wait for a person? 1: look at the reason below.",
               'sum(fluvial_coordinator_run_pause_reason{reason!="person"})', ZERO_IS_GOOD, width=3),
        number("Sites connected", "none", "How many sites are there?", 'sum(fluvial_coordinator_members{role="site"})',
               ((None, BAD), (1, GOOD)), width=3),
        number("Sites away", "none", "How many sites are missing? Those that are enrolled and not connected.",
               'sum(fluvial_coordinator_members_enrolled{role="site"}) - sum(fluvial_coordinator_members{role="site"})',
               ((None, GOOD), (1, WARNING)), width=3),
        number("Aggregators away", "none", "How many aggregators are missing? Their children have other parents meanwhile.",
               'count(fluvial_coordinator_member_connected{role="aggregator"} == 0) or vector(0)', ZERO_IS_GOOD, width=3),
        number("Open round's age", "s", "For how long is the round open? 0: none is.",
               "max(fluvial_coordinator_round_age_seconds)", width=3),
        number("Rounds left", "none", "How many rounds until the run is done?",
               "sum((fluvial_coordinator_run_rounds_planned > 0) - fluvial_coordinator_model_version)", width=3),
        number("First certificate to end", "percentunit", "Does a member fail to renew its certificate? What the first to end "
               "has left of its life; members renew from half of it on.",
               life_left("min(fluvial_coordinator_member_certificate_expiry_timestamp_seconds) - time()"), LIFE_LEFT, width=3),
    ]


def run():
    return [
        states("The run's state", "What did the run do when? One row a state; none: there is no run.",
               Query("fluvial_coordinator_run_state", "{{state}}"), words=RUN_WORDS, width=12),
        states("Why it is paused", "Why did it stand still, and when? `person`: somebody asked for it.",
               Query("fluvial_coordinator_run_pause_reason", "{{reason}}"), words=PAUSE_WORDS, width=12),
        graph("Rounds committed", "suffix: /min", "How fast does the run go on?",
              Query("60 * rate(fluvial_coordinator_rounds_committed_total[$__rate_interval])", "rounds a minute"), width=8),
        graph("How long a round takes", "s", "Do rounds take longer than they used to? From opening to commit.",
              Query(quantile(0.5, "fluvial_coordinator_round_seconds"), "median"),
              Query(quantile(0.95, "fluvial_coordinator_round_seconds"), "slowest in twenty"), width=8),
        graph("What workers report", "none", "Does it learn? The mean over the sites of the last committed round.",
              Query("fluvial_coordinator_training_metric", "{{name}}"), least=None, width=8),
    ]


def members():
    return [
        states("Members", "Who was away when?", Query("fluvial_coordinator_member_connected", "{{member}}"), words=MEMBER_WORDS,
               width=12, height=9),
        graph("Bytes on the wire", "Bps", "How much do the lines carry? As the children see it: what they send to their "
              "parents, and what they receive from them.",
              Query("sum(rate(fluvial_site_sent_bytes_total[$__rate_interval]))", "sites send"),
              Query("sum(rate(fluvial_site_received_bytes_total[$__rate_interval]))", "sites receive"),
              Query('sum(rate(fluvial_aggregator_sent_bytes_total{tier="parent"}[$__rate_interval]))', "aggregators send"),
              Query('sum(rate(fluvial_aggregator_received_bytes_total{tier="parent"}[$__rate_interval]))',
                    "aggregators receive"), height=9),
    ]


def processes():
    def of_all(metric):
        return '{__name__=~"fluvial_(coordinator|aggregator|site)_%s"}' % metric

    return [
        graph("Memory", "bytes", "Does a process grow without end?", Query("process_resident_memory_bytes * on (instance) "
              "group_left (role) fluvial_build_info", "{{instance}}"), width=8),
        graph("Processor", "percentunit", "Which process is busy? 1 is one core.",
              Query("rate(process_cpu_seconds_total[$__rate_interval]) * on (instance) group_left (role) fluvial_build_info",
                    "{{instance}}"), width=8),
        graph("Open files", "none", "Does a process run into its limit of open files?",
              Query("process_open_fds * on (instance) group_left (role) fluvial_build_info", "{{instance}}"), width=8),
        graph("How long a state machine is behind", "s", "Is a process too busy to answer? How long its strand took to answer "
              "the scrape.", Query(of_all("strand_lag_seconds"), "{{instance}}"), width=8),
        graph("Work that waits for a thread", "none", "Are there too few threads? Tasks of the pool, queued or running.",
              Query(of_all("pool_tasks"), "{{instance}}"), width=8),
        graph("fsync", "s", "Is a disk slow? The slowest in a hundred.",
              Query("histogram_quantile(0.99, sum by (instance, what, le) "
                    f"(rate({of_all('disk_fsync_seconds_bucket')}[$__rate_interval])))", "{{instance}}: {{what}}"), width=8),
    ]


def dashboard():
    return board("fluvial-overview", "Fluvial: federation", "Is the federation well, and what does it do?", [], [
        ("Now", now()), ("The run", run()), ("Members", members()), ("Processes", processes())])
