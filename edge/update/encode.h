// From trained results to a durable submission: p = (base - local) + residual, screened, encoded, written. Blocking.
#pragma once

#include <memory>
#include <optional>

#include "core/base/parallel.h"
#include "core/store/site_store.h"
#include "edge/update/feed.h"
#include "edge/update/job.h"

namespace fluvial::edge {

// The same job on the same residual gives the same bytes, on any number of threads. kDataLoss names the tensor and the
// index of a value of the training's own update that is not finite or beyond the plan's value_abs_max, or of an integer
// beyond what a round can bring (core/round/integers.h). Then nothing is durable, the residual is as it was, and chunks
// before it may have been fed. What the residual would add beyond the plan's bounds stays out (fit.h). Needs memory for
// the model as fp32 (twice if something stays out), and two encoded chunks for each piece that `parallel` runs at once.
// If all parts are on the job's GPUs, these make and encode the update (edge/gpu); the host needs only a few chunks. On
// one GPU the bytes are the same; on several, p is, up to fp32 rounding. The host does what they lack room or a codec
// for. kInternal when a GPU has failed: then SiteGpus::fault() is set.
//
// In steps, so that what is encoded can be sent while the rest is made. Of a codec that looks at a chunk alone a step
// is a few chunks; of any other, everything until the last chunk is encoded. The last step makes all of it durable.
// Steps may be of any thread, one at a time; everything else is of the thread that sends.
class Encoding {
 public:
  // `job`, what it views, `store` and `parallel` outlive it.
  Encoding(const UpdateJob& job, store::SiteStore& store, Parallel& parallel);
  ~Encoding();
  Encoding(const Encoding&) = delete;
  Encoding& operator=(const Encoding&) = delete;

  // The submission, once it is durable: the last step, as an error is. Given up before, it leaves nothing behind.
  Result<std::optional<store::PendingUpdate>> step();
  // Between two steps: what may be sent. Null: nothing. Another one than after the step before: encoding has begun
  // anew, as another submission. Closed when this ends.
  std::shared_ptr<const Feed> feed();

 private:
  class Work;
  std::unique_ptr<Work> work_;  // until the last step
  std::shared_ptr<Feed> feed_;
};

Result<store::PendingUpdate> encode_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel);

// For an update that is too late to be sent: p becomes the residual, if it is within the plan's bounds; its integers
// are dropped. One transaction. Errors as above.
Result<store::Carried> fold_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel);

}  // namespace fluvial::edge
