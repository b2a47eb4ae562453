#!/usr/bin/env python3
"""Writes the seeds of the fuzzers in the list below, tests/fuzz/corpus/NAME, the same bytes every time (those of codec:
codec_seeds.cc). Files beside them, such as inputs that found something, stay.

    seeds.py FOLDER            writes them
    seeds.py --check FOLDER    fails when one of them is not as it would be written
"""

import base64
import hashlib
import pathlib
import struct
import sys

from certificates import AUTHORITY, CERTIFICATE, CSR_ED25519, CSR_P256, KEY_ED25519, KEY_P256, der, pem
from parts import field, fixed, short, varint
from sequences import child_sequence, parent_sequence


# ---- one list a fuzzer ------------------------------------------------------------------------------------------


def token(role=1, expires=2_000_000_000, name="hospital-a", address="", pin=b"\x22" * 32):
    body = bytes([role]) + struct.pack("<Q", expires) + b"\x11" * 32 + pin + short(name) + short(address)
    body += hashlib.sha256(body).digest()[:4]
    return b"fluvial-1." + base64.urlsafe_b64encode(body).rstrip(b"=")


def tokens():
    good = token()
    return {
        "text-site": b"\0" + good,
        "text-aggregator-with-address": b"\0" + token(role=2, name="eu-west", address="root.example:7444"),
        "text-several": b"\0" + token(name="clinic-*"),
        "text-within-blanks": b"\0 \t" + good + b"\r\n",
        "text-damaged": b"\0" + good[:-1] + b"A",
        "text-cut-short": b"\0" + good[:40],
        "text-of-another-version": b"\0fluvial-2.AAAA",
        "text-none": b"\0hello",
        "payload-site": b"\1\1" + struct.pack("<Q", 2_000_000_000) + b"\x11\x22" + short("hospital-a") + short(""),
        "payload-address-port-0": b"\1\2" + struct.pack("<Q", 1) + b"\x11\x22" + short("a") + short("host:0"),
        "payload-year-10000": b"\1\1" + struct.pack("<Q", 253402300800) + b"\x11\x22" + short("a"),
        "payload-with-more": b"\1\1" + struct.pack("<Q", 1) + b"\x11\x22" + short("a") + short("") + short("more"),
        "make-site": b"\2\2" + struct.pack("<II", 1, 2_000_000_000) + short("hospital-a") + short("eu/west"),
        "make-several": b"\2\2" + struct.pack("<II", 9, 2_000_000_000) + short("clinic") + short(""),
    }


def names():
    texts = {
        "name": (0, "hospital-a"),
        "name-of-63": (0, "a" * 63),
        "name-of-64": (0, "a" * 64),
        "name-upper-case": (0, "Hospital"),
        "name-with-a-line": (0, "a\nb"),
        "region": (0, "eu/west/paris"),
        "region-of-9": (0, "a/b/c/d/e/f/g/h/i"),
        "region-empty-part": (0, "eu//west"),
        "token-several": (0, "clinic-*"),
        "token-several-of-51": (0, "a" * 51 + "-*"),
        "uri-site": (1, "fluvial://site/7/hospital-a"),
        "uri-leading-zero": (1, "fluvial://site/07/hospital-a"),
        "uri-node-0": (1, "fluvial://site/0/hospital-a"),
        "uri-node-2-to-the-32": (1, "fluvial://site/4294967296/a"),
        "uri-operator": (1, "fluvial://operator/3/ada"),
        "uri-with-more": (1, "fluvial://site/7/a/b"),
        "role": (2, "aggregator"),
        "remote-v4": (2, "192.0.2.7:443"),
        "remote-v6": (2, "[2001:db8::7]:443"),
        "remote-v4-in-v6": (2, "[::ffff:192.0.2.7]:443"),
        "address-name": (3, "root.example:7443"),
        "address-v6": (3, "[::1]:7443"),
        "address-port-only": (3, ":7400"),
        "address-port-65536": (3, "host:65536"),
        "address-bracket-in-brackets": (3, "[[a]:1"),
        "address-escape": (3, "\x1b[2J:x"),
        "proxy": (4, "http://user:pass%20word@proxy.example:3128/"),
        "proxy-with-a-line": (4, "http://user:a%0d%0aX: y@proxy:1"),
        "proxy-v6": (4, "http://[::1]"),
        "no-proxy": (4, "localhost, .example.org,10.0.0.0/8 [::1]:7400,*"),
        "proxy-answer": (5, "HTTP/1.1 200 Connection established\r\n\r\n"),
        "proxy-answer-credentials": (5, "HTTP/1.0 407 \x1b[2J\r\n\r\n"),
        "proxy-answer-of-ssh": (5, "SSH-2.0-OpenSSH_9.2\r\n"),
    }
    return {name: bytes([reader]) + text.encode() for name, (reader, text) in texts.items()}


