#include "coordinator/model/trained.h"

#include <fmt/format.h>

#include <utility>

#include "core/digest/model_digest.h"
#include "core/digest/sha256.h"
#include "kernels/stream_key.h"

namespace fluvial::coordinator {
namespace {

void tell(const Ahead& ahead, TrainedModel model) {
  if (!ahead || !model.tree) return;
  model.ref = round::called_ahead(model.ref, *model.tree);
  ahead(model);
}

}  // namespace

Result<TrainedModel> make_trained(Parallel& parallel, const DownPlan& plan, const round::Schema& schema,
                                  const Master& master, const std::optional<aggregate::BaseModel>& before,
                                  const Ahead& ahead) {
  using Kind = aggregate::Down::Kind;
  TrainedModel whole{
      {master.key.run, master.key.version, master.digest, schema.model_bytes()}, master.bytes, {}, {}, 0, master.tree};
  const auto travels_whole = [&](std::string because) {
    whole.whole_because = std::move(because);
    tell(ahead, whole);
    return whole;
  };
  if (plan.down.kind == Kind::kWhole || master.key.version == ModelVersion(0)) return travels_whole({});
  const bool is_delta = plan.down.kind == Kind::kDelta;
  if (is_delta && !before) return travels_whole({});
  const kernels::StreamKey key = kernels::stream_key(plan.seed, master.key.version.value(), "");
  Buffer bytes(schema.model_bytes());
  Result<aggregate::EncodedModel> encoded =
      aggregate::encode_model(parallel, plan.down, plan.chunk_values, key, schema, master.bytes.bytes,
                              is_delta ? before : std::optional<aggregate::BaseModel>(), bytes.span());
  if (!encoded.ok()) {
    if (encoded.error().code != Code::kInvalidArgument) return encoded.error();
    return travels_whole(encoded.error().message);
  }
  if (is_delta && encoded->bytes.size() >= schema.model_bytes()) {
    return travels_whole(
        fmt::format("its difference takes {} bytes, and the model {}", encoded->bytes.size(), schema.model_bytes()));
  }
  TrainedModel made{whole.ref,
                    SharedBytes::from(std::move(bytes)),
                    SharedForm{std::move(encoded->form), SharedBytes::from(std::move(encoded->bytes))},
                    {},
                    encoded->left_out_norm,
                    {}};
  FLUVIAL_ASSIGN(made.tree, model_tree_digest(parallel, made.bytes.bytes));
  tell(ahead, made);
  made.ref.digest = sha256(made.bytes.bytes);
  return made;
}

}  // namespace fluvial::coordinator
