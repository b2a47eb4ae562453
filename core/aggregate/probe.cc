#include "core/aggregate/probe.h"

#include <fmt/format.h>

#include <memory>
#include <span>

#include "kernels/codec.h"

namespace fluvial::aggregate {
namespace {

const kernels::Codec& fp32() {
  static const std::unique_ptr<kernels::Codec> codec = kernels::make_codec({}).value();
  return *codec;
}

}  // namespace

Status Probe::add(SiteId site, ByteSpan value, std::uint32_t weight, int down_bits) {
  std::int64_t term = 0;
  FLUVIAL_TRY(fp32().decode_accumulate_chunk(value, weight, scale_bits_ - down_bits, std::span(&term, 1)));
  return merge(site, term);
}

Status Probe::merge(SiteId site, std::int64_t sum) {
  std::int64_t& held = sums_[site];
  std::int64_t total = 0;
  if (__builtin_add_overflow(held, sum, &total)) {
    return Error{Code::kDataLoss, fmt::format("the probe of site {} left int64", site.value())};
  }
  held = total;
  return {};
}

}  // namespace fluvial::aggregate
