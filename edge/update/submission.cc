#include "edge/update/submission.h"

#include <algorithm>

#include "core/round/integers.h"
#include "core/round/probe.h"
#include "edge/update/resolve.h"

namespace fluvial::edge {

Result<std::unique_ptr<kernels::Codec>> codec_of(const std::string& text) {
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(text));
  return kernels::make_codec(spec);
}

kernels::StreamKey key_of(const UpdateJob& job) {
  return kernels::stream_key(job.plan.seed, job.round.value(), job.site_name);
}

store::PendingStart start_of(const UpdateJob& job) {
  store::PendingStart start;
  start.run = job.run;
  start.round = job.round;
  start.weight = job.weight;
  start.codec = job.plan.codec;
  start.base = job.base_digest;
  start.metrics = job.metrics;
  start.workers = job.workers;
  start.value_count = job.schema.value_count();
  start.chunk_values = job.plan.chunk_values;
  start.chunk_count = job.layout().chunk_count();
  start.integer_count = job.schema.integer_count();
  start.bounds = bounds_of(job.plan);
  start.digest_kind = job.digest_kind;
  return start;
}

Status check_integers(const UpdateJob& job, const std::vector<std::int64_t>& integers) {
  if (integers.empty()) return {};
  std::vector<std::int64_t> base(integers.size());
  round::read_integers(job.schema, job.base, base);
  return round::check_integers(job.schema, base, integers);
}

Buffer trailer_of(const std::vector<std::int64_t>& integers) {
  Buffer trailer(integers.size() * sizeof(std::int64_t) + round::kProbeBytes);
  for (std::size_t i = 0; i < integers.size(); ++i) {
    store_le(trailer.data() + i * sizeof(std::int64_t), static_cast<std::uint64_t>(integers[i]));
  }
  std::ranges::copy(round::probe_bytes(), trailer.data() + integers.size() * sizeof(std::int64_t));
  return trailer;
}

void reach(const UpdateJob& job, UpdateJob::Step step) {
  if (job.reached) job.reached(step);
}

void reach_encoding(const UpdateJob& job) {
  reach(job, UpdateJob::Step::kReduced);
  reach(job, UpdateJob::Step::kEncode);
}

}  // namespace fluvial::edge
