// Which of a run's committed models stay on the disk: the newest, as the plan says, those with a label, and the best
// one by the plan's metric.
#pragma once

#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/round/contribution.h"
#include "core/store/journal.h"
#include "core/store/model_book.h"
#include "core/store/model_store.h"

namespace fluvial::coordinator {

// Thread safe, so that nothing is removed while it gets its label. Blocking: on the pool. What it is given outlives it.
class ModelKeeper {
 public:
  ModelKeeper(store::CoordinatorJournal& journal, store::ModelStore& models) : journal_(journal), models_(models) {}

  // A model was committed, with what its round's sites reported: removes what stays no longer. `model` has the digest
  // of the one that is kept.
  Status committed(const round::Plan& plan, const round::ModelRef& model, const round::Metrics& metrics);
  // Its model was evaluated. One whose model is gone already is not the best. From the first evaluation with the plan's
  // metric on, what sites report under that name makes none the best: one site alone could.
  Status evaluated(RunId run, RoundId round, const round::Metrics& metrics);

  // kNotFound when the round was not committed or its model is gone; else as ModelBook has it.
  Status label(RunId run, RoundId round, const std::string& name, WallTime now);
  // kNotFound. A model that nothing else keeps is removed.
  Status remove_label(RunId run, const std::string& name);

  struct Kept {
    RoundId round;
    Digest digest{};
    std::string path;
  };
  // By a round's number, "latest", "best" or a label. kNotFound says why it is not there.
  Result<Kept> find(RunId run, const std::string& which);

  struct Listed {
    RoundId round;
    std::vector<std::string> labels = {};
    std::optional<double> best = {};  // the metric's value, of the best one
    bool operator==(const Listed&) const = default;
  };
  Result<std::vector<Listed>> list(RunId run);  // those that are there, by round

 private:
  Result<std::set<ModelVersion>> stay(RunId run);
  Result<std::string> rounds_kept(RunId run) const;  // in words
  enum class By { kSites, kEvaluator };
  Status consider(const round::Plan& plan, const round::ModelKey& model, const round::Metrics& metrics,
                  const Digest& digest, By by);
  Result<Digest> digest_of(RunId run, RoundId round);

  store::CoordinatorJournal& journal_;
  store::ModelStore& models_;
  std::mutex mutex_;
};

}  // namespace fluvial::coordinator
