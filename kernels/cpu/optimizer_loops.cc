#include "kernels/cpu/optimizer_loops.h"

#include "kernels/cpu/loops.h"
#include "kernels/ops/update.h"

#define FLUVIAL_TARGET_FILE "kernels/cpu/optimizer_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const OptimizerLoops& optimizer_loops(Target target) { return FLUVIAL_PICK_TARGET(target, optimizer_loops_table)(); }

}  // namespace fluvial::kernels::cpu