def certificates():
    grant = b"\2\7\1" + struct.pack("<I", 3600)  # a site, node 7, "hospital-a", an hour
    return {
        "der-member": b"\0" + der(CERTIFICATE),
        "der-authority": b"\0" + der(AUTHORITY),
        "der-cut-short": b"\0" + der(CERTIFICATE)[:-3],
        "der-with-more": b"\0" + der(CERTIFICATE) + b"\0",
        "pem-member": b"\1" + pem(CERTIFICATE),
        "pem-chain": b"\1" + pem(CERTIFICATE, AUTHORITY),
        "pem-five": b"\1" + pem(*[AUTHORITY] * 5),
        "pem-text-around": b"\1# a comment\n" + pem(CERTIFICATE) + b"more",
        "key-ed25519": b"\2" + der(KEY_ED25519),
        "key-p256": b"\2" + der(KEY_P256),
        "request-ed25519": b"\3" + grant + der(CSR_ED25519),
        "request-p256": b"\3" + grant + der(CSR_P256),
        "request-of-another-signature": b"\3" + grant + der(CSR_ED25519)[:-1] + b"\0",
        "made-request-ed25519": b"\4" + grant + b"\0\1\1\0\0\1\1",
        "made-request-p256": b"\4" + grant + b"\1\1\1\0\0\1\1",
        "made-request-p384": b"\4" + grant + b"\2\1\1\0\0\1\1",
        "made-request-rsa": b"\4" + grant + b"\3\1\1\0\0\1\1",
        "made-request-signed-by-another": b"\4" + grant + b"\0\0\1\0\0\1\1",
        "made-member": b"\5\0" + short("\x01\x02") + b"\0\0" + b"\1\1\1" + b"\1\1\1" + b"\1",
        "made-two-names": b"\5\0" + short("\x01") + b"\0\0" + b"\2\1\1\1\1" + b"\1\1\1" + b"\1",
        "made-authority": b"\5\0" + short("\x01") + b"\0\0" + b"\1\1\1" + b"\1\0\1" + b"\1",
        "made-without-usage": b"\5\0" + short("\x01") + b"\0\0" + b"\1\1\1" + b"\0\1" + b"\1",
        "made-with-a-date-of-nobody": b"\5\0" + short("\x01") + b"\1" + short("99999999999999Z") + b"\0\1\1\1\1\1\1\1",
    }


def enrolments():
    answer = field(5, 7) + field(6, "hospital-a") + field(7, 3) + field(9, 7443)
    return {
        "answer-bytes": b"\0" + answer,
        "answer-other-node": b"\0" + field(5, 8),
        "answer-refused": b"\0" + field(1, 5) + field(2, "wrong token"),
        "answer-many-authorities": b"\0" + field(4, pem(*[AUTHORITY] * 3)),
        "request-bytes": b"\1" + field(1, b"s" * 32) + field(2, der(CSR_ED25519)),
        "request-short-secret": b"\1" + field(1, b"s"),
        "request-own": b"\2\1\0\1",
        "request-other-secret": b"\2\0\5\6\0\1",
        "request-other-csr": b"\2\1\0\0" + der(CSR_P256),
        "made-right": b"\3\0\x0f",
        **{f"made-certificate-{i}": bytes([3, i, 15]) for i in range(1, 9)},
        "made-foreign-authority": b"\3\0\0",
        "made-two-authorities": b"\3\2\x09",
        "made-other-name": b"\3\0\3" + short("hospital-b"),
        "made-region-of-nobody": b"\3\0\5" + short("EU"),
        "made-port-0": b"\3\0\6" + struct.pack("<I", 0),
        **{f"renewal-certificate-{i}": bytes([4, i, 7]) for i in range(9)},
        "renewal-foreign-authority": b"\4\2\0",
        "renewal-refused": b"\4\0\2\4",
        "renewal-bytes": b"\4\0\3" + field(4, pem(AUTHORITY)),
        "made-refused-with-a-line": b"\3\0\x08\4" + short("a\nb"),
    }


