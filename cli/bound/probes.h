// What this machine's processor, memory, disk and loopback do, measured here and now: for bound_of() and the textbooks'
// models. Not pure: each probe takes about a tenth of a second of one core, and fsyncs 32 MiB in `folder`.
#pragma once

#include <string>

#include "cli/bound/tree_bound.h"
#include "core/base/result.h"

namespace fluvial::cli::bound {

// The best of several turns each, since what else runs on the machine only adds. Errors name the probe: kInternal, or
// kUnavailable where the machine refuses a socket or a file.
Result<MachineCosts> probe_machine(const std::string& folder);

// Of kernels on one thread, over `params` values of bench updates, at most a few million. kInvalidArgument: a codec
// that takes several passes a round, whose bound is not a sum of the parts below.
Result<CodecCosts> probe_codec(const std::string& codec, std::uint64_t params);

// Of a plan's `down`, as the coordinator encodes and each child decodes it: likewise. kInvalidArgument: no such form.
Result<DownCosts> probe_down(const std::string& down, std::uint64_t params);

// Seconds to add a byte of fp32 to a sum of fp32: the textbooks' gamma.
double probe_addition();

}  // namespace fluvial::cli::bound
