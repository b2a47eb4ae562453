// From what was trained to a durable submission: p = (base - local) + residual, screened, encoded, written.
#pragma once

#include "core/base/ids.h"
#include "core/net/awaitable.h"
#include "core/round/plan.h"
#include "core/store/site_store.h"
#include "core/tree/runtime.h"
#include "edge/service/trained.h"

namespace fluvial::edge {

struct EncodeJob {
  RunId run;
  RoundId round;
  SiteId site;
  round::Plan plan;
  Trained trained;
};

// On the caller's strand; the work is done on the pool. The same job on the same residual gives the same bytes.
// kDataLoss names the tensor and the index of a value that is not finite or beyond the plan's value_abs_max: then
// nothing was written, and the residual is as it was.
net::Awaitable<Result<store::PendingUpdate>> encode_update(tree::Runtime* runtime, store::SiteStore* store,
                                                           EncodeJob job);

// For an update that comes too late to be sent: p becomes the residual, in one transaction of the store. Errors as
// above.
net::Awaitable<Result<store::ResidualInfo>> fold_update(tree::Runtime* runtime, store::SiteStore* store, EncodeJob job);

}  // namespace fluvial::edge