def model_files():
    header = '{"w":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"n":{"dtype":"I64","shape":[1],"data_offsets":[24,32]}}'
    padded = header + " " * (-len(header) % 8)
    whole = struct.pack("<Q", len(padded)) + padded.encode()
    bad = {
        "gap": '{"w":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}}',
        "overlap": header.replace("[24,32]", "[16,24]"),
        "twice": '{"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}',
        "negative": '{"w":{"dtype":"F32","shape":[-1],"data_offsets":[0,0]}}',
        "overflow": '{"w":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]}}',
        "line-in-a-name": '{"a\\nb":{"dtype":"F64","shape":[2],"data_offsets":[0,8]}}',
        "deep": "[" * 40 + "]" * 40,
        "dtype-of-a-line": '{"w":{"dtype":"a\\u001bb","shape":[2],"data_offsets":[0,8]}}',
    }
    return {
        "file": b"\0" + whole + b"x" * 32,
        "file-cut-in-the-header": b"\0" + whole[:40],
        "file-cut-in-the-data": b"\0" + whole + b"x" * 31,
        "file-header-of-2-to-the-63": b"\0" + struct.pack("<Q", 1 << 63) + b"{}",
        "file-empty": b"\0",
        "header": b"\1" + struct.pack("<H", 32) + header.encode(),
        "header-metadata": b"\1" + struct.pack("<H", 32) + (header[:-1] + ',"__metadata__":{"a":"b"}}').encode(),
        **{f"header-{name}": b"\1" + struct.pack("<H", 8) + text.encode() for name, text in bad.items()},
        "schema": b'\2[{"name":"w","dtype":"F32","shape":[3,2]}]',
        "schema-unknown-key": b'\2[{"name":"w","dtype":"F32","shap":[3,2]}]',
        "made-two-tensors": b"\3\1" + b"\0\2\1\2\1\3\1\1\1" + b"\4\1\1\1\1\1\1" + b"\0\1",
        "made-three-with-metadata": b"\3\2" + b"\0\1\1\2\1\1\1" * 3 + b"\1" + short("pt") + b"\1",
    }


def model_forms():
    def chunk(content):
        return struct.pack("<I", len(content)) + content

    others = b"abc" + struct.pack("<q", 9)
    halves = [struct.pack("<e", value) for value in (0.5, -1, 2)]
    whole = chunk(b"".join(halves) + bytes(26)) + chunk(bytes(18)) + others
    return {
        "fp16": b"\0\0" + whole,
        "bf16": b"\0\1" + chunk(bytes(32)) + chunk(b"\x80\x3f" * 9) + others,
        "difference": b"\0\2" + whole,
        "difference-bf16": b"\0\3" + whole,
        "not-finite": b"\0\0" + chunk(b"\x00\x7c" * 16) + chunk(bytes(18)) + others,
        "cut": b"\0\2" + whole[:-1],
        "more": b"\0\2" + whole + b"x",
        "chunk-beyond-the-end": b"\0\0" + struct.pack("<I", 0xFFFFFFFF) + bytes(32),
        "announced": b"\1" + short("int8:block=256,rounding=stochastic") + struct.pack("<QQ", 16, 60) + b"\1" + struct.pack("<Q", 111),
        "announced-too-long": b"\1" + short("fp16") + struct.pack("<QQ", 16, 1 << 40) + b"\0",
        "announced-nonsense": b"\1" + short("a\nb") + struct.pack("<QQ", 0, 0),
    }


