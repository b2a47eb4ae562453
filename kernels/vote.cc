#include "kernels/vote.h"

#include "core/base/check.h"
#include "kernels/cpu/sign_loops.h"

namespace fluvial::kernels {

void majority(std::span<const std::int64_t> sum, std::span<float> out) {
  FLUVIAL_CHECK(sum.size() == out.size(), "as many majorities as sums");
  cpu::sign_loops(cpu::best_target()).majority(sum.data(), sum.size(), out.data());
}

}  // namespace fluvial::kernels
