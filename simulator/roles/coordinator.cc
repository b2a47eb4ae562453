#include "simulator/roles/coordinator.h"

#include <algorithm>
#include <utility>

#include "core/digest/sha256.h"
#include "core/transfer/outcome.h"
#include "core/wire/history_mapping.h"
#include "core/wire/mapping.h"
#include "simulator/roles/fence.h"

namespace fluvial::simulator {
namespace {

constexpr Duration kAttendance = std::chrono::seconds(3);

using coordinator::LeaseAnswer;
using coordinator::LeaseEntry;
using coordinator::LeaseWanted;
using coordinator::NodeEntry;

// Of many who come within a second not each is worth a look at all of them.
constexpr std::size_t kMany = 1000;
constexpr Duration kLook = std::chrono::milliseconds(10);

NodeEntry entry_of(const store::NodeRow& row) {
  NodeEntry node;
  node.id = row.id;
  node.role = row.role;
  node.name = row.name;
  node.region = row.region;
  node.weight_max = row.weight_max;
  node.advertise = row.advertise;
  node.enrolled_at = row.enrolled_at;
  node.revoked_at = row.revoked_at;
  node.quarantined_at = row.quarantined_at;
  node.quarantine_reason = row.quarantine_reason;
  return node;
}

coordinator::FailoverSettings failover_of(const FederationScenario& federation) {
  return {federation.failover_after, federation.unreachable_for, federation.return_after};
}

v1::LeaseGrant grant_of(const LeaseAnswer& answer, const round::Lineage& lineage) {
  v1::LeaseGrant grant;
  grant.set_epoch(answer.epoch.value());
  v1::Parent& parent = *grant.add_parents();
  parent.set_node(answer.parent.value());
  parent.set_role(wire::role_to_proto(answer.parent_role));
  parent.set_name(answer.parent_name);
  parent.set_address(answer.address);
  wire::to_proto(lineage, grant.mutable_histories());
  return grant;
}

}  // namespace

CoordinatorRole::CoordinatorRole(Cast& cast, HostId host)
    : cast_(cast),
      host_(host),
      children_(cast, host, *this),
      work_(cast, host),
      book_(failover_of(cast.scenario().federation)) {}

void CoordinatorRole::start() {
  const Status opened = open();
  if (is_dead()) return;
  if (!opened.ok()) {  // the process ends with a message; whoever supervises it starts it again
    cast_.world().trace().event(host_, "not started", 0, 0, [&] { return opened.error().to_string(); });
    cast_.world().kill_for(host_, Death::kProcess, std::chrono::seconds(1));
  }
}

Status CoordinatorRole::open() {
  store::FileSystem& files = cast_.world().disk(host_).files();
  FLUVIAL_TRY(files.make_folder("spill"));
  FLUVIAL_ASSIGN(journal_, store::CoordinatorJournal::open(files, "journal.sqlite"));
  FLUVIAL_ASSIGN(models_, store::ModelStore::open(cast_.model_files(), "models"));
  FLUVIAL_ASSIGN(const std::vector<store::ModelRef> referenced, journal_->referenced_models());
  FLUVIAL_ASSIGN(const std::size_t swept, models_->sweep({referenced.begin(), referenced.end()}));
  (void)swept;
  {
    const Disk::Inspection inspection(cast_.world().disk(host_));
    cast_.checks().rounds().journal_opened(*journal_);
  }
  FLUVIAL_ASSIGN(epoch_, cast_.tamper().term(*journal_));
  if (dies("term")) return {};
  cast_.checks().rounds().term_began(epoch_);
  FLUVIAL_ASSIGN(const std::vector<store::NodeRow> nodes, journal_->nodes());
  for (const store::NodeRow& row : nodes) {
    NodeEntry entry = entry_of(row);
    if (cast_.tamper().forgets_revocation()) entry.revoked_at.reset();
    book_.put(std::move(entry), now());
  }
  FLUVIAL_ASSIGN(const std::vector<store::LeaseRow> leases, journal_->leases());
  for (const store::LeaseRow& row : leases) book_.put(LeaseEntry{row.node, row.parent, row.epoch});
  FLUVIAL_ASSIGN(lineage_, journal_->lineage());
  FLUVIAL_ASSIGN(const std::vector<store::RunRow> runs, journal_->runs());
  for (const store::RunRow& row : runs) {
    if (row.status != store::RunStatus::kRunning && row.status != store::RunStatus::kPaused) continue;
    Status taken = take_up(row);
    // A run whose first model is not there was never begun: its start was not acknowledged.
    const bool never_begun = !taken.ok() && taken.error().code == Code::kNotFound && row.continues != RunId(0);
    if (!never_begun) return taken;
    machine_.reset();
  }
  attend_end();
  return {};
}

Status CoordinatorRole::take_up(const store::RunRow& row) {
  FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_->last_commit(row.id));
  FLUVIAL_ASSIGN(const std::optional<store::AttemptRow> attempt, journal_->last_attempt(row.id));
  FLUVIAL_ASSIGN(continues_, journal_->continued_by(row.id, wire::kContinuesMax));
  const RoundId committed = last ? last->round : RoundId(0);
  const ModelVersion version(committed.value());
  const round::ModelRef ref{row.id, version, last ? last->model : row.initial_model, row.schema.model_bytes()};
  schema_ = std::make_shared<const round::Schema>(row.schema);
  optimizer_ = row.plan.optimizer;
  FLUVIAL_ASSIGN(store::Model model, models_->load({row.id, version}, ref.digest));
  slot_ = std::make_shared<ModelSlot>(ref, row.schema, SharedBytes::from(std::move(model.bytes)));
  if (last && !last->optimizer.empty()) {
    const std::uint64_t values = aggregate::state_vectors(optimizer_) * row.schema.value_count();
    FLUVIAL_ASSIGN(optimizer_state_, models_->load_optimizer(last->optimizer, values));
  }
  cast_.tamper().optimizer_loaded(&optimizer_state_);
  std::optional<round::AttemptRecord> open;
  if (attempt && attempt->round > committed) {
    open = round::AttemptRecord{
        attempt->run, attempt->round, attempt->attempt, attempt->epoch, attempt->participants, attempt->scale_bits,
        ref};
  }
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(row.plan.codec));
  FLUVIAL_ASSIGN(std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  codec_ = std::move(codec);
  const bool paused = row.status == store::RunStatus::kPaused;
  coordinator::RunStart begin{row.id,
                              row.plan,
                              ref,
                              committed,
                              std::move(open),
                              epoch_,
                              paused ? coordinator::RunStatus::kPaused : coordinator::RunStatus::kRunning,
                              row.reason};
  machine_.emplace(std::move(begin));
  cast_.checks().run_status(store::run_status_name(row.status), row.reason);
  if (paused) attend();
  std::map<SiteId, Epoch> leases;
  for (const auto& [site, node] : book_.nodes()) {
    if (const LeaseEntry* lease = book_.lease_of(site)) leases[site] = lease->epoch;
  }
  carry_out(machine().leases_changed(leases));
  carry_out(machine().begin(now()));
  if (!is_dead()) carry_out(machine().sites_changed(book_.connected_sites(), now()));
  return {};
}