def toml():
    plan = 'name = "digits"\nrounds = 20\ncodec = "int8"\n[deadlines]\nsoft_ms = 1000\nhard_ms = 2000\n[worker]\nlr = 0.1\n'
    edge = 'data_dir = "/var/lib/fluvial"\ncoordinator = "127.0.0.1:7443"\n'
    return {
        "plan": b"\0" + plan.encode(),
        "plan-optimizer": b'\0name = "a"\n[optimizer]\nname = "fedadam:lr=0.02"\nlearning_rate = 0.5\n',
        "plan-without-a-name": b"\0rounds = 2\n",
        "plan-key-of-a-line": b'\0name = "a"\n"a\\nb" = 1\n',
        "plan-value-of-a-line": b'\0name = "a"\ncodec = "x\\u001b[2J"\n',
        "plan-key-twice-by-a-dot": b'\0name = "a"\n"deadlines.soft_ms" = 5\n[deadlines]\nsoft_ms = 6\n',
        "plan-not-toml": b"\0name = = 2",
        "plan-nested": b"\0a = " + b"[" * 300 + b"]" * 300,
        "plan-key-of-many-segments": b'\0name = "a"\na' + b".a" * 15_000 + b" = 1",
        "plan-header-of-many-segments": b'\0name = "a"\n[a' + b".a" * 15_000 + b"]\nb = 1",
        "plan-tables-in-tables": b"\0a = " + b"{a.a.a.a = " * 300,
        "plan-json": b'\1{"name":"digits","rounds":3,"worker":{"lr":0.1}}',
        "plan-worker": b"\0" + plan.encode() + b'net = "small"\non = true\nwidths = [8, 16.5]\nnames = ["a", "b"]\n',
        "plan-schedule": b"\0" + plan.encode() + b'rate = {start = 0.1, decay = 0.5, every = 3}\n[worker.m]\nstart = 1\nend = 0\n',
        "plan-worker-quoted": b"\0" + plan.encode() + b'"a.b" = "\\"\\\\"\n"" = 1\n',
        "plan-json-worker": b'\1{"name":"a","worker":{"t":"x","b":false,"n":[1],"s":{"schedule":"cosine","start":1,"warmup":2}}}',
        "plan-json-unknown-key": b'\1{"name":"digits","roundz":3}',
        "coordinator": b'\2data_dir = "/c"\n[session]\nheartbeat_interval_ms = 100\nheartbeat_timeout_ms = 1000\n',
        "coordinator-conflict": b'\2data_dir = "/c"\n[session]\nheartbeat_interval_ms = 100\nheartbeat_timeout_ms = 100\n',
        "aggregator": b"\3" + edge.encode() + b'advertise = "127.0.0.1:0"\n',
        "edge": b"\4" + edge.encode() + b'gpus = "auto"\n',
        "edge-unknown-key": b"\4" + edge.encode() + b"datadir = 1\n",
        **{f"made-{kind}": bytes([5, kind]) + b"\1" * 4 + b"\5" + bytes(range(40)) for kind in range(4)},
    }


def http():
    bodies = {
        "token": '{"name":"hospital-a","role":"site","region":"eu","weight_max":100,"uses":1,"valid_s":3600}',
        "null": '{"name":null,"uses":null}',
        "negative": '{"uses":-1,"name":5}',
        "array": "[1]",
        "plan": '{"plan":{"name":"digits","rounds":2},"model":"m.safetensors","continue":3}',
        "deep": "[" * 40 + "]" * 40,
    }
    targets = {
        "plain": "/v1/nodes",
        "query": "/v1/rounds?run=1&limit=5&json",
        "percent": "/v1/nodes/%61%2f%25/revoke?x=%26",
        "percent-malformed": "/v1/%zz",
        "byte-ff": "/v1/%ff%0a",
        "no-slash": "v1",
        "twice": "/a?k=1&k=2",
    }
    get, post = b"\1\1\0", b"\1\1\1"
    return {
        **{f"target-{name}": b"\0" + text.encode() for name, text in targets.items()},
        "route-list": get + b"\2\2\1\0\1\1",
        "route-watch": get + b"\2\3\1\0\1\2\1\3",
        "route-round": get + b"\2\3\1\0\1\2\0" + short("17"),
        "route-revoke": post + b"\2\4\1\0\1\1\1\6\1\4",
        "route-revoke-by-a-reader": post + b"\1\4\1\0\1\1\1\6\1\4",
        "route-of-bytes": get + b"\2\2\1\0\0" + short(b"\xff\n\x1b"),
        "route-of-a-method-of-bytes": b"\1\0" + short(b"\xff\"") + b"\2\1\1\0",
        "error-text": b"\2no such node",
        "error-bytes": b"\2\xff\xc0\"\\\n\x7f",
        "number": b"\3" + b"18446744073709551615",
        "number-too-great": b"\3" + b"18446744073709551616",
        "number-of-bytes": b"\3\x1b[2J",
        **{f"body-{name}": b"\4" + text.encode() for name, text in bodies.items()},
    }


