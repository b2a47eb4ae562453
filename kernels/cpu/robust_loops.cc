#include "kernels/cpu/robust_loops.h"

#include "kernels/ops/robust.h"

#define FLUVIAL_TARGET_FILE "kernels/cpu/robust_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const RobustLoops& robust_loops(Target target) { return FLUVIAL_PICK_TARGET(target, robust_loops_table)(); }

}  // namespace fluvial::kernels::cpu
