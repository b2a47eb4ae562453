#include "kernels/cpu/lowrank_loops.h"

#include <cstddef>

#include "kernels/ops/bits.h"

namespace fluvial::kernels::cpu {
namespace {

// Sixteen sums side by side, whatever the width of the target's registers.
using Lanes = float __attribute__((vector_size(kLowrankLanes * sizeof(float))));

constexpr std::size_t kBackCols = 512;  // columns whose sums stay in the first-level cache over a block of rows

}  // namespace
}  // namespace fluvial::kernels::cpu

#define FLUVIAL_TARGET_FILE "kernels/cpu/lowrank_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const LowrankLoops& lowrank_loops(Target target) { return FLUVIAL_PICK_TARGET(target, lowrank_loops_table)(); }

}  // namespace fluvial::kernels::cpu
