// How far apart two models are. Pure; blocking.
#pragma once

#include "core/base/bytes.h"
#include "core/base/parallel.h"
#include "core/round/schema.h"

namespace fluvial::aggregate {

// 2-norm of the difference over the averaged tensors. Both have schema.model_bytes(). The same result with any width of
// `parallel`.
double model_distance(Parallel& parallel, const round::Schema& schema, ByteSpan a, ByteSpan b);

}  // namespace fluvial::aggregate
