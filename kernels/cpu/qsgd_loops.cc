#include "kernels/cpu/qsgd_loops.h"

#include <bit>
#include <cstring>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/ops/elias.h"
#include "kernels/ops/qsgd.h"
#include "kernels/ops/terngrad.h"

static_assert(std::endian::native == std::endian::little, "eight codes are looked at as one little-endian word");

#define FLUVIAL_TARGET_FILE "kernels/cpu/qsgd_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const QsgdLoops& qsgd_loops(Target target) { return FLUVIAL_PICK_TARGET(target, qsgd_loops_table)(); }

}  // namespace fluvial::kernels::cpu
