#include "kernels/cpu/target.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "core/base/check.h"

namespace fluvial::kernels::cpu {
namespace {

#if defined(__x86_64__)
// The instruction sets that each_target.h enables for AVX2: every machine with AVX2 has the others, too, but a virtual
// one may hide some.
bool runs_avx2() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  const bool lzcnt = __get_cpuid(0x80000001U, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_ABM) != 0;
  const bool f16c = __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & bit_F16C) != 0;
  return lzcnt && f16c && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") &&
         __builtin_cpu_supports("bmi2") && __builtin_cpu_supports("popcnt");
}
#endif

Target detect() {
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl") && runs_avx2()) {
    return Target::kAvx512;
  }
  if (runs_avx2()) return Target::kAvx2;
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

void check_target(Target target) { FLUVIAL_CHECK(target <= best_target(), "this machine does not run that target"); }

}  // namespace fluvial::kernels::cpu
