// The instruction sets that the CPU loops are compiled for. All give the same bits; the best is taken at run time.
#pragma once

#include <string_view>
#include <vector>

namespace fluvial::kernels::cpu {

enum class Target { kBaseline, kAvx2, kAvx512 };

std::string_view target_name(Target target);
Target best_target();                     // the widest that this machine runs
std::vector<Target> supported_targets();  // from kBaseline up
void check_target(Target target);         // stops the process unless this machine runs it

// The function `name` of the namespace that belongs to `target` (each_target.h).
#if defined(__x86_64__)
#define FLUVIAL_PICK_TARGET(target, name)                                                                             \
  (::fluvial::kernels::cpu::check_target(target), (target) == ::fluvial::kernels::cpu::Target::kAvx512 ? avx512::name \
                                                  : (target) == ::fluvial::kernels::cpu::Target::kAvx2                \
                                                      ? avx2::name                                                    \
                                                      : baseline::name)
#else
#define FLUVIAL_PICK_TARGET(target, name) (::fluvial::kernels::cpu::check_target(target), baseline::name)
#endif

}  // namespace fluvial::kernels::cpu
