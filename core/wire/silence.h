// Protobuf prints what it finds wrong to standard error. A peer must not write there, and callers get an Error anyway.
#pragma once

namespace fluvial::wire {

// Whoever parses or serialises bytes of others calls it first. Thread safe; it acts once in a process.
void silence_protobuf();

}  // namespace fluvial::wire
