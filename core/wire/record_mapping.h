// The records of a round as messages (mapping.h has the rest).
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/result.h"
#include "core/round/lateness.h"
#include "core/round/model_form.h"
#include "core/round/outcome.h"
#include "core/round/pass.h"
#include "core/round/plan.h"
#include "core/round/received.h"
#include "core/round/record.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::wire {

v1::ModelRef to_proto(const round::ModelRef& ref);
// kInvalidArgument: a bad digest, or larger than any model.
Result<round::ModelRef> from_proto(const v1::ModelRef& ref);

v1::ModelForm to_proto(const round::ModelForm& form);
// kInvalidArgument: a bad base, or a codec's name that is too long. aggregate::check_form() looks at the rest.
Result<round::ModelForm> from_proto(const v1::ModelForm& form);

v1::LateRule to_proto(const round::Lateness& lateness);
// kInvalidArgument: as round::check_lateness(), for a round on `base`.
Result<round::Lateness> from_proto(const v1::LateRule& rule, const round::ModelRef& base, int scale_bits);

v1::Pass to_proto(const round::Pass& pass);
// kInvalidArgument: a bad digest, as round::check_pass(), or more values than the model has.
Result<round::Pass> from_proto(const v1::Pass& pass, std::uint64_t value_count);

v1::OutcomeReply::Outcome to_proto(round::Outcome outcome);
Result<round::Outcome> from_proto(v1::OutcomeReply::Outcome outcome);  // kInvalidArgument: none, or a newer one

using round::Received;

inline constexpr std::size_t kContinuesMax = 64;  // older runs are not told

// What the coordinator signed, passed on as it came (statements.h). Null: not signed.
using Order = std::shared_ptr<const v1::Signed>;

// A round as a parent tells it to one child.
struct Opening {
  RunId run;
  RoundId round;
  AttemptId attempt;
  Epoch epoch;
  round::ModelRef base;
  round::Plan plan;
  int scale_bits = 0;
  std::uint64_t value_count = 0;
  std::uint64_t integer_count = 0;
  std::vector<round::Participant> participants;  // those below the child
  std::vector<SiteId> counted;                   // of those
  std::vector<SiteId> gone;                      // once below the child in this round, elsewhere now
  std::chrono::milliseconds soft_left{0};
  std::chrono::milliseconds hard_left{0};
  std::optional<Received> received;          // of the child's last transfer: it may go on from there
  std::vector<RunId> continues;              // the run that this one continues, then the run before that, ...
  Order order = {};                          // an OpeningStatement
  std::optional<round::Lateness> late = {};  // updates of earlier rounds may enter
  // The base's tree digest, for the statement, which alone says it (tree_of_opening()).
  std::optional<Digest> base_tree = {};
  std::optional<round::Pass> pass = {};  // that is open; none: the round has one
};
v1::Envelope to_envelope(const Opening& opening);
Result<Opening> from_proto(const v1::RoundOpen& message);

// A commit as a parent tells it to one child.
struct Commit {
  RunId run;
  RoundId round;
  AttemptId attempt;
  round::ModelRef model;
  round::ContributorSet contributors;  // those below the child
  std::vector<round::Refusal> refusals;
  bool last = false;
  std::vector<SiteId> late;  // participants below the child that are not in. A site that is named nowhere has to ask
  Order order = {};          // a CommitStatement
  std::map<SiteId, Order> outcomes = {};  // OutcomeStatements, of those below the child
  std::optional<Digest> model_tree = {};  // the model's tree digest, for the statement alone (tree_of_commit())
};
v1::Envelope to_envelope(const Commit& commit);
Result<Commit> from_proto(const v1::RoundCommit& message);

v1::Envelope to_envelope(const round::Decline& decline);
round::Decline from_proto(const v1::Decline& message);

}  // namespace fluvial::wire
