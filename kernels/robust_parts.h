// Shared by the sources of robust.h and device_robust.h. Internal to kernels/.
#pragma once

#include <string_view>

#include "kernels/robust.h"

namespace fluvial::kernels {

// kInvalidArgument for a number of updates out of bounds; each of them holds value_count values.
Status check_updates(Updates updates, std::size_t value_count);
// kInvalidArgument unless there is one for each update, from 1 to kWeightEnd - 1.
Result<std::uint64_t> sum_of_weights(std::span<const std::uint32_t> weights, std::size_t update_count);
// kInvalidArgument when nothing of `all` is left without `drop` on each side; `what` names the quantity in the message.
Status check_drop(std::string_view what, std::uint64_t all, std::uint64_t drop);

// The squared distances of all updates from the center with some coefficients.
class CenterDistances {
 public:
  virtual ~CenterDistances() = default;
  virtual Status measure(std::span<const double> coefficients, std::span<double> distances) = 0;
};

// geometric_median() and centered_clipping() of updates that only `center` knows: one for each coefficient.
Result<WeiszfeldReport> iterate_weiszfeld(CenterDistances& center, std::span<const std::uint32_t> weights,
                                          const WeiszfeldOptions& options, std::span<double> distances,
                                          std::span<double> coefficients);
Status iterate_clipping(CenterDistances& center, double tau, std::size_t iterations, std::span<double> distances,
                        std::span<double> coefficients);

}  // namespace fluvial::kernels
