// The instruction sets that the CPU loops are compiled for. All give the same bits; the best is taken at run time.
#pragma once

#include <string_view>
#include <vector>

namespace fluvial::kernels::cpu {

enum class Target { kBaseline, kAvx2, kAvx512 };

std::string_view target_name(Target target);
Target best_target();                     // the widest that this machine runs
std::vector<Target> supported_targets();  // from kBaseline up

}  // namespace fluvial::kernels::cpu
