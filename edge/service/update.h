// The arithmetic of one site's update: the workers' models averaged, taken from the base, and the residual added.
#pragma once

#include <span>
#include <vector>

#include "core/net/awaitable.h"
#include "core/store/site_store.h"
#include "core/tree/runtime.h"
#include "edge/service/trained.h"
#include "kernels/chunks.h"

namespace fluvial::edge {

struct Update {
  Buffer p;  // layout.value_count fp32 values
  std::vector<std::int64_t> integers;

  std::span<float> values() { return {reinterpret_cast<float*>(p.data()), p.size() / sizeof(float)}; }  // NOLINT
};

// Workers' integer tensors are joined by the greatest, as the coordinator joins the sites'. kDataLoss, naming tensor
// and index, when a value of p is not finite or beyond value_abs_max.
net::Awaitable<Result<Update>> make_update(tree::Runtime* runtime, store::SiteStore* store, const Trained* trained,
                                           kernels::ChunkLayout layout, double value_abs_max);

}  // namespace fluvial::edge
