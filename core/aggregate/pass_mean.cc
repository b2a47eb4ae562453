#include "core/aggregate/pass_mean.h"

#include <string>

#include "core/base/check.h"
#include "core/round/pass.h"

namespace fluvial::aggregate {

Buffer begin_mean(const MeanOf& of, std::uint64_t value_count) {
  Buffer mean(kMeanHeadBytes + static_cast<std::size_t>(value_count) * sizeof(float));
  store_le<std::uint64_t>(mean.data(), of.epoch.value());
  store_le<std::uint32_t>(mean.data() + 8, of.attempt.value());
  store_le<std::uint32_t>(mean.data() + 12, of.pass);
  return mean;
}

std::span<float> mean_values(Buffer& mean) {
  return {reinterpret_cast<float*>(mean.data() + kMeanHeadBytes),  // NOLINT
          (mean.size() - kMeanHeadBytes) / sizeof(float)};
}

std::span<const float> mean_values(ByteSpan mean) {
  FLUVIAL_CHECK(mean.size() >= kMeanHeadBytes && reinterpret_cast<std::uintptr_t>(mean.data()) % alignof(float) == 0,
                "no mean");
  return {reinterpret_cast<const float*>(mean.data() + kMeanHeadBytes),  // NOLINT
          (mean.size() - kMeanHeadBytes) / sizeof(float)};
}

Status check_mean(const MeanOf& of, ByteSpan mean) {
  if (mean.size() < kMeanHeadBytes || mean.size() % sizeof(float) != 0) {
    return Error{Code::kDataLoss, "a mean of " + std::to_string(mean.size()) + " bytes"};
  }
  const MeanOf is{Epoch(load_le<std::uint64_t>(mean.data())), AttemptId(load_le<std::uint32_t>(mean.data() + 8)),
                  load_le<std::uint32_t>(mean.data() + 12)};
  if (is == of) return {};
  return Error{Code::kDataLoss, "a mean of " + round::pass_name(is.pass) + " of attempt " +
                                    std::to_string(is.attempt.value()) + ", expected " + round::pass_name(of.pass) +
                                    " of attempt " + std::to_string(of.attempt.value())};
}

}  // namespace fluvial::aggregate