void CoordinatorRole::received(SessionId session, Frame frame) {
  children_.received(session, std::move(frame));
  cast_.checks().bounds(host_, children_.budget().bytes_used(), children_.budget().bytes_max(), work_.staged_count());
}

// ---- members
// ----------------------------------------------------------------------------------------------------------

Status CoordinatorRole::may_join(const Child& child) {
  const auto node = book_.nodes().find(child.node);
  if (node == book_.nodes().end() || node->second.revoked_at) return Error{Code::kPermissionDenied, "revoked"};
  return book_.may_join(child.node, child.lease);
}

void CoordinatorRole::child_joined(const Child& child) {
  book_.child_joined(child.node, child.lease, child.incarnation, now());
  const std::vector<SiteId> up = child.role == Role::kSite ? std::vector{SiteId(child.node)} : std::vector<SiteId>{};
  members_changed_below(up);
}

void CoordinatorRole::child_left(NodeId child) {
  book_.child_left(child, now());
  members_changed_below({});
}

void CoordinatorRole::members_changed(NodeId child, const v1::MemberChange& change) {
  std::vector<coordinator::MemberUp> up;
  for (const v1::Member& member : change.up()) {
    up.push_back({NodeId(member.node()), NodeId(member.parent()), Epoch(member.lease_epoch()),
                  Incarnation(member.incarnation())});
  }
  std::vector<NodeId> down;
  for (const std::uint32_t node : change.down()) down.emplace_back(node);
  const coordinator::MembersChanged changed = book_.members_changed(child, up, down, now());
  members_changed_below(changed.sites_up);
}

