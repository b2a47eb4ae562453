// A round with several passes (docs/design/phases.md), between its sums and its commit: the mean that a pass hands
// down, and after the last one the mean update and the codec's next state. Blocking.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/aggregate/pass_mean.h"
#include "core/aggregate/shapes.h"
#include "core/base/parallel.h"
#include "core/round/pass.h"
#include "core/round/plan.h"
#include "core/transfer/node_sum.h"
#include "kernels/codec.h"

namespace fluvial::coordinator {

// A vector that nodes fetch, with its name.
struct NamedVector {
  SharedBytes bytes;
  round::VectorRef ref;
};

NamedVector named(SharedBytes bytes);

// Of what the sum holds, as it travels (pass_mean.h); the sum must not change meanwhile. kDataLoss: its probes are not
// those of the contributors, or the mean is not finite. The same sum gives the same bytes, whatever `parallel` is.
// mean_bytes(): without its name, and without the probes: of the last pass, whose mean nobody fetches.
Result<SharedBytes> mean_bytes(Parallel& parallel, const transfer::NodeSum& sum, std::uint64_t total_weight,
                               const aggregate::MeanOf& of);
Result<NamedVector> mean_of_pass(Parallel& parallel, const transfer::NodeSum& sum,
                                 const round::ContributorSet& contributors, const aggregate::MeanOf& of);

struct PassesInput {
  std::shared_ptr<const kernels::Codec> codec;
  std::vector<SharedBytes> means;  // of the passes before the last, in order
  kernels::StreamKey key;          // of the run's plan and this round
  SharedBytes state = {};          // the codec's, before this round; empty: as before the first
};

// Whether a run with codec `next` goes on with the state that one with `before` left, on models of one schema. 1-bit
// Adam does where it has no warm-up of its own.
bool goes_on_from(const kernels::CodecSpec& before, const kernels::CodecSpec& next);
// The state that a run's codec begins with where the run goes on from another one of the same codec and schema: `last`
// is the state after that one's last round.
Result<NamedVector> continued_state(const kernels::Codec& codec, const round::Schema& schema, const round::Plan& plan,
                                    ByteSpan last);

// What all the means make of the model.
class MeanUpdate {
 public:
  // `last`: of the last pass.
  static Result<std::unique_ptr<MeanUpdate>> make(const PassesInput& input, const round::Schema& schema,
                                                  std::uint64_t chunk_values, SharedBytes last);
  const kernels::ChunkLayout& layout() const { return shapes_.layout(); }  // of the model
  Status chunk(std::size_t index, std::span<float> out) const;             // any thread
  Result<NamedVector> next_state() const;

 private:
  MeanUpdate(const PassesInput& input, const round::Schema& schema, std::uint64_t chunk_values, SharedBytes last);

  PassesInput input_;
  aggregate::Shapes shapes_;
  SharedBytes last_;
  Buffer workspace_;
  kernels::ExpandPlan plan_;
};

}  // namespace fluvial::coordinator
