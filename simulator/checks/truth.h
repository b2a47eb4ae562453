// Every update that a site made durable, decoded by the naive reference: the oracle's half of the arithmetic. It shares
// no code with the kernels, the accumulator or the codecs.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/round/contribution.h"

namespace fluvial::simulator {

struct KnownUpdate {
  std::uint64_t weight = 0;
  std::vector<double> values;  // decoded
};

class Truth {
 public:
  // `chunks` are the encoded chunks in order. False when the reference cannot decode them.
  bool add(RunId run, RoundId round, SiteId site, const Digest& digest, std::uint64_t weight, const std::string& codec,
           std::uint64_t value_count, std::uint64_t chunk_values, const std::vector<Buffer>& chunks);
  const KnownUpdate* find(RunId run, RoundId round, SiteId site, const Digest& digest) const;

  // What the exact sum of these contributors must be; otherwise what is wrong: an unknown update, another weight, or a
  // sum beyond int64.
  std::optional<std::vector<std::int64_t>> sum(RunId run, RoundId round, const round::ContributorSet& contributors,
                                               int scale_bits, std::uint64_t value_count, std::string* wrong) const;
  void forget_before(RunId run, RoundId round);  // nothing older is asked for any more

 private:
  using Key = std::tuple<RunId, RoundId, SiteId, Digest>;
  std::map<Key, KnownUpdate> updates_;
};

}  // namespace fluvial::simulator
