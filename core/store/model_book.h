// Which models of a run stay for good, as the coordinator's journal has it: those with a label, and the best one so
// far.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::store {

class CoordinatorJournal;

inline constexpr std::size_t kLabelBytesMax = 64;
inline constexpr std::size_t kLabelsMax = 256;  // of a run

// 1 to 64 letters, digits, dots, dashes and underlines, that are no round's number, nor "latest" or "best".
Status check_label(std::string_view name);

struct LabelRow {
  std::string name;
  RoundId round;  // 0: the run's initial model
  Digest model{};
  WallTime labelled_at;
  bool operator==(const LabelRow&) const = default;
};

struct BestRow {
  RoundId round;
  Digest model{};
  double value = 0;        // of the metric that the plan names
  bool evaluated = false;  // by the coordinator's own evaluator; else as the sites reported it
  bool operator==(const BestRow&) const = default;
};

// A facet of the journal: thread safe and blocking as that is, each change one durable transaction.
class ModelBook {
 public:
  explicit ModelBook(CoordinatorJournal& journal) : journal_(journal) {}

  // kAlreadyExists when the run has this label at another round; fine at the same one. kResourceExhausted;
  // kInvalidArgument.
  Status add_label(RunId run, const LabelRow& label);
  Status remove_label(RunId run, const std::string& name);  // kNotFound
  Result<std::vector<LabelRow>> labels(RunId run);          // by round, then by name
  Status set_best(RunId run, const BestRow& best);
  Result<std::optional<BestRow>> best(RunId run);

 private:
  CoordinatorJournal& journal_;
};

}  // namespace fluvial::store