def statements():
    opening = b"\2\0" + struct.pack("<H", 3) + b"\0" + struct.pack("<H", 9) + b"\7\4\1\x0a\1\2"
    commit = b"\3\0" + struct.pack("<H", 3) + b"\0\7\0"
    signing, whole = b"\1\1\1", b"\0\1"  # by the coordinator, in this history; not damaged
    damaged = b"\1\0" + struct.pack("<H", 5) + b"\3"
    term = struct.pack("<IBQBBB", 5, 1, 9, 2, 1, 7)
    said = b"\1\5" + b"\1\6" + b"\1" + short("77")
    outcome = b"\0\7\1" + whole
    return {
        "lease": b"\0" + term + b"\0" + whole,
        "lease-by-another": b"\0" + term + b"\1" + whole,
        "lease-damaged": b"\0" + term + b"\0" + damaged,
        "denials": b"\1" + b"\1\3" + said + b"\1" + whole + b"\0\1\1\1",
        "denials-then-more": b"\1" + b"\1\3" + said + b"\1" + whole + b"\0\1\1\1" + b"\1\4\0\0\0\1" + whole + b"\1",
        "denials-then-fewer": b"\1" + b"\1\3" + said + b"\1" + whole + b"\0\1\1\1" + b"\1\2\0\0\0\1" + whole + b"\1",
        "denials-by-another": b"\1" + b"\1\3" + said + b"\1" + whole + b"\0\1\1\1" + b"\1\4\0\0\0\0\0" + whole + b"\1",
        "opening": opening + signing + whole + b"\x0f",
        **{f"opening-changed-{i:02}": opening + signing + whole + bytes([i]) for i in range(15)},
        "opening-by-another": opening + b"\0\1\1" + whole + b"\x0f",
        "opening-of-another-history": opening + b"\1\0\5\1" + whole + b"\x0f",
        "opening-of-another-kind": opening + b"\1\1\0" + whole + b"\x0f",
        "opening-damaged": opening + signing + damaged + b"\x0f",
        "commit": commit + signing + short("head") + whole + b"\x0f" + signing + outcome,
        **{f"commit-changed-{i}": commit + signing + short("") + whole + bytes([i]) + signing + outcome for i in range(5)},
        "commit-with-an-outcome-of-another": commit + signing + short("") + whole + b"\x0f" + signing + b"\0\7\0" + whole,
        "run-over": b"\4\0\0" + signing + whole + b"\0",
        "run-over-changed": b"\4\0\0" + signing + whole + b"\1",
        "histories": b"\5" + field(3, fixed(1, 7) + field(2, 40) + field(3, 4) + field(4, field(1, 3) + field(2, 8))),
        "body-lease": b"\6\0" + field(1, 5) + field(3, 9),
        "body-denials": b"\6\1" + fixed(1, 7) + field(2, 3) + field(3, 5),
        "body-outcome": b"\6\2" + field(1, 10) + field(2, 3) + field(3, 5) + field(4, 2) + field(5, b"x" * 32) + fixed(6, 7),
        "body-opening": b"\6\3" + field(1, 10),
    }


# Four columns a seed: what damage_rows() takes, with a value for AnyValue.
def rows(kind, columns, values):
    seeds = {}
    for first in range(0, columns, 4):
        for name, value in values.items():
            damage = b"".join(bytes([column, 0, 1]) + value for column in range(first, first + 4))
            seeds[f"rows-{first:03}-{name}"] = kind + b"\3" + damage
    return seeds


VALUES = {
    "number": b"\0" + struct.pack("<q", -(1 << 62)),
    "text": b"\5" + short("../x\n"),
}


def journal():
    seeds = rows(b"\1", 144, VALUES)
    seeds["bytes-of-the-header"] = b"\0\1" + struct.pack("<I", 18) + b"\0\7" + struct.pack("<I", 100) + b"\3abcd"
    seeds["bytes-cut"] = b"\0\0" + struct.pack("<I", 4096) + b"\0x\x0f" + struct.pack("<I", 8192)
    seeds["whole"] = b"\1\0\0\3\1\7\1\1"
    return seeds


