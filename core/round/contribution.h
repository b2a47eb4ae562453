// Contributions and the sets they form. A contribution (run, round, site) counts exactly once or not at all: sets merge
// only when they are disjoint, and an entry counts only under the site's current lease.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/base/signature.h"

namespace fluvial::round {

inline constexpr std::uint64_t kWeightLimit = std::uint64_t{1} << 29;  // weights are below it: x * w is exact in fp64
// Old updates count with a factor of so many bits (docs/design/late.md), and weight times factor is below kWeightLimit.
inline constexpr int kFactorBits = 9;
inline constexpr std::uint32_t kWholeFactor = std::uint32_t{1} << kFactorBits;
inline constexpr std::uint64_t kStaleWeightLimit = kWeightLimit >> kFactorBits;

using Metrics = std::map<std::string, double>;

// How long a contribution took on its way up. Each part is measured by the node that saw it. Only pace.h uses these
// times: no record holds them, and they never decide whether a contribution counts. All 0: unknown.
struct Times {
  Duration train{};     // opening sent -> update begun: training and encoding
  Duration transfer{};  // begun -> verified: of the update, and of the partials that carried it
  Duration merge{};     // being added to sums
  Duration total() const { return train + transfer + merge; }
  bool known() const { return total() > Duration(0); }
  bool operator==(const Times&) const = default;
};

// Of a round with several passes (pass.h): in which one an update was made, and from which mean.
struct MadeFrom {
  std::uint32_t pass = 0;
  Digest mean{};  // of the pass before; nothing in the first
  bool operator==(const MadeFrom&) const = default;
};

struct Contribution {
  SiteId site;
  Epoch lease;
  std::uint64_t weight = 0;
  Digest digest{};         // of the encoded update
  std::int64_t probe = 0;  // what the sum holds at the site's probe coordinate: weight * 2^scale, or the sum is wrong
  Metrics metrics;
  // Which of the site's encodings this is. The same two numbers with another digest mean that the sender contradicts
  // itself.
  Incarnation incarnation;
  std::uint64_t submission = 0;
  Times times;
  std::optional<Signature> signature =
      {};  // the site's own, over run, round, base and what stands here but for metrics
  // The model that it was trained from, and the newest that the node which admitted it knew. Both 0 where updates enter
  // no round but their own.
  ModelVersion base = {};
  ModelVersion admitted = {};
  std::uint32_t share = kWholeFactor;  // of kWholeFactor, by the rate of its site (fairness.h)
  MadeFrom from = {};                  // signed
  std::uint64_t staleness() const { return admitted.value() - base.value(); }
  RoundId own_round(RoundId entered) const {  // admitted on the first model it is the first one's, which it entered
    return admitted == ModelVersion() ? entered : RoundId(base.value() + 1);
  }
  bool operator==(const Contribution&) const = default;
};

// Whether a refusal with this code means that the update itself can never be used. Its site then drops the update and
// keeps the residual that it had. After a refusal with any other code the site merely took no part, and what it trained
// travels with its next update.
bool drops_update(Code code);

struct Refusal {
  SiteId site;
  Error error;
  RoundId own = {};  // the round that the refused update is of; 0: the one that it entered
  // Of kConflict: the two contents of the one submission, as their site signed them. For the root, and in no record.
  std::vector<Contribution> proof = {};
  // An update is of no round after the one that it entered, whatever a peer says.
  RoundId own_round(RoundId entered) const { return own == RoundId() || own > entered ? entered : own; }
  bool operator==(const Refusal&) const = default;
};

// Of each site the newest round, by the number of its own round, whose update was decided: counted, or refused so that
// the site drops it. No update up to that comes in again.
using Marks = std::map<SiteId, RoundId>;

struct Participant {
  SiteId site;
  Epoch lease;
  std::uint64_t weight_max = 0;
  std::uint32_t share = kWholeFactor;  // that its update has which this window admits
  bool operator==(const Participant&) const = default;
};

class ContributorSet {
 public:
  // kAlreadyExists when the site is in the set; kInvalidArgument for a weight of 0 or from 2^29 on.
  Status add(Contribution contribution);
  // All or nothing. kAlreadyExists when the sets overlap (overlap() names the sites).
  Status merge(const ContributorSet& other);
  std::vector<SiteId> overlap(const ContributorSet& other) const;
  void spend(const Times& more);                         // adds to the times of every contribution
  void forget_metrics();                                 // those of every contribution
  void admitted_fresh(ModelVersion base);                // those that say no versions were trained from this one
  void admitted_on(ModelVersion newest);                 // all of them, by the node that admits them
  void admitted_with(SiteId site, std::uint32_t share);  // of that site, if it is in

  bool contains(SiteId site) const { return entries_.contains(site); }
  const Contribution* find(SiteId site) const;
  std::size_t size() const { return entries_.size(); }
  bool empty() const { return entries_.empty(); }
  std::uint64_t total_weight() const { return total_weight_; }  // at most 2^29 * 2^32: never overflows
  const std::map<SiteId, Contribution>& entries() const { return entries_; }
  void clear();

  bool operator==(const ContributorSet&) const = default;

 private:
  std::map<SiteId, Contribution> entries_;
  std::uint64_t total_weight_ = 0;
};

// What a contribution is added with: x * weight * 2^-down_bits, at the sum's scale. A fresh one's factor is its share,
// an older one's share * factor, rounded half up to 1/512, 1/512 at least.
struct Share {
  std::uint32_t weight = 0;
  int down_bits = 0;
};
// `factors`: by staleness (lateness.h); empty: none but fresh ones. None: it counts nowhere.
std::optional<Share> share_of(const Contribution& contribution, std::span<const std::uint32_t> factors);

// The probe: coordinate s of the sum must be what its share makes of 1: w_s * 2^scale for a fresh contributor.
// kDataLoss names the first site that is off.
Status check_probe(const ContributorSet& set, int scale_bits, std::span<const std::uint32_t> factors = {});

}  // namespace fluvial::round
