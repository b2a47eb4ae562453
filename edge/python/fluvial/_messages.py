"""The messages of the local protocol (docs/formats/local.md).

They are declared here and not generated: generated code is tied to a version of protobuf, and there are few of them. A
test compares them, field by field, with what protoc makes of proto/fluvial/v1/local.proto.
"""

from __future__ import annotations

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTOCOL = 2
PACKAGE = "fluvial.v1"

_FIELD = descriptor_pb2.FieldDescriptorProto
_SCALARS = {
    "uint32": _FIELD.TYPE_UINT32,
    "uint64": _FIELD.TYPE_UINT64,
    "bool": _FIELD.TYPE_BOOL,
    "double": _FIELD.TYPE_DOUBLE,
    "string": _FIELD.TYPE_STRING,
    "bytes": _FIELD.TYPE_BYTES,
}

# message: fields as "type name", numbered in order; "repeated" and "map" as in a .proto file.
_SHARED = {
    "Schema": ["repeated Tensor tensors"],
    "Tensor": ["string name", "string dtype", "repeated uint64 shape"],
    "WorkerValue": ["string name", "WorkerValue.Kind kind", "repeated double numbers", "repeated string texts"],
}
_LOCAL = {
    "LocalMessage": [
        "Attach attach",
        "Attached attached",
        "Task task",
        "TaskDone task_done",
        "TaskFailed task_failed",
        "Detach detach",
        "RunEnded run_ended",
        "TaskReady task_ready",
        "Committed committed",
        "UpdateRefused update_refused",
        "TaskRanges task_ranges",
        "RunActive run_active",
    ],
    "Attach": [
        "uint32 protocol",
        "string worker",
        "bool evaluates",
        "string group",
        "uint32 rank",
        "uint32 ranks",
        "bool wants_models",
        "bool takes_kept_models",
        "bool hears_refusals",
        "repeated uint64 follows",
        "bool named",
    ],
    "Range": ["uint64 first_byte", "uint64 bytes"],
    "Previous": ["uint64 round", "Previous.Outcome outcome"],
    "Attached": [
        "string node",
        "uint32 code",
        "string message",
        "repeated bytes devices",
        "repeated RunEnded ended",
        "repeated RunActive active",
    ],
    "DeviceMemory": ["bytes device", "bytes handle", "uint64 first_byte"],
    "Task": [
        "uint64 id",
        "Task.Kind kind",
        "uint64 run",
        "uint64 round",
        "uint64 version",
        "Schema schema",
        "uint64 model_bytes",
        "uint64 local_steps",
        "map<string, double> parameters",
        "string run_name",
        "Previous previous",
        "repeated WorkerValue values",
        "string optimizer",
        "uint64 weight_max",
    ],
    "TaskReady": [
        "uint64 id",
        "repeated Range ranges",
        "uint64 weight",
        "bool update",
        "DeviceMemory device",
    ],
    "TaskDone": [
        "uint64 id",
        "uint64 weight",
        "map<string, double> metrics",
        "bool update",
        "DeviceMemory device",
    ],
    "TaskRanges": ["uint64 id", "repeated uint64 numbers"],
    "TaskFailed": ["uint64 id", "string message"],
    "Detach": ["string reason", "bool replaced"],
    "RunActive": ["uint64 run", "string run_name"],
    "RunEnded": ["uint64 run", "string run_name", "string state"],
    "Committed": ["uint64 run", "string run_name", "uint64 round", "uint64 version", "uint64 model_bytes"],
    "UpdateRefused": ["uint64 run", "uint64 round", "string reason", "uint64 weight_max"],
}
_ENUMS = {
    "WorkerValue": ("Kind", ["KIND_UNSPECIFIED", "KIND_BOOLEAN", "KIND_TEXT", "KIND_NUMBERS", "KIND_TEXTS"]),
    "Task": ("Kind", ["KIND_UNSPECIFIED", "KIND_TRAIN", "KIND_EVALUATE"]),
    "Previous": (
        "Outcome",
        [
            "OUTCOME_UNKNOWN",
            "OUTCOME_PENDING",
            "OUTCOME_COUNTED",
            "OUTCOME_LATE",
            "OUTCOME_REFUSED",
            "OUTCOME_UNUSED",
        ],
    ),
}


