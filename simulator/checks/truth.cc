#include "simulator/checks/truth.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "kernels/reference/reference.h"

namespace fluvial::simulator {

// The round that begins with the model that it was trained from; where no versions are said, the one that it is in.
RoundId own_round(RoundId round, const round::Contribution& entry) {
  return entry.admitted.value() == 0 ? round : RoundId(entry.base.value() + 1);
}

std::uint32_t parts_of_512(const round::Plan& plan, std::uint64_t staleness) {
  if (plan.late != "next" || staleness == 0) return 512;
  const long double parts =
      512 / std::pow(static_cast<long double>(staleness + 1), static_cast<long double>(plan.staleness_power));
  return parts < 1 ? 1 : static_cast<std::uint32_t>(std::nearbyint(parts));
}

std::uint32_t parts_of_512(const round::Plan& plan, const round::Contribution& entry) {
  const std::uint32_t by_age = parts_of_512(plan, entry.admitted.value() - entry.base.value());
  return std::max(1U, (by_age * entry.share + 256) / 512);
}

bool Truth::add(RunId run, RoundId round, SiteId site, const Digest& digest, const store::PendingStart& start,
                const std::vector<Buffer>& chunks, std::vector<std::int64_t> integers) {
  KnownUpdate update{start.weight, {}, std::move(integers), {}};
  const std::uint64_t sent = start.sent_values == 0 ? start.value_count : start.sent_values;
  for (const Buffer& chunk : chunks) {
    const std::uint64_t left = sent - update.values.size();
    const auto size = static_cast<std::size_t>(left < start.chunk_values ? left : start.chunk_values);
    const std::optional<std::vector<double>> values = kernels::reference::decode(start.codec, chunk.span(), size);
    if (!values) return false;
    update.values.insert(update.values.end(), values->begin(), values->end());
  }
  if (update.values.size() != sent || update.integers.size() != start.integer_count) return false;
  KnownUpdate& known = updates_[{run, round, site, start.from.pass, digest}];
  update.means = std::move(known.means);
  if (start.from.pass > 0) update.means.insert(start.from.mean);
  known = std::move(update);
  return true;
}

const KnownUpdate* Truth::find(RunId run, RoundId round, SiteId site, std::uint32_t pass, const Digest& digest) const {
  const auto found = updates_.find({run, round, site, pass, digest});
  return found == updates_.end() ? nullptr : &found->second;
}

const KnownUpdate* Truth::find(RunId run, RoundId round, const round::Contribution& entry) const {
  return find(run, own_round(round, entry), entry.site, entry.from.pass, entry.digest);
}

std::optional<std::vector<std::int64_t>> Truth::sum(RunId run, RoundId round, const round::ContributorSet& contributors,
                                                    const round::Plan& plan, int scale_bits, std::uint64_t value_count,
                                                    std::string* wrong) const {
  __extension__ using Wide = __int128;
  std::vector<Wide> sums(static_cast<std::size_t>(value_count), 0);
  for (const auto& [site, entry] : contributors.entries()) {
    const std::string who = "site " + std::to_string(site.value());
    const KnownUpdate* update = find(run, round, entry);
    const std::uint32_t parts = parts_of_512(plan, entry);
    const std::uint32_t weight = static_cast<std::uint32_t>(entry.weight) * (parts == 512 ? 1 : parts);
    const int scale = parts == 512 ? scale_bits : scale_bits - 9;
    if (update == nullptr) {
      *wrong = who + " is in with an update that it never made durable";
      return std::nullopt;
    }
    if (update->weight != entry.weight) {
      *wrong = who + " is in with weight " + std::to_string(entry.weight) + ", its own was " +
               std::to_string(update->weight);
      return std::nullopt;
    }
    for (std::size_t i = 0; i < sums.size(); ++i) {
      const std::optional<std::int64_t> term = kernels::reference::fixed_term(update->values[i], weight, scale);
      if (!term) {
        *wrong = who + ": value " + std::to_string(i) + " is beyond the fixed-point range";
        return std::nullopt;
      }
      sums[i] += *term;
    }
  }
  std::vector<std::int64_t> out;
  for (const Wide sum : sums) {
    if (sum > std::numeric_limits<std::int64_t>::max() || sum < std::numeric_limits<std::int64_t>::min()) {
      *wrong = "the sum does not fit in 64 bits";
      return std::nullopt;
    }
    out.push_back(static_cast<std::int64_t>(sum));
  }
  return out;
}

std::vector<std::int64_t> Truth::greatest(RunId run, RoundId round, const round::ContributorSet& contributors) const {
  std::vector<std::int64_t> out;
  for (const auto& [site, entry] : contributors.entries()) {
    const KnownUpdate* update = find(run, round, entry);
    if (update == nullptr) continue;  // sum() has reported it
    if (out.empty()) out = update->integers;
    for (std::size_t i = 0; i < out.size(); ++i) out[i] = std::max(out[i], update->integers[i]);
  }
  return out;
}

std::vector<const KnownUpdate*> Truth::all_of(RunId run, RoundId round, SiteId site) const {
  std::vector<const KnownUpdate*> found;
  const Key first{run, round, site, 0, Digest{}};
  for (auto it = updates_.lower_bound(first); it != updates_.end(); ++it) {
    if (std::get<0>(it->first) != run || std::get<1>(it->first) != round || std::get<2>(it->first) != site) break;
    found.push_back(&it->second);
  }
  return found;
}

}  // namespace fluvial::simulator
