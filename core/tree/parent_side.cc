#include "core/tree/parent_side.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/transfer/cut.h"

namespace fluvial::tree {

ParentSide::ParentSide(Runtime& runtime, RoundOwner& owner, Children& children)
    : runtime_(runtime),
      owner_(owner),
      children_(children),
      counts_(runtime.metrics),
      bytes_(runtime.metrics, telemetry::Tier::kChildren),
      gauges_(runtime.metrics),
      sum_(runtime) {
  measuring_ = runtime.metrics.before_render([this] { measure(); });
}

void ParentSide::measure() const {
  const auto is_here = [this](SiteId site) { return owner_.is_here(site); };
  const AttemptId attempt = owner_.open_attempt();
  if (attempt == AttemptId(0)) {
    gauges_.measure({}, round::Gather(), is_here);
  } else {
    gauges_.measure({attempt, now() - begun_, owner_.made_from().pass}, owner_.gather(), is_here);
  }
  gauges_.measure(children_.budget(), sum_.lane().tasks());
}

// ---- what comes from below ----------------------------------------------------------------------------------------

namespace {
Error not_open(RoundId round) { return {Code::kStale, "round " + std::to_string(round.value()) + " is not open"}; }

std::vector<SiteId> joined(const std::vector<SiteId>& some, const std::vector<SiteId>& others) {
  std::set<SiteId> all(some.begin(), some.end());
  all.insert(others.begin(), others.end());
  return {all.begin(), all.end()};
}

}  // namespace

Result<transfer::Terms> ParentSide::admit(const transfer::UpdateHead& head) {
  owner_.heard(head.site);
  if (!owner_.takes(head.run, head.round, /*is_update=*/true)) return not_open(head.round);
  FLUVIAL_TRY(transfer::check_pass(head, owner_.made_from()));  // first: the gather is that of the open pass
  FLUVIAL_TRY(owner_.may_take(head));
  watch_.begun(head.site, now());
  spans_.begun(head.run, head.round, round::SpanKind::kStage, now(), head.site);
  return owner_.terms(/*brings_integers=*/true);
}

Result<transfer::Terms> ParentSide::admit(const transfer::PartialHead& head) {
  for (const auto& [site, entry] : head.what.contributors.entries()) {
    if (owner_.may_bring(head.child, site)) owner_.heard(site);
  }
  if (!owner_.takes(head.run, head.round, /*is_update=*/false)) return not_open(head.round);
  FLUVIAL_TRY(transfer::check_pass(head, owner_.made_from()));
  const auto is_below = [&](SiteId site) { return owner_.may_bring(head.child, site); };
  const auto admit = [&] { return owner_.may_take(head); };
  const auto accuse = [&](const std::vector<round::Refusal>& conflicts) {
    accused(head.run, head.round, head.child, conflicts);
  };
  FLUVIAL_TRY(transfer::admit_partial(head, children_.book(), is_below, admit, accuse));
  watch_.begun(head.child, now());
  spans_.begun(head.run, head.round, round::SpanKind::kStage, now(), head.child);
  return owner_.terms(!head.what.contributors.empty());
}

std::vector<SiteId> ParentSide::without(const transfer::PartialHead& head) {
  const bool is_open =
      owner_.takes(head.run, head.round, /*is_update=*/false) && transfer::check_pass(head, owner_.made_from()).ok();
  if (!is_open) return {};
  const auto is_below = [&](SiteId site) { return owner_.may_bring(head.child, site); };
  return joined(transfer::without(head, owner_.gather(), is_below), owner_.miscounted(head.what.contributors));
}

void ParentSide::arrived(transfer::StagedArrival arrival) {
  const bool is_taken = owner_.takes(arrival.run, arrival.round, arrival.update() != nullptr);
  if (!is_taken || arrival.from != owner_.made_from()) {
    const Error closed{Code::kStale, is_taken ? "the pass is closed" : "the round is closed"};
    children_.send(arrival.child, transfer::receipt(arrival, closed));
    return;
  }
  spans_.ended(arrival.run, arrival.round, round::SpanKind::kStage, now(), arrival.child);
  if (!owner_.is_current(arrival.run, arrival.round)) {  // one before
    std::erase_if(arrival.what.refusals, [](const auto& one) { return !round::drops_update(one.error.code); });
    for (round::Refusal& refusal : arrival.what.refusals) refusal.own = refusal.own_round(arrival.round);
  }
  counts_.updates_verified.add();
  count_bytes(arrival);
  arrival.what.contributors.spend(watch_.verified(arrival.child, arrival.update() != nullptr, now()));
  admit_on_newest(&arrival);
  admit_with_share(&arrival);
  const round::Arrival what = arrival.what;
  const ArrivalId id(sum_.stage(std::move(arrival)));
  owner_.staged(id, what);
}

// An update that was on its way while rounds passed is admitted on the model of the one that it reaches.
void ParentSide::admit_on_newest(transfer::StagedArrival* arrival) const {
  if (arrival->update() == nullptr || owner_.is_current(arrival->run, arrival->round)) return;
  const Result<transfer::Terms> terms = owner_.terms(/*brings_integers=*/false);
  if (terms.ok() && terms->late) arrival->what.contributors.admitted_on(terms->base_version);
}

void ParentSide::admit_with_share(transfer::StagedArrival* arrival) const {
  const transfer::UpdateArrival* const update = arrival->update();
  if (update != nullptr) arrival->what.contributors.admitted_with(update->site, owner_.share(update->site));
}

void ParentSide::count_bytes(const transfer::StagedArrival& arrival) const {
  if (!arrival.chunks) return;
  const Result<transfer::Terms> terms = owner_.terms(/*brings_integers=*/false);  // the sum's shape is set on its lane
  if (!terms.ok()) return;
  const transfer::UpdateArrival* const update = arrival.update();
  bytes_.update(update != nullptr ? kernels::to_string(update->codec->spec()) : "partial",
                arrival.chunks->total_bytes(), terms->plain_values);
}

void ParentSide::refused(RunId run, RoundId round, const round::MadeFrom& from, const round::Refusal& refusal) {
  if (!owner_.takes(run, round, /*is_update=*/true) || from != owner_.made_from()) return;
  spans_.ended(run, round, round::SpanKind::kStage, now(), refusal.site);
  counts_.contribution_refused(code_name(refusal.error.code));
  round::Refusal said = refusal;
  if (!owner_.is_current(run, round)) {  // one before: who merely took no part in that one is wanted in this
    if (!round::drops_update(refusal.error.code)) return;
    said.own = refusal.own_round(round);
  }
  owner_.will_not_be_in(said);
}

void ParentSide::accused(RunId run, RoundId round, NodeId by, const std::vector<round::Refusal>& conflicts) {
  if (owner_.takes(run, round, /*is_update=*/false)) owner_.are_accused(by, conflicts);
}

bool ParentSide::knows_authors() { return owner_.knows_authors(); }

void ParentSide::declined(NodeId child, const round::Decline& decline) {
  const round::Refusal& refusal = decline.refusal;
  if (owner_.via(refusal.site) != child) return;  // not its to say
  owner_.heard(refusal.site);
  if (!owner_.is_current(decline.run, decline.round)) return;
  counts_.contribution_refused(code_name(refusal.error.code));
  owner_.has_declined(decline.attempt, refusal);
}

// ---- what the machine decides -------------------------------------------------------------------------------------

void ParentSide::take(ArrivalId arrival, std::optional<ModelVersion> admitted_on) {
  sum_.take(arrival.value(), admitted_on,
            [this, arrival, begun = now()](const transfer::StagedArrival& staged,
                                           const Result<round::ContributorSet>& added) {
              on_taken(arrival, begun, staged, added);
            });
}

void ParentSide::on_taken(ArrivalId id, TimePoint begun, const transfer::StagedArrival& arrival,
                          const Result<round::ContributorSet>& added) {
  if (!added.ok()) return owner_.take_failed(id, arrival.child, added.error());
  spans_.add(arrival.run, arrival.round, {round::SpanKind::kAccumulate, arrival.child, sum_.adding_since(), now()});
  const Duration merge = now() - begun;
  counts_.merge_seconds.observe(std::chrono::duration<double>(merge).count());
  children_.send(arrival.child, transfer::receipt(arrival, Status{}));
  round::ContributorSet timed = *added;
  timed.spend({.merge = merge});
  owner_.taken(id, timed);
}

void ParentSide::release(ArrivalId arrival) { sum_.release(arrival.value()); }

void ParentSide::drop(ArrivalId arrival, const Error& error) {
  const Sum::Staged staged = sum_.drop(arrival.value());
  if (!staged) return;
  const round::ContributorSet& brought = staged->what.contributors;
  const std::vector<SiteId> without = joined(owner_.gather().without(brought), owner_.miscounted(brought));
  children_.send(staged->child, transfer::receipt(*staged, error, without));
}

// ---- the round ----------------------------------------------------------------------------------------------------

void ParentSide::begin() {
  told_.clear();
  begun_ = now();
  watch_.opened(begun_);
}

void ParentSide::begin_sum(RunId run, RoundId round, transfer::SumShape shape, std::uint32_t pass) {
  sum_.drop_all();
  children_.book().open(run, round, pass);
  reset_sum(run, std::move(shape));
  watch_.opened(now());
}

void ParentSide::go_over(RunId run, RoundId round, transfer::SumShape shape, std::uint32_t staleness_max) {
  children_.book().go_over(run, round, staleness_max);
  reset_sum(run, std::move(shape));
  watch_.opened(now());
}

// The children's budget is that of the longest pass, and does not follow each of them.
void ParentSide::reset_sum(RunId run, transfer::SumShape shape) {
  if (std::exchange(sized_for_, run) != run) longest_ = 0;
  longest_ = std::max(longest_, shape.layout.value_count);
  children_.sums(longest_);
  sum_.reset(shape);
}

void ParentSide::end() {
  sum_.drop_all();
  children_.book().close();
}

// ---- what goes down -----------------------------------------------------------------------------------------------

void ParentSide::send_openings(wire::Opening whole, Duration soft_left, Duration hard_left,
                               const std::set<NodeId>& children) {
  using std::chrono::duration_cast;
  whole.soft_left = duration_cast<std::chrono::milliseconds>(soft_left);
  whole.hard_left = duration_cast<std::chrono::milliseconds>(hard_left);
  const auto way = [this](const round::Participant& participant) { return owner_.way_to(participant); };
  for (auto& [child, opening] : transfer::cut_openings(whole, owner_.gather(), told_, children, way)) {
    opening.received = children_.book().received(child);
    children_.send(child, wire::to_envelope(opening));
  }
}

void ParentSide::send_openings(wire::Opening whole, Duration soft_left, Duration hard_left) {
  send_openings(std::move(whole), soft_left, hard_left, children_.nodes());
}

void ParentSide::send_commits(const wire::Commit& whole) {
  const auto via = [this](SiteId site) { return owner_.via(site); };
  for (const auto& [child, commit] : transfer::cut_commits(whole, children_.nodes(), via)) {
    children_.send(child, wire::to_envelope(commit));
  }
}

void ParentSide::tell_all(const v1::Envelope& message) {
  for (const NodeId child : children_.nodes()) children_.send(child, message);
}

}  // namespace fluvial::tree
