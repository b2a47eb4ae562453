#include "kernels/cpu/loops.h"

#include "core/base/check.h"

namespace fluvial::kernels::cpu {
namespace {

Target detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl")) {
    return Target::kAvx512;
  }
  if (__builtin_cpu_supports("avx2")) return Target::kAvx2;
#endif
  return Target::kBaseline;
}

}  // namespace

std::string_view target_name(Target target) {
  switch (target) {
    case Target::kBaseline: return "baseline";
    case Target::kAvx2: return "avx2";
    case Target::kAvx512: return "avx512";
  }
  return "unknown";
}

Target best_target() {
  static const Target best = detect();
  return best;
}

std::vector<Target> supported_targets() {
  std::vector<Target> targets;
  for (const Target target : {Target::kBaseline, Target::kAvx2, Target::kAvx512}) {
    if (target <= best_target()) targets.push_back(target);
  }
  return targets;
}

const Loops& loops(Target target) {
  FLUVIAL_CHECK(target <= best_target(), "this machine does not run that target");
#if defined(__x86_64__)
  if (target == Target::kAvx512) return avx512::table();
  if (target == Target::kAvx2) return avx2::table();
#endif
  return baseline::table();
}

}  // namespace fluvial::kernels::cpu
