#include "kernels/cpu/dense_loops.h"

#include <bit>

#include "kernels/ops/bf16.h"
#include "kernels/ops/fixed.h"
#include "kernels/ops/fp16.h"
#include "kernels/ops/int8.h"
#include "kernels/ops/ring.h"

static_assert(std::endian::native == std::endian::little, "the loops store little-endian values by copying them");

#define FLUVIAL_TARGET_FILE "kernels/cpu/dense_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const DenseLoops& dense_loops(Target target) { return FLUVIAL_PICK_TARGET(target, dense_loops_table)(); }

}  // namespace fluvial::kernels::cpu