def _camel(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("_"))


def _add_map(message: descriptor_pb2.DescriptorProto, field: descriptor_pb2.FieldDescriptorProto) -> None:
    """A map from text to numbers: what the protobuf language makes of map<string, double>."""
    entry = message.nested_type.add(name=_camel(field.name) + "Entry")
    entry.field.add(name="key", number=1, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_STRING)
    entry.field.add(name="value", number=2, label=_FIELD.LABEL_OPTIONAL, type=_FIELD.TYPE_DOUBLE)
    entry.options.map_entry = True
    field.label = _FIELD.LABEL_REPEATED
    field.type = _FIELD.TYPE_MESSAGE
    field.type_name = f".{PACKAGE}.{message.name}.{entry.name}"


def _add_field(message: descriptor_pb2.DescriptorProto, number: int, text: str) -> None:
    kind, _, name = text.rpartition(" ")
    field = message.field.add(name=name, number=number, label=_FIELD.LABEL_OPTIONAL)
    if kind.startswith("map<"):
        _add_map(message, field)
        return
    if kind.startswith("repeated "):
        kind = kind.removeprefix("repeated ")
        field.label = _FIELD.LABEL_REPEATED
    if kind in _SCALARS:
        field.type = _SCALARS[kind]
    else:
        field.type = _FIELD.TYPE_ENUM if "." in kind else _FIELD.TYPE_MESSAGE
        field.type_name = f".{PACKAGE}.{kind}"


def _file(name: str, messages: dict[str, list[str]]) -> descriptor_pb2.FileDescriptorProto:
    file = descriptor_pb2.FileDescriptorProto(name=name, package=PACKAGE, syntax="proto3")
    for message_name, fields in messages.items():
        message = file.message_type.add(name=message_name)
        if message_name in _ENUMS:
            enum_name, values = _ENUMS[message_name]
            enum = message.enum_type.add(name=enum_name)
            for number, value in enumerate(values):
                enum.value.add(name=value, number=number)
        for number, field in enumerate(fields, start=1):
            _add_field(message, number, field)
    return file


def _declare() -> descriptor_pool.DescriptorPool:
    shared = _file("fluvial/v1/shared.proto", _SHARED)
    local = _file("fluvial/v1/local.proto", _LOCAL)
    local.dependency.append(shared.name)
    body = local.message_type[0]
    body.oneof_decl.add(name="body")
    for field in body.field:
        field.oneof_index = 0
    pool = descriptor_pool.DescriptorPool()  # of its own: no clash with another package's messages
    for file in (shared, local):
        pool.Add(file) if hasattr(pool, "Add") else pool.AddSerializedFile(file.SerializeToString())
    return pool


_POOL = _declare()


def message_class(name: str) -> type:
    descriptor = _POOL.FindMessageTypeByName(f"{PACKAGE}.{name}")
    if hasattr(message_factory, "GetMessageClass"):
        return message_factory.GetMessageClass(descriptor)
    return message_factory.MessageFactory(_POOL).GetPrototype(descriptor)  # type: ignore[attr-defined]


def check_run(run: object) -> None:
    """TypeError: what names a run here is its name; its number is for the coordinator."""
    if not isinstance(run, str):
        raise TypeError(f"run is {run!r}, a {type(run).__name__}; workers and evaluators go by a run's name, a text")


LocalMessage = message_class("LocalMessage")
KIND_TRAIN = 1
KIND_EVALUATE = 2
OUTCOMES = tuple(value.removeprefix("OUTCOME_").lower() for value in _ENUMS["Previous"][1])
