// Rounds with several passes (docs/design/phases.md) in the audit of bench_audit.h.
#include <fmt/format.h>

#include "cli/bench_audit.h"
#include "cli/bench_round.h"
#include "cli/bench_update.h"

namespace fluvial::cli {

// Who is in the first pass has made its update, whatever becomes of it: until it counts, all of it is still to come.
Result<std::uint64_t> Audit::add_first_pass(const json::value& round, const json::array& entries,
                                            std::span<const float> trained) {
  const std::uint64_t number = count_member(round, "round");
  sum_.assign(passes_->value_count(0), 0);
  std::uint64_t weights = 0;
  Base kept;
  for (SiteState& state : sites_) {
    const json::value* const entry = entry_of(entries, state.site.node);
    const bool dropped = is_dropped(round, state.site.node);
    if (entry == nullptr) {
      if (!dropped) miss(state, round, kept, trained);
      continue;
    }
    const std::uint64_t weight = bench_weight(state.site.index);
    FLUVIAL_TRY(check_weight(round, count_member(*entry, "weight"), weight));
    FLUVIAL_TRY(find_history(state, number, trained, [&](Carried& carried, std::vector<float>& p) -> Result<bool> {
      FLUVIAL_ASSIGN(const Encoded sent,
                     passes_->encode(0, number, state.site.name, p, trailer_of(state.site, number)));
      if (!sent.is(text_member(*entry, "digest"))) return false;
      FLUVIAL_TRY(add_decoded(sent.decoded, weight, 512));
      if (!dropped) carried.residual.swap(p);
      return true;
    }));
    weights += weight;
  }
  return weights;
}

Result<std::uint64_t> Audit::add_last_pass(const json::value& round, const json::array& before) {
  const std::uint64_t number = count_member(round, "round");
  const json::array& entries = array_member(round, "contributors");
  sum_.assign(passes_->value_count(1), 0);
  std::uint64_t weights = 0;
  for (SiteState& state : sites_) {
    const json::value* const entry = entry_of(entries, state.site.node);
    if (entry == nullptr) continue;
    if (entry_of(before, state.site.node) == nullptr || is_dropped(round, state.site.node)) {
      return Error{Code::kDataLoss, fmt::format("round {}: site {} is counted, and was not in the pass before", number,
                                                state.site.index)};
    }
    std::vector<float>& p = state.carried.front().residual;
    FLUVIAL_ASSIGN(const Encoded sent, passes_->encode(1, number, state.site.name, p, trailer_of(state.site, number)));
    if (!sent.is(text_member(*entry, "digest"))) {
      return Error{Code::kDataLoss,
                   fmt::format("round {}: what site {} sent in pass 2 is not what the mean makes of what it had",
                               number, state.site.index)};
    }
    FLUVIAL_TRY(add_decoded(sent.decoded, bench_weight(state.site.index), 512));
    p = passes_->left(p, sent);
    weights += bench_weight(state.site.index);
  }
  return weights;
}

Result<std::vector<float>> Audit::mean_update_of_passes(const json::value& round, std::span<const float> trained) {
  FLUVIAL_ASSIGN(const json::array first, first_pass_of(round));
  FLUVIAL_TRY(check_named_once(round, first));
  FLUVIAL_TRY(check_named_once(round, array_member(round, "contributors")));
  FLUVIAL_ASSIGN(std::uint64_t weight, add_first_pass(round, first, trained));
  FLUVIAL_TRY(passes_->reduced(round, mean_of_sum(static_cast<double>(weight))));
  FLUVIAL_ASSIGN(weight, add_last_pass(round, first));
  FLUVIAL_TRY(check_weight(round, count_member(round, "weight"), weight));
  return passes_->finish(round, mean_of_sum(static_cast<double>(weight)));
}

}  // namespace fluvial::cli