void CoordinatorRole::members_changed_below(const std::vector<SiteId>& sites_up) {
  if (!machine_) return;
  if (machine().is_open()) tell_moved(sites_up);
  if (book_.nodes().size() < kMany) return sites_changed();
  if (std::exchange(sites_dirty_, true)) return;
  cast_.world().after(host_, kLook, [this] {
    sites_dirty_ = false;
    sites_changed();
  });
}

void CoordinatorRole::sites_changed() {
  carry_out(machine().sites_changed(book_.connected_sites(), now()));
  if (!home_at_) send_home();
}

// Between rounds at once; while a round is in progress its commit looks.
void CoordinatorRole::send_home() {
  home_at_.reset();
  if (machine().is_between_rounds()) {
    const std::vector<NodeId> home = book_.send_home(now());
    dismiss(home);
    if (!home.empty()) carry_out(machine().sites_changed(book_.connected_sites(), now()));
  }
  home_at_ = book_.next_home(now());
  cast_.world().cancel(home_timer_);
  if (home_at_) home_timer_ = cast_.world().at(host_, *home_at_, [this] { send_home(); });
}

// Ends their sessions with us, or with whoever is their parent below us.
void CoordinatorRole::dismiss(const std::vector<NodeId>& nodes) {
  std::map<NodeId, v1::Envelope> deeper;
  for (const NodeId node : nodes) {
    if (children_.children().contains(node)) {
      children_.cut(node, {Code::kStale, "a nearer parent serves"});
    } else {
      deeper[book_.branch(node)].mutable_member_change()->add_down(node.value());
    }
  }
  for (const auto& [child, message] : deeper) children_.send(child, message);
}

void CoordinatorRole::lease_asked(SessionId session, const Identity& peer, const v1::LeaseRequest& request) {
  const coordinator::LeaseAsk ask{peer.node, peer.role, peer.name, request.advertise(), NodeId(request.unreachable())};
  const Result<LeaseWanted> wanted = book_.request_lease(ask, now());
  if (!wanted.ok()) return children_.answer_lease(session, wanted.error());
  if (dies("lease")) return;
  const Result<round::Standing> standing = wire::from_proto(request.standing());
  if (!standing.ok()) return children_.answer_lease(session, standing.error());
  const auto lost = journal_->meet(peer.node, *standing, cast_.world().clock(host_).wall_now());
  if (is_dead()) return;
  if (!lost.ok()) {
    const bool knows_more = lost.error().code == Code::kFailedPrecondition;
    if (knows_more && !cast_.is_dishonest(peer.node)) cast_.checks().rounds().refused_as_ahead(peer.node, lost.error());
    if (journal_->fault()) attend_journal();
    return children_.answer_lease(session, lost.error());
  }
  const auto granted = [&]() -> Result<store::LeaseRow> {
    if (wanted->advertise) FLUVIAL_TRY(journal_->set_advertise(wanted->node, *wanted->advertise));
    return journal_->grant(wanted->node, wanted->parent);
  };
  const Result<store::LeaseRow> row = granted();
  if (!row.ok()) {
    attend_journal();
    return children_.answer_lease(session, row.error());
  }
  cast_.checks().rounds().lease_granted(*row);
  if (dies("leased")) return;
  cast_.world().after_disk(host_, [this, session, wanted = *wanted, row = *row] {
    const Result<LeaseAnswer> answer = book_.lease_granted(wanted, {row.node, row.parent, row.epoch}, now());
    if (!answer.ok()) return children_.answer_lease(session, answer.error());
    if (answer->moved) node_moved(row.node, row.epoch);
    if (!is_dead()) children_.answer_lease(session, grant_of(*answer, lineage_));
  });
}

// /readyz says that the journal has failed: who looks after the coordinator starts it again.
void CoordinatorRole::attend_journal() {
  cast_.world().after(host_, kAttendance, [this] {
    if (journal_->fault()) cast_.world().kill_for(host_, Death::kProcess, std::chrono::seconds(1));
  });
}

// Without those who may not come any more, and with those who may be called in their place.
bool CoordinatorRole::enrol(store::NodeRow node) {
  if (!journal_) return false;
  const WallTime now = cast_.world().clock(host_).wall_now();
  store::TokenRow token;
  token.id = node.name + "-" + std::to_string(epoch_.value()) + "-" + std::to_string(++tokens_);
  token.secret_hash = sha256(as_byte_span(token.id));
  token.role = node.role;
  token.name = node.name;
  token.expires_at = now + std::chrono::hours(1);
  node.enrolled_at = now;
  if (!journal_->add_token(token).ok()) return false;
  const Result<store::NodeRow> enrolled = journal_->redeem_token(token.secret_hash, std::move(node), now);
  if (!enrolled.ok()) return false;
  cast_.checks().rounds().enrolled(enrolled->id);
  book_.put(entry_of(*enrolled), this->now());
  members_changed_below({});
  return true;
}

