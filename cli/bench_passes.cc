#include "cli/bench_passes.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/base/check.h"
#include "core/digest/sha256.h"
#include "kernels/stream_key.h"

namespace fluvial::cli {
namespace {

constexpr std::size_t kStateHead = 32;  // docs/formats/codecs-powersgd.md

std::vector<std::vector<std::uint64_t>> averaged(const round::Schema& schema) {
  std::vector<std::vector<std::uint64_t>> shapes;
  for (const round::Tensor& tensor : schema.tensors()) {
    if (tensor.dtype == round::DType::kF32) shapes.push_back(tensor.shape);
  }
  return shapes;
}

std::size_t rank_of(const round::Plan& plan) {
  const auto rank = kernels::reference::powersgd_rank(plan.codec);
  FLUVIAL_CHECK(rank.has_value(), "the one codec with several passes");
  return *rank;
}

// As it travels (docs/design/phases.md): the attempt that it is of, then its values.
std::string mean_sha256(std::uint64_t epoch, std::uint64_t attempt, std::span<const float> mean) {
  std::vector<std::byte> bytes(16);
  store_le<std::uint64_t>(bytes.data(), epoch);
  store_le<std::uint32_t>(bytes.data() + 8, static_cast<std::uint32_t>(attempt));
  store_le<std::uint32_t>(bytes.data() + 12, 0);
  const ByteSpan values = std::as_bytes(mean);
  bytes.insert(bytes.end(), values.begin(), values.end());
  return to_hex(sha256(bytes));
}

}  // namespace

PassesAudit::PassesAudit(const kernels::Codec& codec, const round::Plan& plan, const round::Schema& schema,
                         const PassesAudit* before)
    : codec_(codec),
      shapes_(schema, plan.chunk_values),
      lowrank_(averaged(schema), rank_of(plan)),
      seed_(plan.seed),
      state_(codec.state_bytes(shapes_.schema())) {
  // The fingerprint is for comparison only, so that the format's page does not say how it is made.
  std::ranges::fill(state_.span(), std::byte{0});
  const std::vector<float> nothing(value_count(1));
  const Status settled = codec_.settle(shapes_.schema(), {.run = seed_}, nothing, state_.span());
  FLUVIAL_CHECK(settled.ok(), "a model that the coordinator has accepted");
  fingerprint_ = load_le<std::uint64_t>(state_.data() + 24);
  std::vector<float> factors;
  if (before != nullptr) {
    factors.resize((state_.size() - kStateHead) / sizeof(float));
    std::memcpy(factors.data(), before->state_.data() + kStateHead, factors.size() * sizeof(float));
  }
  set_state(0, factors);
}

void PassesAudit::set_state(std::uint64_t round, std::span<const float> mean) {
  const std::vector<float> factors = lowrank_.warm_start(seed_, mean);
  FLUVIAL_CHECK(state_.size() == kStateHead + factors.size() * sizeof(float), "factors of the format's size");
  store_le<std::uint32_t>(state_.data(), 1);
  store_le<std::uint32_t>(state_.data() + 4, codec_.spec().rank);
  store_le<std::uint64_t>(state_.data() + 8, seed_);
  store_le<std::uint64_t>(state_.data() + 16, mean.empty() ? 0 : round + 1);
  store_le<std::uint64_t>(state_.data() + 24, fingerprint_);
  std::ranges::copy(std::as_bytes(std::span(factors)), state_.data() + kStateHead);
}

Result<Encoded> PassesAudit::encode(std::uint32_t pass, std::uint64_t round, const std::string& site,
                                    std::span<const float> p, std::span<const std::byte> trailer) const {
  const kernels::VectorSchema schema = shapes_.schema();
  Buffer state(state_.size());
  std::ranges::copy(state_.span(), state.data());
  Buffer workspace(codec_.workspace_bytes(schema));
  const kernels::PassInput input{.pass = pass, .reduced = pass == 0 ? std::span<const float>() : mean_};
  FLUVIAL_ASSIGN(const kernels::EncodePlan plan, codec_.prepare(schema, p, kernels::stream_key(seed_, round, site),
                                                                input, state.span(), workspace.span()));
  for (std::size_t part = 0; part < plan.parts; ++part) FLUVIAL_TRY(codec_.prepare_part(plan, part));
  return encode_all(codec_, plan, trailer);
}

Status PassesAudit::reduced(const json::value& round, std::vector<float> mean) {
  const std::string made = mean_sha256(count_member(round, "epoch"), count_member(round, "attempt"), mean);
  const std::string named = text_member(array_member(round, "passes")[0], "mean");
  if (made != named) {
    return Error{Code::kDataLoss, fmt::format("round {}: the mean of pass 1 is {}, expected {}",
                                              count_member(round, "round"), named, made)};
  }
  basis_ = lowrank_.basis(mean);
  mean_ = std::move(mean);
  return {};
}

std::vector<float> PassesAudit::left(std::span<const float> p, const Encoded& sent) const {
  return lowrank_.left(p, basis_, std::vector<float>(sent.decoded.begin(), sent.decoded.end()));
}

Result<std::vector<float>> PassesAudit::finish(const json::value& round, std::span<const float> mean) {
  const std::uint64_t number = count_member(round, "round");
  set_state(number, mean);
  const json::value& state = member(round, "codec_state");
  const std::string made = to_hex(sha256(state_.span()));
  const std::string named = text_member(state, "sha256");
  if (made != named || count_member(state, "bytes") != state_.size()) {
    return Error{Code::kDataLoss, fmt::format("round {}: the codec's state is {}, expected {} of {} bytes", number,
                                              named.empty() ? "not there" : named, made, state_.size())};
  }
  return lowrank_.expanded(basis_, mean);
}

}  // namespace fluvial::cli
