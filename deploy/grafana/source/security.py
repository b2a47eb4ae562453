"""Who is a member, who is let in and who is not, and what would be lost."""

from panels import BAD, GOOD, LIFE_LEFT, WARNING, Query, bars, board, graph, life_left, listing, number

ALL = "(coordinator|aggregator|site)"


def now():
    return [
        number("Members", "none", "How many are enrolled and not revoked?", "sum(fluvial_coordinator_members_enrolled)", width=3),
        number("In quarantine", "none", "Has a site contradicted itself?", "sum(fluvial_coordinator_sites_quarantined)",
               ((None, GOOD), (1, BAD)), width=3),
        number("First certificate to end", "percentunit", "Does a member fail to renew its certificate? What the first to end "
               "has left of its life; members renew from half of it on.",
               life_left("min(fluvial_coordinator_member_certificate_expiry_timestamp_seconds) - time()"), LIFE_LEFT, width=4),
        number("Last backup", "s", "How much would be lost with the coordinator's disk? The age of the last backup; "
               "nothing: there is none.",
               "time() - (max(fluvial_coordinator_last_backup_timestamp_seconds) > 0)",
               ((None, GOOD), (86400, WARNING), (2 * 86400, BAD)), width=4),
        number("Held twice", "none", "Do two machines show one member's identity: a copied folder, or a stolen key?",
               "max(fluvial_coordinator_identities_held_twice)", ((None, GOOD), (1, BAD)), width=3),
        number("Disk", "none", "Can the coordinator write? 1: it cannot, and promises nothing until it can.",
               "max(fluvial_coordinator_storage_fault)", ((None, GOOD), (1, BAD)), width=3),
        number("Clocks apart", "s", "How wrong is the worst clock? Certificates go by clocks, and logs are compared by them.",
               "max(abs(fluvial_coordinator_clock_offset_seconds))",
               ((None, GOOD), (1, WARNING), (5, BAD)), width=4),
    ]


def members():
    return [
        bars("Certificates", "s", "Whose certificate ends next? The time that is left of each.",
             Query("sort(fluvial_coordinator_member_certificate_expiry_timestamp_seconds - time())", "{{member}}"), height=9),
        listing("Versions", "none", "Who runs which version? Neighbouring versions understand each other; others do not.",
                Query("fluvial_build_info"), hidden=("Value",), width=12, height=9),
        listing("In quarantine", "none", "Which sites take part in no round until somebody clears them? Empty: none.",
                Query("fluvial_coordinator_site_quarantined == 1"), hidden=("Value", "instance"), width=12, height=5),
        listing("Away", "none", "Which members are enrolled and not connected? Revoke those that do not come back.",
                Query("fluvial_coordinator_member_connected == 0"), hidden=("Value", "instance"), width=12, height=5),
    ]


def renewals():
    return [
        graph("Renewals", "none", "Do members get new certificates? again: the first answer was lost; refused: the coordinator's "
              "log says whose and why; too_many: beyond enrol_per_minute_max, and tried again.",
              Query("increase(fluvial_coordinator_renewals_total[$__rate_interval])", "{{result}}"), stacked=True, width=10),
        graph("Renewals that failed", "none", "Which process cannot renew its certificate? It keeps trying, and its log says why "
              "it fails.",
              Query('increase({__name__=~"fluvial_(aggregator|site)_certificate_renewals_total", '
                    'result="failed"}[$__rate_interval])', "{{instance}}"), stacked=True, width=10),
        number("Issued for", "s", "For how long is a new certificate valid? Members renew theirs from half of that on.",
               "max(fluvial_coordinator_certificate_validity_seconds)", width=4, height=8),
    ]


def doors():
    return [
        graph("Connections that were refused or cut", "none", "Who knocks that is no member? not_admitted: revoked, or in "
              "another role; bad_certificate: ended, or of another federation.",
              Query('sum by (reason) (increase({__name__=~"fluvial_%s_sessions_refused_total"}[$__rate_interval])) > 0' % ALL,
                    "{{reason}}"), stacked=True),
        graph("Handshakes that were completed", "none", "Does somebody connect again and again?",
              Query('increase({__name__=~"fluvial_%s_handshakes_total", result="ok"}[$__rate_interval])' % ALL, "{{instance}}"),
              stacked=True),
        graph("Enrolments", "none", "Who became a member, and whose token was refused?",
              Query("increase(fluvial_coordinator_enrolments_total[$__rate_interval])", "{{result}}"), stacked=True, width=8),
        graph("Sessions that were cut", "none", "Does a peer send what is no frame, or does a line damage it?",
              Query('sum by (instance, reason) (increase({__name__=~"fluvial_%s_frames_refused_total"}[$__rate_interval]))' % ALL,
                    "{{instance}}: {{reason}}"), stacked=True, width=8),
        graph("Silent peers", "none", "Whose line or machine goes away without a word?",
              Query('increase({__name__=~"fluvial_%s_heartbeat_timeouts_total"}[$__rate_interval])' % ALL, "{{instance}}"),
              stacked=True, width=8),
    ]


def content():
    return [
        graph("Contributions that were refused", "none", "Does a site send what it must not? data_loss: too large, not finite, "
              "or damaged; invalid_argument: a weight that it may not claim.",
              Query("sum by (reason) (increase(fluvial_coordinator_contributions_refused_total[$__rate_interval])) > 0",
                    "{{reason}}"), stacked=True, width=8),
        graph("Contributions that were not their sites' own", "none", "Does an aggregator change or invent what its sites "
              "contribute? The coordinator's log names it.",
              Query("increase(fluvial_coordinator_contributions_forged_total[$__rate_interval])", "{{instance}}"), width=8),
        graph("Parents that were left", "none", "Whose parent said what the coordinator had not signed?",
              Query('increase({__name__=~"fluvial_(aggregator|site)_parents_distrusted_total"}[$__rate_interval])',
                    "{{instance}}"), width=8),
        graph("Rounds that owners forbid", "none", "Which site declines by its owner's rules, and by which? hours: each day's "
              "pause; runs, cohort: until its owner changes them.",
              Query("increase(fluvial_site_rounds_forbidden_total[$__rate_interval])", "{{instance}}: {{rule}}"), stacked=True,
              width=8),
        graph("Sites in quarantine", "none", "Since when is one there?",
              Query("fluvial_coordinator_sites_quarantined", "sites"), width=8),
        graph("Clocks", "s", "Whose clock is wrong? Ahead of the coordinator's: above 0.",
              Query("fluvial_coordinator_clock_offset_seconds", "{{member}}"), least=None, width=8),
    ]


def dashboard():
    return board("fluvial-security", "Fluvial: security", "Who is a member, who is turned away, and what would be lost?", [], [
        ("Now", now()), ("Members", members()), ("Renewals", renewals()), ("At the door", doors()),
        ("What they send", content())])
