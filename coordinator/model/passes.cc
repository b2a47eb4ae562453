#include "coordinator/model/passes.h"

#include <algorithm>
#include <utility>

#include "core/digest/sha256.h"
#include "kernels/stream_key.h"
#include "kernels/vector.h"

namespace fluvial::coordinator {

NamedVector named(SharedBytes bytes) {
  const round::VectorRef ref{sha256(bytes.bytes), bytes.bytes.size()};
  return {std::move(bytes), ref};
}

Result<SharedBytes> mean_bytes(Parallel& parallel, const transfer::NodeSum& sum, std::uint64_t total_weight,
                               const aggregate::MeanOf& of) {
  const kernels::ChunkLayout& layout = sum.shape().layout;
  Buffer bytes = aggregate::begin_mean(of, layout.value_count);
  const std::span<float> mean = aggregate::mean_values(bytes);
  FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
    const std::span<float> chunk = layout.of(mean, i);
    FLUVIAL_TRY(sum.accumulator().mean(layout.first_value(i), total_weight, chunk));
    if (const auto screened = kernels::screen(chunk, layout.first_value(i)); !screened.ok()) {
      return Error{Code::kDataLoss, "the mean of a pass would not be finite: " + screened.error().message};
    }
    return {};
  }));
  return SharedBytes::from(std::move(bytes));
}

Result<NamedVector> mean_of_pass(Parallel& parallel, const transfer::NodeSum& sum,
                                 const round::ContributorSet& contributors, const aggregate::MeanOf& of) {
  FLUVIAL_TRY(sum.check_probes(contributors));
  FLUVIAL_ASSIGN(SharedBytes bytes, mean_bytes(parallel, sum, contributors.total_weight(), of));
  return named(std::move(bytes));
}

bool goes_on_from(const kernels::CodecSpec& before, const kernels::CodecSpec& next) {
  if (next.kind == kernels::CodecKind::kOnebitAdam && next.freeze_rounds > 0) return false;
  kernels::CodecSpec alike = before;
  alike.freeze_rounds = next.freeze_rounds;
  alike.beta1 = next.beta1;
  alike.zstd_level = next.zstd_level;
  return alike == next;
}

Result<NamedVector> continued_state(const kernels::Codec& codec, const round::Schema& schema, const round::Plan& plan,
                                    ByteSpan last) {
  const aggregate::Shapes shapes(schema, plan.chunk_values);
  Buffer state(codec.handed_bytes(shapes.schema(), 0));
  std::ranges::fill(state.span(), std::byte{0});
  const kernels::StreamKey key = kernels::stream_key(plan.seed, 0, std::string_view());
  FLUVIAL_TRY(codec.continue_state(shapes.schema(), key, last, state.span()));
  return named(SharedBytes::from(std::move(state)));
}

MeanUpdate::MeanUpdate(const PassesInput& input, const round::Schema& schema, std::uint64_t chunk_values,
                       SharedBytes last)
    : input_(input),
      shapes_(schema, chunk_values),
      last_(std::move(last)),
      workspace_(input.codec->workspace_bytes(shapes_.schema())) {}

Result<std::unique_ptr<MeanUpdate>> MeanUpdate::make(const PassesInput& input, const round::Schema& schema,
                                                     std::uint64_t chunk_values, SharedBytes last) {
  std::unique_ptr<MeanUpdate> update(new MeanUpdate(input, schema, chunk_values, std::move(last)));
  std::vector<std::span<const float>> means;
  for (const SharedBytes& mean : update->input_.means) means.push_back(aggregate::mean_values(mean.bytes));
  means.push_back(aggregate::mean_values(update->last_.bytes));
  FLUVIAL_ASSIGN(update->plan_,
                 input.codec->prepare_expand(update->shapes_.schema(), means, update->workspace_.span()));
  return update;
}

Status MeanUpdate::chunk(std::size_t index, std::span<float> out) const {
  return input_.codec->expand_chunk(plan_, index, out);
}

Result<NamedVector> MeanUpdate::next_state() const {
  const kernels::VectorSchema schema = shapes_.schema();
  Buffer state(input_.codec->state_bytes(schema));
  if (input_.state.bytes.empty()) {
    std::ranges::fill(state.span(), std::byte{0});
  } else if (input_.state.bytes.size() == state.size()) {
    std::ranges::copy(input_.state.bytes, state.data());
  } else {
    return Error{Code::kDataLoss, "a codec state of " + std::to_string(input_.state.bytes.size()) +
                                      " bytes, expected " + std::to_string(state.size())};
  }
  FLUVIAL_TRY(input_.codec->settle(schema, input_.key, aggregate::mean_values(last_.bytes), state.span()));
  return named(SharedBytes::from(std::move(state)));
}

}  // namespace fluvial::coordinator
