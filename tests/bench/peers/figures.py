"""Figures of one measurement from its samples and marks. Pure: see figures_test.py.

A mark is the moment at which a round's result was there at the server. The first mark ends the first round, in which
peers connect, import and allocate; everything is measured between it and the last mark. Where all rounds together take
less than a second, only their time is given: more rounds give the rest.
"""

import bisect
import statistics

INTERVAL_S = 0.05  # between two samples
_SPAN_MIN_S = 20 * INTERVAL_S  # what is counted by samples needs so much time to be more than noise


def at(samples, moment, value):
    """value(sample) at `moment`, by linear interpolation; the first or last sample's outside of them."""
    index = bisect.bisect_left([sample[0] for sample in samples], moment)
    if index == 0:
        return value(samples[0])
    if index == len(samples):
        return value(samples[-1])
    before, after = samples[index - 1], samples[index]
    part = (moment - before[0]) / (after[0] - before[0])
    return value(before) + (value(after) - value(before)) * part


def figures(samples, marks, has_server):
    """A dictionary of figures, or one with "reason" where rounds are missing."""
    if len(marks) < 2:
        return {"reason": f"{len(marks)} rounds ended; at least 2 are needed"}
    first, last, rounds = marks[0], marks[-1], len(marks) - 1
    seconds = [after - before for before, after in zip(marks, marks[1:])]

    def used(role):
        return (at(samples, last, lambda s: s[1][role]) - at(samples, first, lambda s: s[1][role])) / rounds

    short = last - first < _SPAN_MIN_S
    within = [sample for sample in samples if first <= sample[0] <= last] or samples
    server, site = used("server"), used("site")
    return {
        "round_seconds": seconds,
        "round_seconds_median": statistics.median(seconds),
        "server_cpu_seconds": server if has_server and not short else None,
        "all_cpu_seconds": None if short else server + site,
        "server_resident_bytes": max(s[2] for s in within) if has_server else None,
        "server_memory_bytes": max(s[3] for s in within) if has_server else None,
        "bytes": None if short else (at(samples, last, lambda s: s[4]) - at(samples, first, lambda s: s[4])) / rounds,
    }
