#include "kernels/cpu/onebit_adam_loops.h"

#include <cstddef>
#include <cstdint>

#include "kernels/ops/onebit_adam.h"

#define FLUVIAL_TARGET_FILE "kernels/cpu/onebit_adam_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const OnebitAdamLoops& onebit_adam_loops(Target target) {
  return FLUVIAL_PICK_TARGET(target, onebit_adam_loops_table)();
}

}  // namespace fluvial::kernels::cpu
