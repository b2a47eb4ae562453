"""Seeds of the fuzzers of messages in sequence."""

import struct

from parts import field, short


# Steps: what act() takes, then how long time passes (0 none, 1 a moment, 4 a while, 5 long).
def parent_sequence():
    opened = b"\0\0\0\0" + b"\1\1\1\1\1\1" + b"\4"  # run 1, round 1, attempt 1; dressed plainly
    model = b"\3\4"
    query, anything = b"\x09", b"\x0d"
    waits = query + b"\3\4"  # its outcome is pending

    def late_run(round):  # an opening of run 2
        return bytes([0, 1, round - 1, 0]) + b"\1\1\1\1\1\1" + b"\4"

    ahead = b"\x0c\4\1\0\2\4"  # the model of round 1 of run 2

    forge_opening = b"\5\0" + struct.pack("<H", 0) + b"\1\1\1\1\1\1"
    return {
        "nothing": b"",
        "opened": opened,
        "trained-and-sent": opened + model,
        "counted": opened + model + b"\6\0\0\0\4",
        "late": opened + model + b"\6\0\0\1\4",
        "refused": opened + model + b"\6\0\0\2\4",
        "asked-and-answered": opened + model + b"\x0f\5" + query + b"\0\4",
        "opening-forged-unsigned": forge_opening + b"\1\4",
        "opening-forged-by-its-own-key": forge_opening + b"\2\4",
        "opening-forged-plan": forge_opening + b"\0\0\1\4",
        "opening-of-another-history": forge_opening + b"\4\4",
        "opening-of-a-far-round": b"\5\0" + struct.pack("<H", 60_000) + b"\1\1\1\1\1\1" + b"\1\4",
        "commit-forged": opened + model + b"\7\0\0\1\0\1\1\0\4",
        "commit-with-a-forged-outcome": opened + model + b"\7\0\0\0\3\1\0\4",
        "reply-forged": opened + model + b"\x08\1\1\1\2\1\1\4",
        "run-over": opened + model + b"\x0a\0\0" + short("enough") + b"\0\4",
        "run-over-forged": opened + model + b"\x0a\0\0" + short("enough") + b"\1\4",
        "receipt-refuses": opened + model + b"\x0b\0\0\1\1" + short("no") + b"\4",
        "model-damaged": opened + b"\x0c\7\0\5" + model,
        "model-of-another-schema": opened + b"\x0c\3" + short("w") + struct.pack("<Q", 1 << 60) + b"\4" + model,
        "cut-in-training": opened + b"\3\1\x0e\4" + opened,
        "two-rounds": opened + model + b"\6\0\0\0\4" + b"\0\0\1\0\1\1\1\1\1\1\4" + model,
        "bytes": anything + short(field(30, field(1, 1))) + short("") + b"\4",
        "a-message-of-a-child": anything + short(field(40, b"")) + short("") + b"\4",
        "late-and-counted-in-the-next-round": late_run(1) + model + late_run(2) + waits + b"\6\1\1\0\4",
        "late-in-training": late_run(1) + b"\3\0" + late_run(2) + b"\x0f\4" + b"\6\1\1\0\4",
        "late-for-every-round": late_run(1) + model + late_run(4) + waits + query + b"\1\4",
        "late-and-sent-once-more": late_run(1) + model + late_run(2) + waits + late_run(2) + waits + b"\6\1\1\0\4",
        "ahead-and-committed": late_run(1) + model + ahead + model + b"\6\1\0\0\4" + late_run(2) + waits,
        "ahead-and-damaged": late_run(1) + model + ahead + b"\x0c\7\0\4" + b"\6\1\0\0\4" + model,
        "ahead-of-another-size": late_run(1) + model + b"\x0c\4\1\0\1" + struct.pack("<Q", 1 << 50) + b"\4" + model,
        "late-rule-forged": b"\5\1" + struct.pack("<H", 1) + b"\1\1\1\1\1\1" + b"\0\x08\2\4",
        "claims-to-have-chunks": b"\0\0\0\0" + b"\1\1\1\1\0\1\1" + struct.pack("<H", 40_000) + b"\1\4" + model,
    }


def child_sequence():
    plain = b"\1\0\1\4\0"  # this round, submission 1, a weight, the value 1
    whole = b"\0" + plain + b"\3"
    begin = b"\2" + plain + b"\x0f\1"
    parts = begin + b"\4\1\1" + b"\4\1\1"
    end = b"\7\0\1" + b"\1" + b"\7" + b"\3"
    next_round = b"\x0f\1\4\x0e\3"
    of_round_1 = b"\0\1\1" + plain[1:]  # of round 1, into the open one
    old = b"\0" + of_round_1 + b"\3"
    return {
        "nothing": b"",
        "whole": whole,
        "whole-twice": whole * 2,
        "other-content": whole + b"\0\1\0\1\4\1\3",
        "not-a-number": b"\0\1\0\1\4\5\3",
        "too-great": b"\0\1\0\1\4\4\3",
        "too-heavy": b"\0\1\0\0" + struct.pack("<I", 1_000_000) + b"\0\3",
        "in-parts": parts + end,
        "unsigned": parts + b"\7\0\1\1\0\4",
        "signed-by-its-sibling": parts + b"\7\0\1\1\1\3",
        "of-other-bytes": parts + b"\7\0\1\1\3\3",
        "wrong-digest": parts + b"\7\0\1\0\7\3",
        "in-the-name-of-its-sibling": b"\2" + plain + b"\0\1\1",
        "cut-and-begun-anew": begin + b"\4\1\1" + b"\x0c\3" + b"\1\x0f\1\3" + whole,
        "other-lease-shown": b"\x09\0\0\1\1\1\1\1\3" + whole,
        "newer-lease": whole + b"\x09\1\0\5\1\1\1\1\3" + whole,
        "declines": b"\x0a\1\1\0\3\1" + short("") + b"\4",
        "declines-for-its-sibling": b"\x0a\1\0\0\3\1" + short("") + b"\4",
        "speaks-for-its-sibling": b"\x0a\1\0\3" + short("x") + b"\1" + short("") + b"\4",
        "a-partial": b"\x0a\1\0\5" + short("") + b"\4",
        "bytes": b"\x0a\1\0\6" + short(field(42, b"")) + short("") + b"\4",
        "parent-lost": whole + b"\x0f\0\5",
        "next-attempt": whole + b"\x0d\4" + whole,
        "next-round": whole + b"\x0f\1\4\x0e\3" + whole,
        "old-into-the-next-round": next_round + old + b"\4",
        "old-into-the-next-round-twice": next_round + old * 2 + b"\4",
        "old-and-then-fresh": next_round + old + whole + b"\x0f\1\4",
        "old-in-parts": next_round + b"\2" + of_round_1 + b"\x0f\1" + b"\4\1\1" + b"\4\1\1" + end,
        "old-for-a-round-of-nobody": next_round + b"\2" + plain + b"\x0d\x09\1" + b"\4\1\1" + b"\4\1\1" + end,
        "too-old": next_round * 3 + old + b"\4",
    }