def site_store():
    seeds = rows(b"\2", 48, VALUES)
    seeds["bytes-of-the-database"] = b"\0\1" + struct.pack("<I", 4100) + b"\0\7" + struct.pack("<I", 100) + b"\3abcd"
    seeds["bytes-of-a-tensor"] = b"\1\0\0" + struct.pack("<I", 4) + b"\3abcd"
    seeds["tensor-cut"] = b"\1\1\0" + struct.pack("<I", 4) + b"\0x\x0f" + struct.pack("<I", 5)
    return seeds


def local():
    attach = field(1, field(1, 1) + field(2, "gpu-0"))
    schema = field(1, field(1, "w") + field(2, "F32") + field(3, varint(4)))
    values = field(9, field(1, "lr") + b"\x11" + struct.pack("<d", 0.5))
    values += field(12, field(1, "net") + field(2, 2) + field(4, "small"))
    values += field(12, field(1, "on") + field(2, 1) + field(3, struct.pack("<d", 1)))
    values += field(12, field(1, "widths") + field(2, 3) + field(3, struct.pack("<dd", 8, 16)))
    task = field(1, 7) + field(2, 1) + field(3, 3) + field(6, schema) + field(7, 16) + values
    message, ranges = 5, b"\0"  # Agent::step's: a message of a worker's; none of fill_ranges()
    quiet = b"\0\1"  # no descriptor, in one part
    memory = b"\4\1\1\1\1"  # one, a memfd of the model's size and seals; in one part
    attaching = bytes([message, 0, 1, 1, 1]) + quiet
    assign = b"\0\1"
    done = bytes([message, 2, 1, 1, 1]) + ranges + b"\1"  # no memory of a device
    ready = bytes([message, 1, 1, 1, 1]) + b"\1\1\1\1\1" + b"\1"
    return {
        "message-attach": b"\0" + attach,
        "message-task": b"\0" + field(3, task),
        "message-of-nobody": b"\0\xff\xff",
        "attach": b"\1" + attaching,
        "attach-and-train": b"\1" + attaching + assign + done + b"\0" + memory,
        "attach-and-evaluate": b"\1" + bytes([message, 0, 1, 0, 1]) + quiet + b"\0\0" + bytes([message, 3, 0]) + quiet,
        "ready-then-done": b"\1" + attaching + assign + ready + memory + done + b"\0" + quiet,
        "done-without-memory": b"\1" + attaching + assign + done + b"\0" + quiet,
        "done-with-two": b"\1" + attaching + assign + done + b"\0" + b"\7\2" + b"\1\1\1" * 2 + b"\1",
        "attach-train-and-read": b"\1" + attaching + assign + b"\4" + done + b"\0" + memory + b"\4",
        "done-twice": b"\1" + attaching + assign + (done + b"\0" + memory) * 2,
        "done-without-a-task": b"\1" + attaching + done + b"\0" + memory,
        "fails": b"\1" + attaching + assign + bytes([message, 4, 1]) + short("out of\nmemory") + quiet,
        "garbage": b"\1\1" + short("GET / HTTP/1.1\r\n\r\n") + quiet,
        "breaks-off": b"\1\1" + short("\x10") + quiet + b"\3\0",
        "in-two-parts": b"\1" + bytes([message, 0, 1, 1, 1]) + b"\0\0\3",
    }


CORPORA = {
    "token": tokens,
    "names": names,
    "certificate": certificates,
    "enrol": enrolments,
    "safetensors": model_files,
    "model_form": model_forms,
    "toml": toml,
    "http": http,
    "statement": statements,
    "journal": journal,
    "site_store": site_store,
    "local": local,
    "parent_sequence": parent_sequence,
    "child_sequence": child_sequence,
}


def main(arguments):
    check = arguments[:1] == ["--check"]
    if len(arguments) != 1 + check:
        sys.exit(__doc__)
    folder, seeds, different = pathlib.Path(arguments[-1]), 0, []
    for path, content in ((folder / name / seed, content) for name, make in CORPORA.items() for seed, content in make().items()):
        seeds += 1
        if not check:
            path.parent.mkdir(exist_ok=True)
            path.write_bytes(content)
        elif not path.is_file() or path.read_bytes() != content:
            different.append(str(path))
    for path in different:
        print(f"{path}: not as it would be written; seeds.py {folder} writes it", file=sys.stderr)
    print(f"{seeds} seeds")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
