#include "kernels/cpu/sparse_loops.h"

#include <cstddef>
#include <cstdint>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "kernels/ops/bits.h"
#include "kernels/ops/dgc.h"

#define FLUVIAL_TARGET_FILE "kernels/cpu/sparse_loops_impl.h"
#include "kernels/cpu/each_target.h"

namespace fluvial::kernels::cpu {

const SparseLoops& sparse_loops(Target target) { return FLUVIAL_PICK_TARGET(target, sparse_loops_table)(); }

}  // namespace fluvial::kernels::cpu
