"""The inner nodes: whether each stands between its region and the coordinator as it should, and what it saves."""

from panels import BAD, GOOD, Query, board, graph, mean, number, states

CONNECTED = {0: ("no parent", BAD), 1: ("connected", GOOD)}
ZERO_IS_GOOD = ((None, GOOD), (1, BAD))


def now():
    return [
        number("Aggregators connected", "none", "How many are there?",
               'sum(fluvial_coordinator_members{role="aggregator"})', width=6),
        number("Aggregators away", "none", "Is a region without its aggregator?",
               'count(fluvial_coordinator_member_connected{role="aggregator"} == 0) or vector(0)', ZERO_IS_GOOD, width=6),
        number("Members past their aggregator", "none", "Who uses a longer line than it should? 0: nobody.",
               "sum(fluvial_coordinator_members_past_aggregator)", ZERO_IS_GOOD, width=6),
        number("Fullest memory for updates", "percentunit", "Which is near its budget? Beyond 100 % updates go to disk.",
               "max(fluvial_aggregator_staging_bytes / fluvial_aggregator_staging_limit_bytes)",
               ((None, GOOD), (0.8, "orange"), (0.9, BAD)), width=6),
    ]


def tree():
    return [
        states("Parent", "When had an aggregator no parent?", Query("fluvial_aggregator_connected", "{{instance}}"),
               words=CONNECTED, width=12, height=7),
        graph("Children", "none", "How many are below each?",
              Query("fluvial_aggregator_members", "{{instance}}: {{role}}"), width=12, height=7),
        graph("Members past their aggregator", "none", "Since when does a region go past it? By the aggregator.",
              Query("count by (aggregator) (fluvial_coordinator_member_past_aggregator == 1)", "{{aggregator}}"), width=8),
        graph("Reconnects", "none", "Does an aggregator look for its parent again and again?",
              Query("increase(fluvial_aggregator_reconnects_total[$__rate_interval])", "{{instance}}"), stacked=True, width=8),
        graph("Attempts to connect", "none", "Why does an aggregator not reach its parent? `ok`: it did.",
              Query("sum by (instance, result) (increase(fluvial_aggregator_parent_connects_total[$__rate_interval])) > 0",
                    "{{instance}}: {{result}}"), stacked=True, width=8),
    ]


def traffic():
    def rate(direction, tier):
        return f'sum by (instance) (rate(fluvial_aggregator_{direction}_bytes_total{{tier="{tier}"}}[$__rate_interval]))'

    return [
        graph("From and to the children", "Bps", "What do a region's lines carry?",
              Query(rate("received", "children"), "{{instance}} receives"),
              Query(rate("sent", "children"), "{{instance}} sends")),
        graph("From and to the parent", "Bps", "What does the line to the coordinator carry?",
              Query(rate("sent", "parent"), "{{instance}} sends"), Query(rate("received", "parent"), "{{instance}} receives")),
        graph("What it saves upwards", "suffix: x", "Is it worth its place? Bytes of updates from its children, by those that it "
              "sends on. Below 1: few children, with small codecs.",
              Query('sum by (instance) (rate(fluvial_aggregator_update_bytes_total{tier="children"}[$__rate_interval])) / '
                    '(sum by (instance) (rate(fluvial_aggregator_update_bytes_total{tier="parent"}[$__rate_interval])) > 0)',
                    "{{instance}}"), width=8),
        graph("What it saves downwards", "suffix: x", "How often does it hand on a model that it fetched once?",
              Query('sum by (instance) (rate(fluvial_aggregator_model_bytes_total{tier="children"}[$__rate_interval])) / '
                    '(sum by (instance) (rate(fluvial_aggregator_model_bytes_total{tier="parent"}[$__rate_interval])) > 0)',
                    "{{instance}}"), width=8),
        graph("Bytes that wait to be sent", "bytes", "Which line is too slow for what it has to carry?",
              Query("fluvial_aggregator_outbox_bytes", "{{instance}} to its {{tier}}"), width=8),
    ]


def rounds():
    return [
        graph("Participants by state", "none", "Whom does each wait for?",
              Query("fluvial_aggregator_round_sites", "{{instance}}: {{state}}")),
        graph("Partials", "none", "Do its sums arrive? A refused one is made again without whom the parent holds already.",
              Query("sum by (instance, outcome) (increase(fluvial_aggregator_partials_total[$__rate_interval]))",
                    "{{instance}}: {{outcome}}"), stacked=True),
        graph("Sums", "s", "How long does it take to add one update or partial?",
              Query(mean("fluvial_aggregator_merge_seconds", "instance"), "{{instance}}"), width=8),
        graph("Partials on their way", "s", "How long does its sum take to the parent?",
              Query(mean("fluvial_aggregator_partial_seconds", "instance"), "{{instance}}"), width=8),
        graph("Refused, by reason", "none", "What is wrong with what its children send? stale and already_exists are harmless.",
              Query("sum by (instance, reason) (increase(fluvial_aggregator_contributions_refused_total[$__rate_interval])) > 0",
                    "{{instance}}: {{reason}}"), stacked=True, width=8),
        graph("Memory for updates", "bytes", "Does it have room for what comes? Beyond the limit updates go to disk.",
              Query("fluvial_aggregator_staging_bytes", "{{instance}}, in memory"),
              Query("fluvial_aggregator_staging_spilled_bytes", "{{instance}}, on disk"),
              Query("fluvial_aggregator_staging_limit_bytes", "{{instance}}, limit")),
        graph("Model", "none", "Does an aggregator hold the model that the others hold?",
              Query("fluvial_aggregator_model_version", "{{instance}}"), least=None),
    ]


def dashboard():
    return board("fluvial-aggregators", "Fluvial: aggregators",
                 "Does each aggregator stand where it should, and what does it save?", [], [
                     ("Now", now()), ("The tree", tree()), ("Bytes", traffic()), ("Rounds", rounds())])
