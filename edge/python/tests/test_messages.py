"""The messages that _messages.py declares are those of proto/fluvial/v1/local.proto."""

import pathlib
import shutil
import subprocess

import pytest
from google.protobuf import descriptor_pb2

from fluvial import _messages

PROTO = pathlib.Path(__file__).resolve().parents[3] / "proto"


def compiled_messages(folder):
    out = folder / "all.binpb"
    subprocess.run(
        ["protoc", f"-I{PROTO}", "--include_imports", f"--descriptor_set_out={out}", "fluvial/v1/local.proto"],
        check=True,
        timeout=60,
    )
    files = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes())
    return {message.name: message for file in files.file for message in file.message_type}


def shape(message):
    """What is on the wire: numbers, types and names, without comments and generated JSON names."""
    fields = sorted((f.number, f.name, f.type, f.label, f.type_name, f.HasField("oneof_index")) for f in message.field)
    enums = [(enum.name, [(value.number, value.name) for value in enum.value]) for enum in message.enum_type]
    return fields, enums, [shape(nested) for nested in message.nested_type]


@pytest.mark.skipif(shutil.which("protoc") is None or not PROTO.exists(), reason="needs protoc and the sources")
@pytest.mark.parametrize("name", [*_messages._SHARED, *_messages._LOCAL])
def test_declared_as_compiled(name, tmp_path):
    declared = descriptor_pb2.DescriptorProto()
    _messages.message_class(name).DESCRIPTOR.CopyToProto(declared)
    assert shape(declared) == shape(compiled_messages(tmp_path)[name])
