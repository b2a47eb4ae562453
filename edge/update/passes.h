// A submission of a codec with several passes (docs/design/phases.md): p and what its first pass sends; then, for each
// mean that comes down, what a later pass sends, and what it leaves of p when it is counted. Blocking. The same input
// gives the same bytes, on any number of threads.
#pragma once

#include <string>

#include "core/base/parallel.h"
#include "core/store/site_store.h"
#include "edge/update/job.h"

namespace fluvial::edge {

// As encode_update(). `state`: the codec's, as the opening named it; empty: as before the run's first round.
// kInvalidArgument when it is of another run, rank or schema.
Result<store::PendingUpdate> encode_first_pass(const UpdateJob& job, ByteSpan state, store::SiteStore& store,
                                               Parallel& parallel);

struct PassJob {
  RunId run;
  RoundId round;
  const round::Plan& plan;
  round::MadeFrom from;  // the pass, and the digest of `mean`
  ByteSpan mean;         // of the pass before, as it came (core/aggregate/pass_mean.h)
  Epoch epoch;           // of the opening that named it
  AttemptId attempt;
  std::string site_name;
  DigestKind digest_kind = DigestKind::kStream;
  float* pass_factor = nullptr;  // as in UpdateJob, of this pass
};

// Of the submission that is pending, which has all that it needs but the mean. kDataLoss: a mean of another attempt.
// kStale, kAlreadyExists, kFailedPrecondition: as SiteStore::begin_pass(). Needs memory for p, twice where less of it
// is sent than there is.
Result<store::PendingUpdate> encode_pass(const PassJob& job, store::SiteStore& store, Parallel& parallel);

}  // namespace fluvial::edge
