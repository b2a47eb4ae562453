// Every update that a site made durable, decoded by the naive reference: the oracle's half of the arithmetic. It shares
// no code with the kernels, the accumulator or the codecs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/round/contribution.h"
#include "core/round/plan.h"
#include "core/store/site_store.h"

namespace fluvial::simulator {

// docs/design/late.md, in other words than the services': the round that an update is of, and what of 512 parts it
// counts.
RoundId own_round(RoundId round, const round::Contribution& entry);
std::uint32_t parts_of_512(const round::Plan& plan, std::uint64_t staleness);
std::uint32_t parts_of_512(const round::Plan& plan, const round::Contribution& entry);  // by its site's rate as well

struct KnownUpdate {
  std::uint64_t weight = 0;
  std::vector<double> values;  // decoded
  std::vector<std::int64_t> integers;
  std::set<Digest> means = {};  // that it was made from, of a later pass: alike ones of several attempts make it alike
};

class Truth {
 public:
  // `chunks` are the encoded chunks in order. False when the reference cannot decode them.
  bool add(RunId run, RoundId round, SiteId site, const Digest& digest, const store::PendingStart& start,
           const std::vector<Buffer>& chunks, std::vector<std::int64_t> integers);
  // What the site made for this pass of the round, with these bytes.
  const KnownUpdate* find(RunId run, RoundId round, SiteId site, std::uint32_t pass, const Digest& digest) const;
  const KnownUpdate* find(RunId run, RoundId round, const round::Contribution& entry) const;  // that entered the round

  // The exact sum of these contributors, each with the factor of its staleness by the plan. None, and `wrong` says why,
  // for an unknown update, another weight, or a sum beyond int64.
  std::optional<std::vector<std::int64_t>> sum(RunId run, RoundId round, const round::ContributorSet& contributors,
                                               const round::Plan& plan, int scale_bits, std::uint64_t value_count,
                                               std::string* wrong) const;
  // The greatest of each integer over these (known) contributors. Empty without integers or contributors.
  std::vector<std::int64_t> greatest(RunId run, RoundId round, const round::ContributorSet& contributors) const;
  // The updates of one site in one round: more than one when it encoded anew, in another pass, or lied.
  std::vector<const KnownUpdate*> all_of(RunId run, RoundId round, SiteId site) const;

 private:
  using Key = std::tuple<RunId, RoundId, SiteId, std::uint32_t, Digest>;
  std::map<Key, KnownUpdate> updates_;
};

}  // namespace fluvial::simulator
