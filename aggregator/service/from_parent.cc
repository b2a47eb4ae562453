// What the parent says: rounds, commits, receipts, and the model on its way down.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <set>
#include <utility>

#include "aggregator/service/region_service.h"
#include "core/transfer/outcome.h"
#include "core/wire/mapping.h"

namespace fluvial::aggregator {
namespace {
constexpr std::size_t kActiveRunsMax = 64;  // the newest that the parent names; the coordinator has one
}  // namespace

void RegionService::parent_up(const tree::Lease& lease) {
  if (!(orders_.key() == lease.coordinator_key)) {  // signed by the key before, or not at all
    over_.clear();
    active_.clear();
  }
  orders_.by(lease.coordinator_key);
  observer_.parent_up(lease.parent_name);
  gate_.granted(lease);
  for (v1::MemberChange& some : members_.everybody()) tell_parent(std::move(some));  // also when there is nobody below
  model_.receiver().parent_up();
  vectors_.receiver().parent_up();
  ask_runs();
  parent_is_new_ = true;
  absence_.ends();
  reporter_.parent_up(uplink_->takes_reports());
  up_changed_(true);
}

void RegionService::parent_down(const Error& why) {
  observer_.parent_down(why);
  upload_.parent_down();
  model_.receiver().parent_down();
  vectors_.receiver().parent_down();
  reporter_.parent_down();
  up_changed_(false);
  absence_.begins();
}

// The coordinator may have another parent for them.
void RegionService::send_children_away() {
  std::vector<NodeId> children;
  for (const auto& [child, connected] : hub_.children()) children.push_back(child);
  observer_.parentless(children.size());
  for (const NodeId child : children) {
    hub_.cut(child, {Code::kUnavailable, "this aggregator has lost its own parent: come for a lease"});
  }
}

net::Awaitable<Status> RegionService::from_parent(net::Frame frame) {
  v1::Envelope& message = frame.header;
  switch (message.body_case()) {
    case v1::Envelope::kRoundOpen: co_return round_opened(message.round_open());
    case v1::Envelope::kRoundCommit: co_return round_committed(message.round_commit());
    case v1::Envelope::kReceipt: co_return receipt_came(message.receipt());
    case v1::Envelope::kModelBegin: {  // each passes over what is of the other
      tree::ModelReceiver& receiver = message.model_begin().part() == 0 ? model_.receiver() : vectors_.receiver();
      co_return co_await receiver.begin(std::move(*message.mutable_model_begin()));
    }
    case v1::Envelope::kModelChunk: {
      tree::ModelReceiver& receiver = message.model_chunk().part() == 0 ? model_.receiver() : vectors_.receiver();
      co_return receiver.chunk(message.model_chunk(), frame.payload.span());
    }
    case v1::Envelope::kModelAhead: co_return model_comes(message.model_ahead());
    case v1::Envelope::kRunState: co_return run_told(message.run_state());
    case v1::Envelope::kDenials: co_return denials_passed_on(message.denials());
    case v1::Envelope::kMemberChange: dismissed(message.member_change()); co_return Status{};
    case v1::Envelope::kOutcomeReply: {
      const SiteId site(message.outcome_reply().site());
      relay_down(site, std::move(message));
      co_return Status{};
    }
    default: co_return Error{Code::kFailedPrecondition, "a message that no parent sends"};
  }
}

// That a run ended while this node was away nobody tells it unasked.
void RegionService::ask_runs() {
  std::set<RunId> runs;
  for (const auto& [run, told] : active_) runs.insert(run);
  if (opening_ && !over_.contains(opening_->run)) runs.insert(opening_->run);
  for (const RunId run : runs) uplink_->post(transfer::run_query(run, self_));
}

// Once each: whoever below asks later is told from here.
Status RegionService::run_told(const v1::RunState& message) {
  const RunId run(message.run());
  FLUVIAL_TRY(orders_.ended(message));
  if (transfer::ends_run(message.state())) {
    active_.erase(run);
    if (!over_.emplace(run, message).second) return {};
    if (opening_ && opening_->run == run) {
      give_up_round();
    }
  } else if (!over_.contains(run)) {
    active_.insert_or_assign(run, message);
    if (active_.size() > kActiveRunsMax) active_.erase(active_.begin());
  }
  if (!transfer::is_running(message.state())) model_.forget_ahead(run);
  v1::Envelope down;
  *down.mutable_run_state() = message;
  side_.tell_all(down);
  return {};
}

void RegionService::dismissed(const v1::MemberChange& change) {
  std::map<NodeId, v1::Envelope> deeper;  // by parent
  for (const v1::Signed& lease : change.leases()) {
    const NodeId parent = gate_.told(lease);
    if (parent != self_) *deeper[parent].mutable_member_change()->add_leases() = lease;
  }
  for (auto& [parent, message] : deeper) relay_down(parent, std::move(message));
  for (const std::uint32_t node : change.down()) {
    if (hub_.children().contains(NodeId(node))) {
      hub_.cut(NodeId(node), {Code::kStale, "the coordinator has another parent for it: come for a lease"});
      continue;
    }
    v1::Envelope down;
    down.mutable_member_change()->add_down(node);
    relay_down(NodeId(node), std::move(down));
  }
}

Status RegionService::round_opened(const v1::RoundOpen& message) {
  FLUVIAL_ASSIGN(wire::Opening opening, wire::from_proto(message));
  FLUVIAL_ASSIGN(const bool is_news, orders_.opened(opening));
  if (!is_news || (opening_ && opening.epoch < opening_->epoch)) return {};  // an older term's
  FLUVIAL_TRY(transfer::check_room(opening));
  history_.heard(opening.epoch);
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(opening.plan.codec));
  FLUVIAL_ASSIGN(std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  codec_ = std::move(codec);
  model_.receiver().known(opening.base, orders_.tree_of(opening));
  if (model_.slot() == model_.slot(opening.base)) model_.forget_ahead(opening.run);  // what was made of it is given up
  want_model(opening.base);
  if (opening.pass && (opening.pass->mean || opening.pass->state)) {
    want_vector(opening);
  } else {
    vectors_.forget();
  }
  opened_at_ = now();
  Subject subject{opening.plan, opening.base, opening.value_count, opening.integer_count, opening.late, opening.pass};
  const bool is_same = is_current(opening.run, opening.round) && machine_.opening().subject == subject;
  opening_ = std::make_shared<const wire::Opening>(std::move(opening));
  over_.erase(opening_->run);
  Opening step{opening_->run,
               opening_->round,
               opening_->attempt,
               opening_->epoch,
               opening_->participants,
               {},
               {},
               opening_->scale_bits,
               opened_at_ + upload_.tier_deadline(opening_->soft_left)};
  step.counted.insert(opening_->counted.begin(), opening_->counted.end());
  step.gone.insert(opening_->gone.begin(), opening_->gone.end());
  step.same_session = !std::exchange(parent_is_new_, false);
  step.subject = std::move(subject);
  const bool goes_over = !is_same && machine_.goes_over(step);
  model_.give_overtaken(round::rolls(opening_->late));
  if (!is_same) {
    side_.begin();
    upload_.round_begins();
    if (!goes_over) hub_.book().close();
  }
  upload_.round_said(opening_);
  if (goes_over) {
    hub_.book().go_over(opening_->run, opening_->round, opening_->late->staleness_max);
  } else {
    hub_.book().open(opening_->run, opening_->round, made_from().pass);
  }
  observer_.round_said(step);
  carry_out(machine_.opened(std::move(step), now()));
  return {};
}

Status RegionService::round_committed(const v1::RoundCommit& message) {
  FLUVIAL_ASSIGN(const wire::Commit commit, wire::from_proto(message));
  FLUVIAL_TRY(orders_.committed(commit));
  if (opening_ && opening_->run == commit.run && opening_->round <= commit.round) {
    upload_.round_closed();
    // What is here goes over into the next round, unless nobody below has taken part for so long that it can enter
    // none.
    const std::optional<round::Lateness>& late = opening_->late;
    const std::uint64_t entered = late ? std::max(late->drift_max, late->staleness_max) : 0;
    const bool is_too_old = commit.round.value() - opening_->round.value() > entered;
    if (commit.last || !late || is_too_old) {
      give_up_round();
    } else if (!round::rolls(late)) {
      upload_.stop();
      carry_out(machine_.committed(commit.contributors));
    }
  }
  reporter_.rounds_over(side_.spans().take_until(commit.run, commit.round, now()));
  history_.committed(commit.run, commit.round);
  model_.receiver().known(commit.model, orders_.tree_of(commit));
  want_model(commit.model);
  observer_.committed(commit);
  side_.send_commits(commit);
  return {};
}

// Of what is here of it nobody wants anything any more.
void RegionService::give_up_round() {
  upload_.stop();
  carry_out(machine_.closed());
  side_.end();
  vectors_.forget();
}

Status RegionService::receipt_came(const v1::Receipt& message) {
  if (!takes(RunId(message.run()), RoundId(message.round()), /*is_update=*/false) || message.pass() != made_from().pass)
    return {};
  FLUVIAL_ASSIGN(const std::vector<SiteId> without, wire::from_proto(message.without()));
  const Status status = wire::status_from_proto(message.code(), message.message());
  upload_.answered(message.sequence(), status.ok());
  if (!status.ok()) observer_.partial_refused(message, status.error());
  carry_out(machine_.receipt(message.sequence(), status, without, now()));
  return {};
}

Status RegionService::model_comes(const v1::ModelAhead& message) {
  FLUVIAL_ASSIGN(const round::ModelRef model, wire::from_proto(message.model()));
  if (!over_.contains(model.run) && model_.ahead(model)) hub_.tell_ahead(model);
  return {};
}

// With windows one that is on its way comes to its end first: a line that takes longer for it than a window lasts would
// else begin anew with each.
void RegionService::want_model(const round::ModelRef& model) {
  const std::optional<round::ModelRef> flowing = model_.receiver().flowing();
  if (opening_ && round::rolls(opening_->late) && flowing && *flowing != model && flowing->run == model.run) {
    next_model_ = model;
    model_.expect(model);
    return;
  }
  next_model_.reset();
  if (!model_.slot(model)) {
    side_.spans().begun(model.run, round::round_from(model), round::SpanKind::kFetch, now());
  }
  model_.want(model);
  reporter_.changed();
}

void RegionService::want_vector(const wire::Opening& opening) {
  const round::Pass& pass = *opening.pass;
  const round::ModelRef vector = tree::called(pass.mean ? *pass.mean : *pass.state, opening.base);
  if (!vectors_.slot(vector)) side_.spans().begun(opening.run, opening.round, round::SpanKind::kVector, now());
  vectors_.want(vector, {opening.epoch, opening.attempt, pass.index});
}

void RegionService::base_is_here() {
  const round::ModelRef& model = model_.slot()->ref();
  side_.spans().ended(model.run, round::round_from(model), round::SpanKind::kFetch, now());
  reporter_.changed();
  const bool is_newer_wanted = next_model_ && *next_model_ != model;
  if (is_newer_wanted) want_model(*std::exchange(next_model_, std::nullopt));
  if ((std::exchange(awaits_base_, false) || is_newer_wanted) && machine_.is_open()) send_openings();
}

}  // namespace fluvial::aggregator
