// In the place of kernels/cpu/target.cc: a machine that runs nothing beyond the baseline, whatever this one is.
#include "core/base/check.h"
#include "kernels/cpu/target.h"

namespace fluvial::kernels::cpu {

std::string_view target_name(Target) { return "baseline"; }
Target best_target() { return Target::kBaseline; }
std::vector<Target> supported_targets() { return {Target::kBaseline}; }
void check_target(Target target) { FLUVIAL_CHECK(target == Target::kBaseline, "nothing but the baseline runs here"); }

}  // namespace fluvial::kernels::cpu
