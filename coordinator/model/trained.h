// The model that sites train from, made of the one that the server keeps (docs/design/down.md). Blocking.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "core/aggregate/model_form.h"

namespace fluvial::coordinator {

// The form in which a model travels, shared with whoever sends it.
struct SharedForm {
  round::ModelForm form;
  SharedBytes bytes;
};

struct TrainedModel {
  round::ModelRef ref;  // what openings and commits name
  SharedBytes bytes;
  std::optional<SharedForm> form;   // none: it travels whole
  std::string whole_because;        // the plan wants a form, and this model has none; else empty
  double left_out_norm = 0;         // 2-norm of what it lacks of the master; 0 for one that was read from the disk
  std::optional<Digest> tree = {};  // its tree digest, if it was made
};

// Told once of a model that is all there and has no SHA-256 yet, by which it will be named: its ref has the tree
// digest for its digest. On any thread. Empty: nobody asks.
using Ahead = std::function<void(const TrainedModel&)>;

// How a run's models are made.
struct DownPlan {
  aggregate::Down down;
  std::uint64_t chunk_values = 0;
  std::uint64_t seed = 0;  // the plan's: the roundings of a version are drawn by both, and by no run's number
};

struct Master {
  round::ModelKey key;
  Digest digest{};
  SharedBytes bytes;
  std::optional<Digest> tree = {};  // if it was made
};

// `before`: what sites trained from in the round before; a difference begins there. A run's initial model travels
// whole, and so does one that the codec does not hold, or whose difference has no model to begin at or is no smaller:
// it is then the master itself. The same arguments give the same bytes.
Result<TrainedModel> make_trained(Parallel& parallel, const DownPlan& plan, const round::Schema& schema,
                                  const Master& master, const std::optional<aggregate::BaseModel>& before,
                                  const Ahead& ahead = {});

}  // namespace fluvial::coordinator
