// What encoding with one pass and with several have in common; inside this room only.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/store/site_store.h"
#include "edge/update/job.h"
#include "kernels/codec.h"
#include "kernels/stream_key.h"

namespace fluvial::edge {

Result<std::unique_ptr<kernels::Codec>> codec_of(const std::string& text);

kernels::StreamKey key_of(const UpdateJob& job);

// What every submission says of the job; the codec's own fields are the caller's.
store::PendingStart start_of(const UpdateJob& job);

// The check that a parent makes.
Status check_integers(const UpdateJob& job, const std::vector<std::int64_t>& integers);

// The integers, 8 bytes each, little-endian, then the probe.
Buffer trailer_of(const std::vector<std::int64_t>& integers);

void reach(const UpdateJob& job, UpdateJob::Step step);
void reach_encoding(const UpdateJob& job);

}  // namespace fluvial::edge
