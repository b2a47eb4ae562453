#include "kernels/cpu/ring_loops.h"

#include <bit>

#include "kernels/ops/int8.h"
#include "kernels/ops/ring.h"

static_assert(std::endian::native == std::endian::little, "the loops store little-endian codes by copying them");

#define FLUVIAL_TARGET_FILE "kernels/cpu/ring_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const RingLoops& ring_loops(Target target) { return FLUVIAL_PICK_TARGET(target, ring_loops_table)(); }

}  // namespace fluvial::kernels::cpu
