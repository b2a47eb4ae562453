// Rounds of PowerSGD as in a federation: encoded, summed in int64, averaged, expanded. Only for tests.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/codec.h"
#include "kernels/fixed.h"
#include "kernels/reference/powersgd.h"
#include "kernels/test_values.h"

namespace fluvial::kernels::powersgd_rounds {

inline constexpr StreamKey kKey = {.run = 5, .round = 1, .site = 0};

// A schema that owns what VectorSchema views.
class Model {
 public:
  explicit Model(std::vector<std::vector<std::uint64_t>> shapes, std::uint64_t chunk_values = 1000,
                 std::uint64_t gap = 0)
      : shapes_(std::move(shapes)) {
    std::uint64_t at = gap;
    for (const auto& dims : shapes_) {
      tensors_.push_back({.dims = dims, .offset_values = at});
      std::uint64_t count = 1;
      for (const std::uint64_t dim : dims) count *= dim;
      at += count + gap;
    }
    schema_ = {.layout = {.value_count = at, .chunk_values = chunk_values}, .tensors = tensors_};
  }
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  const VectorSchema& schema() const { return schema_; }
  std::size_t count() const { return static_cast<std::size_t>(schema_.layout.value_count); }

 private:
  std::vector<std::vector<std::uint64_t>> shapes_;
  std::vector<TensorShape> tensors_;
  VectorSchema schema_;
};

inline Buffer zeros(std::size_t size) {
  Buffer buffer(size);
  std::ranges::fill(buffer.span(), std::byte{0});
  return buffer;
}

struct Site {
  Site(const Codec& codec, const Model& model)
      : state(zeros(codec.state_bytes(model.schema()))), workspace(codec.workspace_bytes(model.schema())) {}

  Buffer state;
  Buffer workspace;
  std::vector<float> vector;
  EncodePlan plan;

  // The site's values of a pass, as a receiver decodes them.
  std::vector<float> send(const Codec& codec, const Model& model, std::uint32_t pass, std::span<const float> reduced,
                          const StreamKey& key = kKey) {
    plan = codec.prepare(model.schema(), vector, key, {pass, reduced}, state.span(), workspace.span()).value();
    for (std::size_t i = plan.parts; i-- > 0;) {  // any order will do
      const Status done = codec.prepare_part(plan, i);
      FLUVIAL_CHECK(done.ok(), "a part is computed");
    }
    FLUVIAL_CHECK(plan.layout == codec.pass_layout(model.schema(), pass), "the plan's layout is the pass's");
    std::vector<float> sent(plan.values.size());
    for (std::size_t i = 0; i < plan.layout.chunk_count(); ++i) {
      Buffer bytes(codec.encoded_bytes_max(plan.layout.size(i)));
      bytes.shrink(codec.encode_chunk(plan, i, plan.layout.of(plan.values, i), bytes.span()).value());
      const Status decoded = codec.decode_chunk(bytes.span(), plan.layout.of(std::span(sent), i));
      FLUVIAL_CHECK(decoded.ok(), "what was encoded decodes");
    }
    return sent;
  }
  std::vector<float> residual(const Codec& codec, const Model& model) const {
    std::vector<float> out(vector.size());
    for (std::size_t i = 0; i < model.schema().layout.chunk_count(); ++i) {
      const Status left = codec.leave_chunk(plan, i, model.schema().layout.of(std::span(vector), i),
                                            model.schema().layout.of(std::span(out), i));
      FLUVIAL_CHECK(left.ok(), "a residual is left");
    }
    return out;
  }
};

inline std::vector<float> mean_of(const std::vector<std::vector<float>>& sent) {
  constexpr int kScaleBits = 45;
  std::vector<std::int64_t> sum(sent[0].size(), 0);
  for (const auto& values : sent) {
    const auto fp32 = test_values::codec_of("fp32");
    const Status added = fp32->decode_accumulate_chunk(std::as_bytes(std::span(values)), 1, kScaleBits, sum);
    FLUVIAL_CHECK(added.ok(), "what a site sent is added");
  }
  std::vector<float> mean(sum.size());
  mean_of_sums(sum, kScaleBits, sent.size(), mean);
  return mean;
}

inline std::vector<float> expand(const Codec& codec, const Model& model, std::span<const float> p,
                                 std::span<const float> q) {
  const std::array<std::span<const float>, 2> means = {p, q};
  Buffer workspace(codec.workspace_bytes(model.schema()));
  const ExpandPlan plan = codec.prepare_expand(model.schema(), means, workspace.span()).value();
  std::vector<float> out(model.count());
  for (std::size_t i = 0; i < model.schema().layout.chunk_count(); ++i) {
    const Status expanded = codec.expand_chunk(plan, i, model.schema().layout.of(std::span(out), i));
    FLUVIAL_CHECK(expanded.ok(), "a mean expands");
  }
  return out;
}

struct Round {
  std::vector<float> p, q, update;
};

// One round of all sites, whose vectors are set.
inline Round run_round(const Codec& codec, const Model& model, std::span<Site> sites, const StreamKey& key = kKey) {
  Round round;
  for (const std::uint32_t pass : {0U, 1U}) {
    std::vector<std::vector<float>> sent;
    for (Site& site : sites) sent.push_back(site.send(codec, model, pass, round.p, key));
    (pass == 0 ? round.p : round.q) = mean_of(sent);
  }
  round.update = expand(codec, model, round.p, round.q);
  for (Site& site : sites) {
    const Status settled = codec.settle(model.schema(), key, round.q, site.state.span());
    FLUVIAL_CHECK(settled.ok(), "a mean settles");
  }
  return round;
}

inline reference::Matrix matrix_of(std::span<const float> values, std::size_t rows, std::size_t cols) {
  return {rows, cols, std::vector<double>(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(rows * cols))};
}

inline std::vector<double> wide(std::span<const float> values) { return {values.begin(), values.end()}; }

// Frobenius distance, relative to `expected`.
inline double relative_distance(std::span<const float> values, const reference::Matrix& expected) {
  reference::Matrix difference = matrix_of(values, expected.rows, expected.cols);
  for (std::size_t i = 0; i < difference.values.size(); ++i) difference.values[i] -= expected.values[i];
  return reference::norm(difference) / reference::norm(expected);
}

// A matrix of that rank, as fp32, its entries around one.
inline std::vector<float> of_rank(std::size_t rank, std::size_t rows, std::size_t cols, std::uint64_t seed) {
  const auto p = wide(test_values::normals(rank * rows, seed));
  const auto q = wide(test_values::normals(rank * cols, seed + 1));
  const reference::Matrix m = reference::outer(p, q, rows, cols, rank);
  std::vector<float> values;
  for (const double value : m.values) values.push_back(static_cast<float>(value));
  return values;
}

}  // namespace fluvial::kernels::powersgd_rounds
