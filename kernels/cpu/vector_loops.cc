#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/loops.h"
#include "kernels/ops/bits.h"
#include "kernels/ops/fixed.h"
#include "kernels/ops/philox.h"
#include "kernels/ops/update.h"

static_assert(std::endian::native == std::endian::little, "the loops store little-endian values by copying them");

#define FLUVIAL_TARGET_FILE "kernels/cpu/vector_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const Loops& loops(Target target) { return FLUVIAL_PICK_TARGET(target, vector_loops_table)(); }

}  // namespace fluvial::kernels::cpu
