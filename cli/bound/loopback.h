// A TCP connection of this process to itself. Inside cli/bound/ only.
#pragma once

#include "core/base/result.h"

namespace fluvial::cli::bound {

struct LoopbackCosts {
  double alpha_s = 0;     // half a round trip of one byte, on the clock
  double cpu_s_byte = 0;  // processor-seconds to send and receive a byte, both ends
};

// kUnavailable: no socket, or a connection that broke.
Result<LoopbackCosts> probe_loopback();

}  // namespace fluvial::cli::bound
