#include "kernels/cpu/sign_loops.h"

#include <bit>
#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/ops/fixed.h"
#include "kernels/ops/sign.h"

static_assert(std::endian::native == std::endian::little, "the loops store little-endian words by copying them");

#define FLUVIAL_TARGET_FILE "kernels/cpu/sign_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const SignLoops& sign_loops(Target target) { return FLUVIAL_PICK_TARGET(target, sign_loops_table)(); }

}  // namespace fluvial::kernels::cpu
