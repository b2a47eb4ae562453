#include "core/transfer/round_book.h"

#include <tuple>
#include <utility>

namespace fluvial::transfer {

void RoundBook::open(RunId run, RoundId round, std::uint32_t pass) {
  if (open_ && run == run_ && round == round_ && pass == pass_) return;
  close();
  open_ = true;
  pass_ = pass;
  run_ = run;
  since_ = round_ = round;
}

void RoundBook::go_over(RunId run, RoundId round, std::uint32_t staleness_max) {
  if (!open_ || run != run_ || round < round_) return open(run, round);
  complete_.clear();  // as in a round: a site whose folder was lost, or is an older copy, is heard again
  std::erase_if(kept_, [&](const auto& one) { return round.value() - one.second.own_round().value() > staleness_max; });
  round_ = round;
  pass_ = 0;
}

void RoundBook::close() {
  open_ = false;
  complete_.clear();
  kept_.clear();
}

Status RoundBook::admit(const UpdateHead& head) const {
  const auto found = complete_.find(head.site);
  if (!is_open(head.run, head.round) || head.from.pass != pass_ || found == complete_.end()) return {};
  const round::Contribution& newest = found->second;
  if (std::tie(head.incarnation, head.submission) >= std::tie(newest.incarnation, newest.submission)) return {};
  return Error{Code::kStale, "submission " + std::to_string(head.submission) + " of incarnation " +
                                 std::to_string(head.incarnation.value()) + ": submission " +
                                 std::to_string(newest.submission) + " of incarnation " +
                                 std::to_string(newest.incarnation.value()) + " was here before"};
}

std::optional<round::Refusal> RoundBook::compare(RunId run, RoundId round, const round::Contribution& said) const {
  const auto found = complete_.find(said.site);
  if (!is_open(run, round) || said.from.pass != pass_ || found == complete_.end()) return std::nullopt;
  const round::Contribution& newest = found->second;
  if (newest.incarnation != said.incarnation || newest.submission != said.submission || newest.digest == said.digest) {
    return std::nullopt;
  }
  Error error{Code::kConflict,
              "site " + std::to_string(said.site.value()) + ": submission " + std::to_string(said.submission) +
                  " of incarnation " + std::to_string(said.incarnation.value()) + " came as " +
                  to_hex(newest.digest).substr(0, 16) + " and as " + to_hex(said.digest).substr(0, 16)};
  return round::Refusal{said.site, std::move(error), said.own_round({}), {newest, said}};
}

std::vector<round::Refusal> RoundBook::conflicts(const PartialHead& head) const {
  std::vector<round::Refusal> conflicts;
  for (const auto& [site, entry] : head.what.contributors.entries()) {
    if (auto conflict = compare(head.run, head.round, entry)) conflicts.push_back(std::move(*conflict));
  }
  return conflicts;
}

void RoundBook::complete(const StagedArrival& arrival) {
  if (!is_open(arrival.run, arrival.round) || arrival.from.pass != pass_) return;
  for (const auto& [site, entry] : arrival.what.contributors.entries()) {
    round::Contribution& newest = complete_[site];
    if (std::tie(entry.incarnation, entry.submission) < std::tie(newest.incarnation, newest.submission)) continue;
    newest = entry;
    newest.metrics.clear();
    newest.times = {};
  }
}

void RoundBook::keep(NodeId child, Incoming incoming) {
  kept_.erase(child);
  if (is_open(incoming.run(), incoming.round()) && incoming.received().chunks > 0) {
    kept_.emplace(child, std::move(incoming));
  }
}

std::optional<wire::Received> RoundBook::received(NodeId child) const {
  const auto found = kept_.find(child);
  if (found == kept_.end()) return std::nullopt;
  return found->second.received();
}

template <typename Head>
std::optional<Incoming> RoundBook::take_of(NodeId child, const Head& head) {
  auto node = kept_.extract(child);
  if (node.empty() || !node.mapped().continues(head)) return std::nullopt;
  return std::move(node.mapped());
}

std::optional<Incoming> RoundBook::take(const UpdateHead& head) { return take_of(head.site, head); }
std::optional<Incoming> RoundBook::take(const PartialHead& head) { return take_of(head.child, head); }

}  // namespace fluvial::transfer
