#include "aggregator/service/region_service.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "core/transfer/cut.h"
#include "core/transfer/outcome.h"
#include "core/tree/limits.h"

namespace fluvial::aggregator {

RegionService::RegionService(tree::Runtime& runtime, net::TaskGroup& tasks, const identity::PeerIdentity& self,
                             RegionObserver& observer, tree::HubOptions options, Duration parentless_max)
    : runtime_(runtime),
      self_(self.node),
      observer_(observer),
      denials_(deny_),
      hub_(runtime, *this, std::move(options), deny_),
      side_(runtime, *this, hub_),
      model_(
          runtime, tasks, [this](v1::Envelope message) { uplink_->post(std::move(message)); },
          [this] { base_is_here(); }),
      vectors_(
          runtime, tasks, [this](v1::Envelope message) { uplink_->post(std::move(message)); },
          [this](const round::ModelRef& ref, const SharedBytes&) {
            side_.spans().ended(ref.run, round::round_from(ref), round::SpanKind::kVector, now());
          }),
      upload_(runtime, side_, observer, [this] { reporter_.changed(); }),
      timer_(runtime.strand),
      absence_(runtime.strand, parentless_max, [this] { send_children_away(); }),
      members_(self.node),
      gate_(self),
      reporter_(
          runtime, [this] { return own_report(); },
          [this](v1::Envelope message) { uplink_->post(std::move(message)); }) {
  measuring_ = runtime.metrics.before_render([this] {
    observer_.measured(members_.count(Role::kSite), members_.count(Role::kAggregator),
                       model_.is_complete() ? model_.slot()->ref().version : ModelVersion(0));
  });
}

void RegionService::attach(tree::Uplink& uplink, std::function<void(bool)> up_changed) {
  uplink_ = &uplink;
  up_changed_ = std::move(up_changed);
  upload_.attach(uplink);
  absence_.begins();
}

void RegionService::stop() {
  if (renewal_ != nullptr) renewal_->stop();
  upload_.stop();
  timer_.cancel();
  absence_.stop();
  model_.stop();
  vectors_.stop();
  reporter_.parent_down();
  side_.lane().stop();
  uplink_->stop();
  hub_.stop();
}

std::string RegionService::status_json(const std::string& name) const {
  boost::json::object object{{"role", "aggregator"},
                             {"name", name},
                             {"node", self_.value()},
                             {"connected", uplink_->is_up()},
                             {"parent", uplink_->lease().parent_name},
                             {"parent_address", net::to_string(uplink_->lease().address)},
                             {"children", hub_.children().size()},
                             {"run", opening_ ? opening_->run.value() : 0},
                             {"round", opening_ ? opening_->round.value() : 0},
                             {"open", nullptr},
                             {"limits", boost::json::parse(tree::to_json(tree::own_limits()))}};
  if (machine_.is_open()) {
    object["open"] = boost::json::object{{"attempt", machine_.opening().attempt.value()},
                                         {"participants", machine_.gather().participant_count()},
                                         {"in", machine_.gather().counted().size()},
                                         {"awaited", machine_.gather().awaited().size()},
                                         {"model_complete", model_.is_complete()}};
  }
  object["staging_bytes"] = hub_.budget().bytes_used();
  return boost::json::serialize(object);
}

std::shared_ptr<tree::ModelSlot> RegionService::model(const round::ModelRef& ref) {
  const std::shared_ptr<tree::ModelSlot> slot = model_.slot(ref);
  return slot ? slot : vectors_.slot(ref);
}

// ---- members ------------------------------------------------------------------------------------------------------

AttemptId RegionService::open_attempt() const { return machine_.is_open() ? machine_.opening().attempt : AttemptId(0); }

Status RegionService::may_join(const tree::Child& child) {
  if (child.node == self_) return Error{Code::kPermissionDenied, "a node cannot be its own child"};
  FLUVIAL_TRY(denials_.may_admit());
  if (absence_.is_too_long()) return Error{Code::kUnavailable, "this aggregator has no parent: come for a lease"};
  if (!history_.is_current(child.history)) {
    return Error{Code::kUnavailable, "this aggregator is in another history of the federation: come for a lease"};
  }
  return gate_.admit(child, child.session->member());
}

void RegionService::child_joined(const tree::Child& child) {
  observer_.child_joined(child);
  hub_.tell_denials(child, denials_.last());
  for (const auto& [run, state] : active_) {
    v1::Envelope told;
    *told.mutable_run_state() = state;
    hub_.send(child.node, std::move(told));
  }
  tell_parent(members_.joined(child));
}

void RegionService::child_left(NodeId child) {
  v1::MemberChange gone = members_.left(child);
  for (const std::uint32_t node : gone.down()) reporter_.left(NodeId(node));
  if (gone.down_size() > 0) tell_parent(std::move(gone));
}

void RegionService::members_changed(NodeId child, const v1::MemberChange& change) {
  v1::MemberChange holds = members_.changed(child, change);
  const int passed_over = change.up_size() - holds.up_size();
  if (passed_over > 0) observer_.members_passed_over(child, static_cast<std::size_t>(passed_over));
  for (const std::uint32_t node : holds.down()) {
    if (via(NodeId(node)) == NodeId(0)) reporter_.left(NodeId(node));
  }
  if (holds.up_size() + holds.down_size() > 0) tell_parent(std::move(holds));
}

void RegionService::tell_parent(v1::MemberChange change) {
  v1::Envelope up;
  *up.mutable_member_change() = std::move(change);
  uplink_->post(std::move(up));
}

void RegionService::reported(NodeId child, round::NodeReport report) {
  if (via(report.node) != child) return;
  machine_.has_workers(report.node, report.workers > 0);  // of an aggregator nobody asks
  if (round::shows_work(report, opened_at_)) machine_.heard(report.node);
  reporter_.below(std::move(report));
}

round::NodeReport RegionService::own_report() const {
  const std::shared_ptr<tree::ModelSlot> slot = model_.slot();
  const bool is_fetching = slot && !slot->complete();
  round::NodeReport report;
  report.node = self_;
  if (renewal_ != nullptr) report.certificate_ends = renewal_->ends();
  report.bytes_up = uplink_->counters().payload_bytes_out;
  report.bytes_down = uplink_->counters().payload_bytes_in;
  report.doing = round::Doing::kIdle;
  if (opening_ && machine_.is_open()) {
    report.run = opening_->run;
    report.round = opening_->round;
    report.doing = upload_.is_sending() ? round::Doing::kSending : round::Doing::kMerging;
  } else if (is_fetching) {
    report.run = slot->ref().run;
    report.doing = round::Doing::kFetching;
  }
  if (is_fetching) {
    report.done_bytes = slot->progress();
    report.total_bytes = slot->progress_end();
    if (machine_.is_open()) report.note = "the model is on its way";
  }
  return report;
}

net::Awaitable<Result<v1::LeaseGrant>> RegionService::lease(identity::PeerIdentity, v1::LeaseRequest, std::string) {
  co_return Error{Code::kFailedPrecondition, "leases are the coordinator's to give"};
}

void RegionService::relay_down(NodeId node, v1::Envelope message) {
  const NodeId child = via(node);
  if (child != NodeId(0)) hub_.send(child, std::move(message));
}

net::Awaitable<void> RegionService::outcome_asked(NodeId child, v1::OutcomeQuery query) {
  if (via(NodeId(query.site())) != child) co_return;
  if (const auto over = over_.find(RunId(query.run())); query.round() == 0 && over != over_.end()) {
    v1::Envelope down;
    *down.mutable_run_state() = over->second;
    hub_.send(child, std::move(down));
    co_return;
  }
  std::optional<v1::Envelope> up = transfer::passed_on(query);
  if (up) uplink_->post(std::move(*up));
}

// ---- updates and partials from below --------------------------------------------------------------------------------

bool RegionService::is_current(RunId run, RoundId round) const {
  return machine_.is_open() && opening_ && run == opening_->run && round == opening_->round;
}

// A site that is turned away for want of the base model is asked again when it is here (base_is_here).
Result<transfer::Terms> RegionService::terms(bool brings_integers) {
  // In a window sites train from older models, too, and the newest may be on its way nearly all the time.
  const std::shared_ptr<tree::ModelSlot> base = model_.slot();
  const ModelRelay::Integers known = round::rolls(opening_->late) ? model_.integers_of(opening_->run)
                                     : base ? ModelRelay::Integers{opening_->run, base->schema(), base->integers()}
                                            : ModelRelay::Integers{};
  transfer::Terms terms =
      transfer::make_terms(opening_->plan, opening_->value_count, opening_->integer_count, opening_->base,
                           opening_->scale_bits, codec_, known.schema, known.values, opening_->late, opening_->pass);
  if (const Status is_here = transfer::check_base(terms); brings_integers && !is_here.ok()) {
    awaits_base_ = true;
    return is_here.error();
  }
  return terms;
}

Status RegionService::may_take(const transfer::UpdateHead& head) const {
  return machine_.admit(head.site, head.lease, head.weight);
}

Status RegionService::may_take(const transfer::PartialHead& head) const {
  return machine_.admit(head.round, head.attempt, head.epoch, head.what.contributors);
}

// A site that went away after its update was taken is below nobody just now.
bool RegionService::may_bring(NodeId child, SiteId site) const {
  const NodeId now_via = via(site);
  return now_via == child || now_via == NodeId(0);
}

void RegionService::staged(ArrivalId arrival, const round::Arrival& what) {
  carry_out(machine_.arrived(arrival, what, now()));
}

void RegionService::taken(ArrivalId arrival, const round::ContributorSet& with_probes) {
  carry_out(machine_.taken(arrival, with_probes, now()));
}

void RegionService::take_failed(ArrivalId arrival, NodeId child, const Error& error) {
  observer_.sum_made_again(machine_.opening(), child, error);
  carry_out(machine_.take_failed(arrival, error, now()));
}

void RegionService::will_not_be_in(const round::Refusal& refusal) {
  observer_.site_refused(machine_.opening(), refusal);
  carry_out(machine_.refused(refusal, now()));
}

void RegionService::has_declined(AttemptId attempt, const round::Refusal& refusal) {
  observer_.site_refused(machine_.opening(), refusal);
  carry_out(machine_.declined(attempt, refusal, now()));
}

// ---- effects ------------------------------------------------------------------------------------------------------

void RegionService::carry_out(Effects effects) {
  for (const Effect& effect : effects) {
    std::visit([this](const auto& one) { carry_out(one); }, effect);
  }
  reporter_.changed();
}

void RegionService::carry_out(const ResetSum& effect) {
  upload_.stop();
  const std::uint64_t value_count = opening_->pass ? opening_->pass->value_count : opening_->value_count;
  side_.reset_sum(opening_->run, {{value_count, opening_->plan.chunk_values},
                                  opening_->integer_count,
                                  effect.scale_bits,
                                  opening_->late ? opening_->late->factors : std::vector<std::uint32_t>()});
}

void RegionService::carry_out(const OpenRound&) {
  observer_.round_opened(machine_.opening(), machine_.gather().participant_count());
  send_openings();
}

void RegionService::send_openings() {
  const Duration passed = now() - opened_at_;
  side_.send_openings(*opening_, upload_.tier_deadline(opening_->soft_left) - passed,
                      upload_.tier_deadline(opening_->hard_left) - passed);
}

void RegionService::carry_out(const SetTimer& effect) {
  timer_.after(effect.at - now(), [this] { carry_out(machine_.tick(now())); });
}

}  // namespace fluvial::aggregator
