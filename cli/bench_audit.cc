#include "cli/bench_audit.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>

#include "cli/bench_update.h"
#include "core/digest/sha256.h"
#include "kernels/reference/reference.h"

namespace fluvial::cli {
namespace {

std::string sum_sha256(std::span<const std::int64_t> sum) {
  static_assert(std::endian::native == std::endian::little, "digests cover little-endian bytes");
  return to_hex(sha256(std::as_bytes(sum)));
}

bool names(const json::array& entries, std::uint32_t node) {
  return std::any_of(entries.begin(), entries.end(),
                     [node](const json::value& entry) { return count_member(entry, "site") == node; });
}

}  // namespace

Audit::Audit(round::Plan plan, std::uint64_t seed, std::uint64_t run, std::vector<AuditSite> sites,
             std::uint64_t weight_max_sum)
    : plan_(std::move(plan)), seed_(seed), run_(run), weight_max_sum_(weight_max_sum) {
  const auto spec = kernels::parse_codec(plan_.codec);
  FLUVIAL_CHECK(spec.ok(), "the coordinator has accepted the plan's codec");
  codec_ = std::move(kernels::make_codec(*spec)).value();
  scale_bits_ =
      kernels::reference::scale_bits(static_cast<int>(plan_.fraction_bits), plan_.value_abs_max, weight_max_sum_);
  for (const AuditSite& site : sites) sites_.push_back({site, {}});
}

Audit::Fate Audit::fate_of(const json::value& round, std::uint32_t node) const {
  if (names(array_member(round, "contributors"), node)) return Fate::kCounted;
  return names(array_member(round, "refused"), node) ? Fate::kRefused : Fate::kLate;
}

Status Audit::check_round(const json::value& round, std::span<const float> base, std::span<const float> committed) {
  const std::uint64_t number = count_member(round, "round");
  if (count_member(round, "participants") != sites_.size()) {
    return Error{Code::kFailedPrecondition,
                 fmt::format("round {}: not every site was a participant, so its scale is not known here", number)};
  }
  sum_.assign(base.size(), 0);
  update_.resize(base.size());
  std::uint64_t total_weight = 0;
  for (SiteState& state : sites_) {
    state.residual.resize(base.size());
    const Fate fate = fate_of(round, state.site.node);
    FLUVIAL_TRY(add_site(state, fate, number, base));
    if (fate == Fate::kCounted) total_weight += bench_weight(state.site.index);
  }
  return compare(round, base, committed, total_weight);
}

Status Audit::add_site(SiteState& state, Fate fate, std::uint64_t round, std::span<const float> base) {
  if (fate == Fate::kRefused) return {};
  fill_update({.seed = seed_, .round = round, .site_index = state.site.index}, update_);
  for (std::size_t i = 0; i < update_.size(); ++i) {
    const float local = base[i] - update_[i];
    update_[i] = ((base[i] - local) + state.residual[i]) + 0.0F;
  }
  if (fate == Fate::kLate) {
    std::copy(update_.begin(), update_.end(), state.residual.begin());
    return {};
  }
  const kernels::VectorSchema schema{.layout = {.value_count = base.size(), .chunk_values = plan_.chunk_values},
                                     .tensors = {}};
  Buffer codec_state(codec_->state_bytes(schema));
  std::fill(codec_state.span().begin(), codec_state.span().end(), std::byte{0});
  Buffer workspace(codec_->workspace_bytes(schema));
  const kernels::StreamKey key{.run = run_, .round = round, .site = state.site.node};
  FLUVIAL_ASSIGN(const kernels::EncodePlan plan,
                 codec_->prepare(schema, update_, key, {}, codec_state.span(), workspace.span()));
  Buffer encoded(
      codec_->encoded_bytes_max(static_cast<std::size_t>(std::min(plan_.chunk_values, schema.layout.value_count))));
  for (std::size_t chunk = 0; chunk < schema.layout.chunk_count(); ++chunk) {
    const auto values = schema.layout.of(std::span<const float>(update_), chunk);
    FLUVIAL_ASSIGN(const std::size_t bytes, codec_->encode_chunk(plan, chunk, values, encoded.span()));
    const auto decoded = kernels::reference::decode(plan_.codec, encoded.span().first(bytes), values.size());
    if (!decoded)
      return Error{Code::kDataLoss,
                   fmt::format("round {}: chunk {} of site {} does not decode", round, chunk, state.site.index)};
    FLUVIAL_TRY(add_decoded(*decoded, bench_weight(state.site.index), schema.layout.of(std::span(sum_), chunk)));
    const auto residual = schema.layout.of(std::span(state.residual), chunk);
    for (std::size_t i = 0; i < values.size(); ++i) residual[i] = values[i] - static_cast<float>((*decoded)[i]);
  }
  return {};
}

// value * weight is exact (24 + 29 bits), so is its product with a power of two: one rounding, half to even.
Status Audit::add_decoded(std::span<const double> decoded, std::uint64_t weight, std::span<std::int64_t> sum) const {
  const double factor = std::ldexp(static_cast<double>(weight), scale_bits_);
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    const double term = std::nearbyint(decoded[i] * factor);
    if (!(std::fabs(term) <= 0x1p62)) return Error{Code::kDataLoss, "a term of the sum is beyond 2^62"};
    sum[i] += static_cast<std::int64_t>(term);
  }
  return {};
}

Status Audit::compare(const json::value& round, std::span<const float> base, std::span<const float> committed,
                      std::uint64_t total_weight) const {
  const std::uint64_t number = count_member(round, "round");
  if (total_weight == 0 || count_member(round, "weight") != total_weight) {
    return Error{Code::kDataLoss, fmt::format("round {}: total weight {}, expected {}", number,
                                              count_member(round, "weight"), total_weight)};
  }
  const double divisor = std::ldexp(1.0, scale_bits_);
  const auto weight = static_cast<double>(total_weight);
  for (std::size_t i = 0; i < base.size(); ++i) {
    const auto mean = static_cast<float>(static_cast<double>(sum_[i]) / divisor / weight);
    const auto expected =
        static_cast<float>(static_cast<double>(base[i]) - plan_.optimizer.lr * static_cast<double>(mean));
    if (std::bit_cast<std::uint32_t>(expected) != std::bit_cast<std::uint32_t>(committed[i])) {
      return Error{Code::kDataLoss,
                   fmt::format("round {}: coordinate {} is {:a}, expected {:a}", number, i, committed[i], expected)};
    }
  }
  const std::string journalled = text_member(round, "sum_sha256");
  if (!journalled.empty() && journalled != sum_sha256(sum_)) {
    return Error{Code::kDataLoss,
                 fmt::format("round {}: the digest of the integer sum differs from the journal's", number)};
  }
  return {};
}

}  // namespace fluvial::cli
