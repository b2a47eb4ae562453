// Shared by the room's tests: a job with its data, drawn from a seed, and a parent's reading of its chunks.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/digest/sha256.h"
#include "core/store/memory_file_system.h"
#include "core/store/site_store.h"
#include "edge/update/encode.h"
#include "edge/update/open.h"
#include "edge/update/resolve.h"
#include "kernels/codec.h"
#include "kernels/onebit_adam.h"

namespace fluvial::edge {

inline constexpr RunId kRun{3};
inline constexpr std::size_t kValues = 1000;
inline constexpr std::size_t kChunk = 256;

// Deterministic, and different for each seed.
inline std::vector<float> draw(std::uint64_t seed, std::size_t count = kValues, double scale = 1) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>((rng.uniform() - 0.5) * scale);
  return values;
}

inline Buffer bytes_of(const std::vector<float>& values) { return Buffer::copy_of(std::as_bytes(std::span(values))); }

struct Training {
  RoundId round;
  round::Plan plan;
  round::Schema schema =
      round::Schema::make({{"w", round::DType::kF32, {30, 30}}, {"b", round::DType::kF32, {100}}}).value();
  Buffer base;
  std::vector<std::pair<Buffer, std::uint32_t>> parts;
  Buffer handed = {};

  UpdateJob job() const {
    UpdateJob job{kRun, round, SiteId(7), plan, schema};
    job.base_digest = sha256(base.span());
    job.base = base.span();
    job.handed = handed.span();
    for (const auto& [model, weight] : parts) {
      job.parts.push_back({model.span(), weight});
      job.weight += weight;
    }
    job.metrics = {{"loss", 0.5}};
    return job;
  }
};

// What a round of onebit_adam begins with behind its warm-up: this momentum, encoded. Of other rounds nothing.
inline Buffer handed_down(const std::string& codec, std::uint64_t round, const std::vector<float>& momentum) {
  const kernels::CodecSpec spec = kernels::parse_codec(codec).value();
  if (spec.kind != kernels::CodecKind::kOnebitAdam || round <= spec.freeze_rounds) return {};
  const kernels::CodecSpec of_momentum{.kind = kernels::CodecKind::kSign, .block_values = spec.block_values};
  const auto sign = kernels::make_codec(of_momentum).value();
  const kernels::ChunkLayout layout{momentum.size(), kChunk};
  const auto plan = sign->prepare({layout, {}}, momentum, {}, {}, {}, {}).value();
  const kernels::MomentumLayout as_it_goes_down(layout, *sign);
  Buffer handed(as_it_goes_down.bytes());
  std::ranges::fill(handed.span(), std::byte{0});
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    const MutableByteSpan chunk = as_it_goes_down.chunk(handed.span(), i);
    EXPECT_TRUE(sign->encode_chunk(plan, i, layout.of(std::span(momentum), i), chunk).ok());
  }
  return handed;
}

inline Training training(std::uint64_t round, std::string codec, const std::vector<float>& base,
                         const std::vector<float>& local) {
  Training training;
  training.handed = handed_down(codec, round, std::vector<float>(base.size()));
  training.round = RoundId(round);
  training.plan.codec = std::move(codec);
  training.plan.chunk_values = kChunk;
  training.base = bytes_of(base);
  training.parts.emplace_back(bytes_of(local), 20);
  return training;
}
inline Training training(std::uint64_t round, std::string codec) {
  return training(round, std::move(codec), draw(round), draw(round + 100));
}

inline std::unique_ptr<store::SiteStore> open_store(store::FileSystem& files) {
  Result<std::unique_ptr<store::SiteStore>> opened = open_site_store(files, "/site");
  EXPECT_TRUE(opened.ok()) << opened.error().to_string();
  return std::move(*opened);
}

// The chunks as a parent decodes them.
inline std::vector<float> decoded(const store::PendingUpdate& update) {
  const auto codec = kernels::make_codec(kernels::parse_codec(update.info().start.codec).value()).value();
  const kernels::ChunkLayout layout{update.info().start.value_count, update.info().start.chunk_values};
  std::vector<float> values(layout.value_count);
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    EXPECT_TRUE(codec->decode_chunk(update.read_chunk(i)->span(), layout.of(std::span(values), i)).ok());
  }
  return values;
}
// Whether a parent takes them.
inline Status accepted(const store::PendingUpdate& update, const round::Plan& plan) {
  const auto codec = kernels::make_codec(kernels::parse_codec(update.info().start.codec).value()).value();
  const kernels::ChunkLayout layout{update.info().start.value_count, update.info().start.chunk_values};
  double norm_squared = 0;
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    FLUVIAL_ASSIGN(const Buffer chunk, update.read_chunk(i));
    FLUVIAL_ASSIGN(const kernels::ScreenReport report, codec->screen_chunk(chunk.span(), layout.size(i), 0));
    norm_squared += report.norm_squared;
    if (static_cast<double>(report.max_abs) > plan.value_abs_max) {
      return Error{Code::kDataLoss, "a value of " + std::to_string(report.max_abs)};
    }
  }
  if (plan.update_norm_max == 0 || std::sqrt(norm_squared) <= plan.update_norm_max) return {};
  return Error{Code::kDataLoss, "a norm of " + std::to_string(std::sqrt(norm_squared))};
}
inline std::vector<float> p_of(const store::PendingUpdate& update) {
  std::vector<float> values(update.info().start.value_count);
  EXPECT_TRUE(update.read_p(0, values).ok());
  return values;
}

// A site's store, and what becomes of what is in it.
class StoreTest : public testing::Test {
 protected:
  void resolve(std::uint64_t round, round::Outcome outcome, RunId run = kRun) {
    const auto carried = resolve_pending(*store_, run, RoundId(round), outcome);
    EXPECT_TRUE(carried.ok()) << carried.error().to_string();
  }
  void reopen() {
    store_.reset();
    store_ = open_store(files_);
  }

  Serial serial_;
  store::MemoryFileSystem files_;
  std::unique_ptr<store::SiteStore> store_ = open_store(files_);
};

}  // namespace fluvial::edge