void CoordinatorRole::pause() {
  if (machine_) carry_out(machine().pause("by a person", now()));
}

void CoordinatorRole::stop() {
  if (machine_) carry_out(machine().stop("by a person", now()));
}

// One that was stopped, and one that came to its end while there are faults: it ends while somebody is away.
void CoordinatorRole::attend_end() {
  cast_.world().after(host_, kAttendance, [this] {
    const Status continued = continue_run();
    if (is_dead()) return;
    if (!continued.ok()) cast_.world().kill_for(host_, Death::kProcess, std::chrono::seconds(1));
  });
}

Status CoordinatorRole::continue_run() {
  if (!cast_.continues_runs() || (machine_ && machine().status() != coordinator::RunStatus::kStopped &&
                                  machine().status() != coordinator::RunStatus::kDone)) {
    return {};
  }
  FLUVIAL_ASSIGN(std::vector<store::RunRow> runs, journal_->runs());
  while (!runs.empty() && runs.back().status == store::RunStatus::kPaused) runs.pop_back();  // never begun
  if (runs.empty()) return Error{Code::kInternal, "no run to continue"};
  const store::RunRow before = runs.back();
  if (before.status == store::RunStatus::kRunning) return {};  // its status is not recorded yet
  if (before.status == store::RunStatus::kDone && !cast_.world().faults_on()) return {};
  FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_->last_commit(before.id));
  const ModelVersion version(last ? last->round.value() : 0);
  FLUVIAL_ASSIGN(const store::Model model,
                 models_->load({before.id, version}, last ? last->model : before.initial_model));
  store::RunRow row = before;
  row.id = RunId();
  row.continues = before.id;
  row.initial_model = last ? last->model : before.initial_model;
  row.status = store::RunStatus::kPaused;
  row.reason = "starting";
  if (dies("start")) return {};
  FLUVIAL_ASSIGN(row.id, journal_->create_run(row));
  cast_.checks().rounds().run_continued(row);
  if (dies("created")) return {};
  FLUVIAL_TRY(models_->put({row.id, ModelVersion(0)}, row.schema, model.bytes.span(), row.initial_model, {}));
  if (dies("first model")) return {};
  FLUVIAL_TRY(journal_->set_run_status(row.id, store::RunStatus::kRunning, ""));
  if (dies("started")) return {};
  row.status = store::RunStatus::kRunning;
  row.reason.clear();
  optimizer_state_.clear();
  next_.reset();
  return take_up(row);
}

void CoordinatorRole::revoke(NodeId node) {
  if (!journal_ || !journal_->revoke(node, cast_.world().clock(host_).wall_now()).ok()) return;
  if (!cast_.tamper().forgets_revocation()) book_.revoked(node, cast_.world().clock(host_).wall_now(), now());
  cast_.checks().rounds().revoked(node);
  children_.cut(node, {Code::kPermissionDenied, "revoked"});
  if (machine_) carry_out(machine().shut_out(book_.revocation_of(node), now()));
  members_changed_below({});
}

// ---- updates and partials
// -----------------------------------------------------------------------------------------------

bool CoordinatorRole::is_current(RunId run, RoundId round) const {
  return machine_ && run == machine_->run() && round == machine_->last_committed().next();
}

transfer::Terms CoordinatorRole::terms() const {
  const round::AttemptRecord& attempt = machine_->attempt();
  transfer::Terms terms =
      transfer::make_terms(machine_->plan(), schema_->value_count(), schema_->integer_count(), attempt.base.digest,
                           attempt.scale_bits, codec_, schema_, slot_->integers());
  cast_.tamper().terms(&terms);
  return terms;
}

Result<transfer::Terms> CoordinatorRole::admit(const transfer::UpdateHead& head) {
  if (!is_current(head.run, head.round)) return Error{Code::kStale, "that round is not open"};
  FLUVIAL_TRY(book_.check_quarantine(head.site));
  const Status admitted = machine_->admit(head.site, head.lease, head.weight);
  if (!admitted.ok() && !is_overlooked(cast_.tamper(), admitted.error().code)) return admitted.error();
  watch_.begun(head.site, now());
  return terms();
}

