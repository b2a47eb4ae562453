// From what was trained to a durable submission: p = (base - local) + residual, screened, encoded, written. Blocking.
#pragma once

#include "core/base/parallel.h"
#include "core/store/site_store.h"
#include "edge/update/job.h"

namespace fluvial::edge {

// The same job on the same residual gives the same bytes, on any number of threads. kDataLoss names the tensor and the
// index of a value of the training's own update that is not finite or beyond the plan's value_abs_max, or of an integer
// beyond what a round can bring (core/round/integers.h): then nothing was written, and the residual is as it was. What
// the residual adds beyond the plan's bounds stays out (fit.h). Takes the model once over as fp32 (twice, where
// something stays out), and two encoded chunks for each piece that `parallel` runs at a time. Where all parts lie on
// the job's GPUs, these make and encode it (edge/gpu), and the host takes a few chunks alone; the bytes are the same on
// one GPU, and p is the same to fp32 rounding on several. What they have no room or no codec for the host does.
// kInternal when a GPU has failed: then SiteGpus::fault() is set.
Result<store::PendingUpdate> encode_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel);

// For an update that comes too late to be sent: p becomes the residual, if it is within the plan's bounds, and its
// integers count nowhere. One transaction. Errors as above.
Result<store::Carried> fold_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel);

}  // namespace fluvial::edge
