// The federation's side of what an audit follows, in small: the kernels and the accumulator that the real nodes use, in
// rounds of one pass.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "cli/bench_audit.h"
#include "cli/bench_update.h"
#include "core/aggregate/accumulator.h"
#include "core/aggregate/scale.h"
#include "core/aggregate/server_optimizer.h"
#include "core/digest/sha256.h"
#include "core/digest/submission_digest.h"
#include "core/round/probe.h"
#include "kernels/stream_key.h"
#include "kernels/vector.h"

namespace fluvial::cli {

inline constexpr std::size_t kParams = 5'000;
inline constexpr std::uint64_t kSeed = 7;

// What becomes of the update of a site that is not in: it had sent it, it had not, or it was killed while it trained.
enum class Late { kSent, kFolded, kLost };

class Federation {
 public:
  Federation(const round::Plan& plan, std::vector<AuditSite> sites)
      : plan_(plan),
        sites_(std::move(sites)),
        codec_(kernels::make_codec(kernels::parse_codec(plan.codec).value()).value()) {
    scale_ = aggregate::scale_for(plan, sites_.size() * kBenchWeightMax).value();
    residuals_.assign(sites_.size(), std::vector<float>(kParams));
    for (std::size_t s = 0; s < sites_.size(); ++s) states_.push_back(zeros(codec_->state_bytes(schema())));
    state_ = aggregate::initial_state(plan.optimizer, kParams);
  }

  // As the admin API tells of it. `late` is not in.
  json::object round(std::uint64_t number, const std::vector<float>& base, std::vector<float>& next, std::size_t late,
                     Late fate = Late::kSent) {
    aggregate::Accumulator sum(schema().layout, 0, scale_);
    std::uint64_t weights = 0;
    json::array contributors;
    for (std::size_t s = 0; s < sites_.size(); ++s) {
      if (s == late && fate == Late::kLost) continue;
      std::vector<float> p = fold(number, base, s, s != late || fate == Late::kSent);
      if (s == late) {
        residuals_[s] = std::move(p);
        continue;
      }
      const auto weight = bench_weight(sites_[s].index);
      const std::string digest = send(number, s, p, weight, sum);
      weights += weight;
      contributors.push_back(json::object{{"site", sites_[s].node}, {"weight", weight}, {"digest", digest}});
    }
    next = base;
    step(number, sum, weights, next);
    json::object told = {{"round", number},
                         {"participants", sites_.size()},
                         {"contributors", contributors},
                         {"weight", weights},
                         {"sum_sha256", to_hex(sha256(std::as_bytes(sum.sum())))}};
    if (!handed_.empty()) told["codec_state"] = state_object(handed_.span());
    return told;
  }

  static json::object state_object(ByteSpan state) {
    return {{"sha256", to_hex(sha256(state))}, {"bytes", state.size()}};
  }
  std::vector<float>& residual(std::size_t site) { return residuals_[site]; }
  Buffer& state(std::size_t site) { return states_[site]; }  // the codec's
  Buffer& handed() { return handed_; }                       // what the next round begins with
  // As a run that continues this one begins.
  void continue_as(const round::Plan& plan, bool keep_optimizer) {
    Federation next(plan, sites_);
    next.residuals_ = std::move(residuals_);
    if (codec_->spec().kind == next.codec_->spec().kind) next.states_ = std::move(states_);
    if (keep_optimizer) next.state_ = std::move(state_), next.handed_ = std::move(handed_);
    *this = std::move(next);
  }

 private:
  static Buffer zeros(std::size_t size) {
    Buffer bytes(size);
    std::ranges::fill(bytes.span(), std::byte{0});
    return bytes;
  }
  kernels::VectorSchema schema() const { return {.layout = {kParams, plan_.chunk_values}, .tensors = {}}; }
  kernels::StreamKey key_of(std::uint64_t number, std::size_t s) const {
    return kernels::stream_key(plan_.seed, number, sites_[s].name);
  }

  // What the site has once it has trained. `sends`: it begins to encode it.
  std::vector<float> fold(std::uint64_t number, const std::vector<float>& base, std::size_t s, bool sends) {
    std::vector<float> p(kParams);
    apply_update({kSeed, number, sites_[s].index}, base, p);
    kernels::pseudo_gradient(base, p, {}, p);
    const kernels::StreamKey key = sends ? key_of(number, s) : kernels::StreamKey{};
    const ByteSpan handed = sends ? ByteSpan(handed_.span()) : ByteSpan();
    const kernels::ChunkLayout layout = schema().layout;
    for (std::size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
      const std::span<float> residual = layout.of(std::span(residuals_[s]), chunk);
      EXPECT_TRUE(codec_->lend_chunk(schema(), key, chunk, handed, residual, states_[s].span()).ok());
    }
    EXPECT_TRUE(codec_->fold(schema(), p, residuals_[s], states_[s].span(), p).ok());
    return p;
  }

  // Its digest.
  std::string send(std::uint64_t number, std::size_t s, std::span<const float> p, std::uint64_t weight,
                   aggregate::Accumulator& sum) {
    Buffer workspace(codec_->workspace_bytes(schema()));
    const auto plan = codec_->prepare(schema(), p, key_of(number, s), {}, states_[s].span(), workspace.span()).value();
    const kernels::ChunkLayout layout = schema().layout;
    SubmissionDigest digest(s % 2 == 0 ? DigestKind::kStream : DigestKind::kTree, layout.chunk_count());
    for (std::size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
      const auto values = layout.of(p, chunk);
      Buffer bytes(codec_->encoded_bytes_max(values.size()));
      bytes.shrink(codec_->encode_chunk(plan, chunk, values, bytes.span()).value());
      digest.side_by_side(chunk, bytes.span());
      digest.in_order(bytes.span());
      EXPECT_TRUE(sum.add_chunk(*codec_, chunk, bytes.span(), static_cast<std::uint32_t>(weight)).ok());
      EXPECT_TRUE(codec_->residual_chunk(values, bytes.span(), layout.of(std::span(residuals_[s]), chunk)).ok());
      EXPECT_TRUE(codec_->settle_chunk(schema(), chunk, bytes.span(), states_[s].span()).ok());
    }
    return to_hex(digest.finish(round::probe_bytes()));
  }

  void step(std::uint64_t number, const aggregate::Accumulator& sum, std::uint64_t weights, std::vector<float>& model) {
    std::vector<float> mean(kParams);
    kernels::mean_of_sums(sum.sum(), scale_, weights, mean);
    const kernels::ChunkLayout layout = schema().layout;
    const aggregate::ServerStep step(plan_.optimizer, layout, {}, number, weights, codec_->spec());
    handed_ = zeros(step.handed_bytes());
    for (std::size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
      const auto values = layout.of(std::span<const float>(mean), chunk);
      EXPECT_TRUE(step.apply(chunk, values, state_, layout.of(std::span(model), chunk), handed_.span()).ok());
    }
  }

  round::Plan plan_;
  std::vector<AuditSite> sites_;
  std::unique_ptr<kernels::Codec> codec_;
  int scale_ = 0;
  std::vector<float> state_;  // the optimizer's
  Buffer handed_ = zeros(0);
  std::vector<std::vector<float>> residuals_;
  std::vector<Buffer> states_;  // the codec's
};

}  // namespace fluvial::cli