Result<transfer::Terms> CoordinatorRole::admit(const transfer::PartialHead& head) {
  if (!is_current(head.run, head.round)) return Error{Code::kStale, "that round is not open"};
  const auto is_below = [&](SiteId site) { return book_.branch(site) == head.child; };
  const auto admit = [&]() -> Status {
    Status admitted = machine_->admit(head.attempt, head.epoch, head.what.contributors);
    return !admitted.ok() && is_overlooked(cast_.tamper(), admitted.error().code) ? Status{} : admitted;
  };
  const auto refuse = [&](const round::Refusal& conflict) { refused(head.run, head.round, conflict); };
  FLUVIAL_TRY(transfer::admit_partial(head, children_.book(), is_below, admit, refuse));
  watch_.begun(head.child, now());
  return terms();
}

std::vector<SiteId> CoordinatorRole::without(const transfer::PartialHead& head) {
  if (!is_current(head.run, head.round)) return {};
  return transfer::without(head, machine_->gather(), [&](SiteId site) { return book_.branch(site) == head.child; });
}

void CoordinatorRole::arrived(transfer::StagedArrival arrival) {
  if (!is_current(arrival.run, arrival.round)) {
    children_.send(arrival.child, transfer::receipt(arrival, Error{Code::kStale, "the round is closed"}));
    return;
  }
  if (dies("arrived")) return;
  arrival.what.contributors.spend(watch_.verified(arrival.child, arrival.update() != nullptr, now()));
  for (const round::Refusal& refusal : arrival.what.refusals) note_conflict(refusal);
  round::Arrival what = arrival.what;
  what.contributors = shown(cast_.tamper(), machine().gather(), what.contributors);
  const std::uint64_t id = work_.stage(std::move(arrival));
  carry_out(machine().arrived(coordinator::ArrivalId(id), what));
}

void CoordinatorRole::refused(RunId run, RoundId round, const round::Refusal& refusal) {
  if (!is_current(run, round)) return;
  note_conflict(refusal);
  carry_out(machine().refused(refusal, now()));
}

// As the service's: out of what is sampled at once, in the journal, then told to the machine.
void CoordinatorRole::note_conflict(const round::Refusal& refusal) {
  const SiteId site = refusal.site;
  if (refusal.error.code != Code::kConflict || !book_.nodes().contains(site) || book_.is_quarantined(site)) return;
  const WallTime when = cast_.world().clock(host_).wall_now();
  cast_.checks().accused(site, cast_.is_dishonest(site), refusal.error.message);
  if (!cast_.tamper().forgets_quarantine()) book_.quarantined(site, when, refusal.error.message);
  if (dies("quarantine")) return;
  const bool kept = journal_->quarantine(site, when, refusal.error.message).ok();
  if (dies("quarantined")) return;
  cast_.world().after_disk(host_, [this, site, kept] {
    if (kept) cast_.checks().rounds().quarantined(site);
    carry_out(machine().sites_changed(book_.connected_sites(), now()));
  });
}

void CoordinatorRole::declined(NodeId child, const round::Decline& decline) {
  if (!is_current(decline.run, decline.round) || book_.branch(decline.refusal.site) != child) return;
  note_conflict(decline.refusal);
  carry_out(machine().declined(decline.attempt, decline.refusal, now()));
}

std::shared_ptr<ModelSlot> CoordinatorRole::model(const round::ModelRef& ref) {
  return slot_ && slot_->ref() == ref ? slot_ : nullptr;
}

void CoordinatorRole::outcome_asked(NodeId child, const v1::OutcomeQuery& query) {
  if (dies("outcome")) return;
  Result<std::vector<v1::Envelope>> replies = transfer::answers(*journal_, query);
  if (!replies.ok()) return;
  for (v1::Envelope& reply : *replies) {
    if (!reply.has_outcome_reply() || query.round() == 0) continue;
    auto outcome = static_cast<store::Outcome>(reply.outcome_reply().outcome());
    cast_.tamper().answers(&outcome);
    reply.mutable_outcome_reply()->set_outcome(static_cast<v1::OutcomeReply::Outcome>(outcome));
  }
  cast_.world().after_disk(host_, [this, child, replies = std::move(*replies)] {
    for (const v1::Envelope& reply : replies) children_.send(child, reply);
  });
}

round::Told::Way CoordinatorRole::way() const {
  return [this](const round::Participant& participant) { return book_.branch(participant.site); };
}

}  // namespace fluvial::simulator
