// The independent check of what sites train from (docs/design/down.md), for `fluvial bench tree`: makes it again from
// the committed models, round by round. Shares with the federation only the encoder, as the audit of the sums does
// (bench_audit.h); chunks are decoded by kernels/reference, and added in a plain loop.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/aggregate/down.h"
#include "core/round/plan.h"
#include "core/round/schema.h"

namespace fluvial::cli {

class DownAudit {
 public:
  // `initial`: the values of the run's first model, of one tensor.
  DownAudit(const round::Plan& plan, std::vector<float> initial);

  std::span<const float> trained() const { return trained_; }  // from which the next round trains
  // The model of the next round, and the digest of what sites train from as the federation has it.
  Status committed(std::span<const float> master, const std::string& sha256);

 private:
  Status make(std::span<const float> master);

  aggregate::Down down_;
  std::uint64_t chunk_values_;
  std::uint64_t seed_;
  std::uint64_t round_ = 0;
  round::Schema schema_;
  std::vector<float> trained_;
};

}  // namespace fluvial::cli
