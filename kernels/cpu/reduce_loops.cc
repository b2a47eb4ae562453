#include "kernels/cpu/reduce_loops.h"

#include "kernels/ops/bf16.h"
#include "kernels/ops/bits.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define FLUVIAL_TARGET_FILE "kernels/cpu/reduce_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const ReduceLoops& reduce_loops(Target target) { return FLUVIAL_PICK_TARGET(target, reduce_loops_table)(); }

}  // namespace fluvial::kernels::cpu
