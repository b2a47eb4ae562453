// What loops_impl.h uses, included before a loops_*.cc changes the instruction set: a library header's inline function
// must never be compiled for more than every machine can run.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/loops.h"
#include "kernels/ops/bf16.h"
#include "kernels/ops/fixed.h"
#include "kernels/ops/int8.h"
#include "kernels/ops/philox.h"
#include "kernels/ops/update.h"

static_assert(std::endian::native == std::endian::little, "the loops store little-endian values by copying them");
