"""What seeds are put together from: texts as a fuzzer takes them, and protobuf by hand."""

import struct


def short(text):  # as Input::text() takes it
    data = text if isinstance(text, bytes) else text.encode()
    return bytes([len(data)]) + data


# ---- protobuf, by hand ------------------------------------------------------------------------------------------


def varint(value):
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def field(number, value):
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value if isinstance(value, bytes) else value.encode()
    return varint(number << 3 | 2) + varint(len(data)) + data


def fixed(number, value):
    return varint(number << 3 | 1) + struct.pack("<Q", value)
