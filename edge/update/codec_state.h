// What a codec with a state of its own makes of an update before it is encoded (dgc: momentum and gradients that were
// not sent accumulate at the site). Inside this room only.
#pragma once

#include "core/base/parallel.h"
#include "core/base/result.h"
#include "core/store/site_store.h"
#include "edge/update/job.h"
#include "edge/update/update.h"
#include "kernels/codec.h"

namespace fluvial::edge {

// Whether sites keep one; that of a codec with several passes is the run's (docs/design/phases.md).
bool keeps_state(const kernels::Codec& codec, kernels::ChunkLayout layout);

// The state that the next update begins with: that of the residual with what its counted chunks made of it, or zeros
// when there is none or it is of a codec of another kind. kDataLoss when a file or its row is damaged.
Result<Buffer> state_before(const kernels::Codec& codec, kernels::ChunkLayout layout, const store::Residual& residual);

// p as the codec makes it of the training's own update, the residual, and what the round before handed down, with the
// state as it then is. `key` is of the round that takes it; round 0: none does, and nothing is lent. A chunk of the
// residual that is damaged, and a state that is, or that would make p unusable, is taken for zero and counted as
// job.residual_lost. `own` stays in the result where the plan bounds its norm. Needs memory for two more vectors of the
// model's length, and the state.
Result<Update> fold_in(const UpdateJob& job, const kernels::Codec& codec, const kernels::StreamKey& key, Update own,
                       const store::Residual& residual, Parallel& parallel);

// What the codec makes of an update with nothing carried over (dgc: clipped), in place.
Status fold_alone(const kernels::Codec& codec, kernels::ChunkLayout layout, std::span<float> update);

}  // namespace fluvial::edge
