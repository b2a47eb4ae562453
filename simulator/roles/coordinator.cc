#include "simulator/roles/coordinator.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/identity/verify.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "simulator/roles/certificates.h"
#include "simulator/roles/fence.h"

namespace fluvial::simulator {
namespace {

constexpr std::uint64_t kModelPartBytes = 1024;  // small, so that models can be cut off in the middle

coordinator::FailoverSettings failover_of(const FederationScenario& federation) {
  return {federation.failover_after, federation.unreachable_for, federation.return_after};
}

tree::HubOptions hub_options(Cast& cast, const Clock& clock) {
  tree::HubOptions options;
  options.staging_bytes_max = cast.staging_bytes_max();
  options.spill_folder = "spill";
  options.software = "fluvial simulate";
  options.model_part_bytes = kModelPartBytes;
  if (cast.ends(kRoot)) {
    options.past_certificate_max = cast.past_certificate_max();
    options.verify = [&cast, &clock](const std::string& chain_pem) -> Result<identity::PeerIdentity> {
      FLUVIAL_ASSIGN(const std::vector<identity::Certificate> chain, identity::Certificate::chain_from_pem(chain_pem));
      return identity::verify_chain(chain, cast.rollovers().authority()->authorities(), clock.wall_now(), {});
    };
  }
  return options;
}

}  // namespace

// What ships, but for what a tampered one overlooks.
class CoordinatorRole::Tampered final : public coordinator::Root {
 public:
  Tampered(CoordinatorRole& role, Keeps keeps)
      : Root(role.runtime(), role.tasks(), keeps, role, hub_options(role.cast_, role.runtime().clock),
             failover_of(role.cast_.scenario().federation)),
        role_(role),
        tamper_(role.cast_.tamper()) {}

  Result<transfer::Terms> admit(const transfer::UpdateHead& head) override {
    role_.cast_.contributes(role_.host(), head.site, role_.look_every());
    return tampered(Root::admit(head), head.run, head.round);
  }
  Result<transfer::Terms> admit(const transfer::PartialHead& head) override {
    return tampered(Root::admit(head), head.run, head.round);
  }
  std::vector<round::Refusal> forged(const tree::Child& child, const transfer::Brought& brought) override {
    if (tamper_.takes_any_contribution()) return {};
    return Root::forged(child, brought);
  }
  void arrived(transfer::StagedArrival arrival) override {
    tamper_.staged(&arrival);
    if (const coordinator::RunMachine* machine = role_.machine(); machine != nullptr && tamper_.admits_stale()) {
      role_.brought(arrival.what.contributors);
      arrival.what.contributors = shown(tamper_, machine->gather(), arrival.what.contributors);
    }
    Root::arrived(std::move(arrival));
  }
  void reported(NodeId child, round::NodeReport report) override {
    tamper_.reported(&report);
    role_.check_clock(report);
    Root::reported(child, std::move(report));
  }
  net::Awaitable<Result<v1::LeaseGrant>> lease(identity::PeerIdentity peer, v1::LeaseRequest request,
                                               std::string remote) override {
    const NodeId node = peer.node;
    const identity::PeerIdentity shown = peer;
    Result<v1::LeaseGrant> grant = co_await Root::lease(std::move(peer), std::move(request), std::move(remote));
    if (grant.ok()) {
      role_.cast_.let_in(role_.host(), shown, nullptr);
      role_.cast_.granted(node, NodeId(grant->parents(0).node()), Epoch(grant->epoch()));
      role_.cast_.checks().rounds().lease_granted({node, NodeId(grant->parents(0).node()), Epoch(grant->epoch())});
    } else {
      role_.lease_refused(node, grant.error());
    }
    co_return grant;
  }
  net::Awaitable<v1::RenewReply> renew(identity::PeerIdentity peer, v1::RenewRequest request,
                                       std::string remote) override {
    const std::string serial = peer.serial_hex;
    v1::RenewReply reply = co_await Root::renew(std::move(peer), std::move(request), std::move(remote));
    if (reply.code() == 0) role_.superseded_.insert(serial);
    co_return co_await role_.on_its_way(std::move(reply));
  }

 private:
  Result<transfer::Terms> tampered(Result<transfer::Terms> admitted, RunId run, RoundId round) {
    const coordinator::RunMachine* machine = role_.machine();
    const bool is_open = machine != nullptr && machine->run() == run && machine->last_committed().next() == round;
    if (!admitted.ok() && is_open && is_overlooked(tamper_, admitted.error().code)) admitted = runs().terms(true);
    if (admitted.ok()) tamper_.terms(&*admitted);
    return admitted;
  }

  CoordinatorRole& role_;
  Tamper& tamper_;
};

CoordinatorRole::CoordinatorRole(Cast& cast, HostId host)
    : Node(cast.world(), host, Role::kCoordinator, cast.callers(), cast.work_costs()), cast_(cast) {}

CoordinatorRole::~CoordinatorRole() { take_down(); }

const coordinator::RunMachine* CoordinatorRole::machine() const {
  const coordinator::ActiveRun* run = root_ ? root_->runs().active() : nullptr;
  return run == nullptr ? nullptr : &run->machine;
}

const coordinator::Federation& CoordinatorRole::book() const { return root_->registry().book(); }

// The process ends with a message; whoever supervises it starts it again.
void CoordinatorRole::fail(std::string_view what, const Error& why) {
  world().trace().event(host(), what, 0, 0, [&] { return why.to_string(); });
  world().kill_for(host(), Death::kProcess, std::chrono::seconds(1));
}

void CoordinatorRole::start() {
  const Status opened = open();
  if (is_dead()) return;
  if (!opened.ok()) return fail("not started", opened.error());
  set_outgoing([this](SessionId, v1::Envelope& message, SharedBytes&) { return says(message); });
  root_->runs().steps().on_commit([this](const round::ModelRef&, SharedBytes, std::shared_ptr<const round::Schema>) {
    if (cast_.scenario().federation.keep_rounds != 0) spawn("prune", prune_journal());
  });
  spawn("sum", root_->runs().run_lane());
  spawn("take up", take_up());
}

Status CoordinatorRole::open() {
  store::FileSystem& files = runtime().files;
  FLUVIAL_TRY(files.make_folder("spill"));
  FLUVIAL_ASSIGN(journal_, store::CoordinatorJournal::open(files, "journal.sqlite"));
  FLUVIAL_ASSIGN(models_, store::ModelStore::open(cast_.model_files(), "models"));
  FLUVIAL_ASSIGN(const std::vector<round::ModelKey> referenced, journal_->referenced_models());
  FLUVIAL_TRY(models_->sweep({referenced.begin(), referenced.end()}));
  {
    const Disk::Inspection inspection(world().disk(host()));
    cast_.checks().rounds().journal_opened(*journal_);
    cast_.journal_read(*journal_);
  }
  FLUVIAL_ASSIGN(const Epoch epoch, cast_.tamper().term(*journal_));
  if (world().crash_here(host(), "term")) return {};
  cast_.checks().rounds().term_began(epoch);
  root_ = std::make_unique<Tampered>(*this, coordinator::Root::Keeps{*journal_, *models_, epoch, cast_.key(kRoot)});
  FLUVIAL_TRY(root_->load());
  return cast_.ends(kRoot) ? begin_certificates() : Status{};
}

net::Awaitable<void> CoordinatorRole::take_up() {
  co_await root_->runs().take_up();
  const auto runs = co_await runtime().pool.run([this] { return journal_->runs(); });
  if (!runs.ok()) co_return fail("no runs", runs.error());
  for (const store::RunRow& row : *runs) {
    const bool goes_on = row.status == store::RunStatus::kRunning || row.status == store::RunStatus::kPaused;
    if (goes_on && machine() == nullptr) co_return fail("run not taken up", {Code::kUnavailable, "see its log"});
  }
  co_await attend_end();
}

// As the listener of the members' port admits them.
net::Awaitable<void> CoordinatorRole::serve(std::shared_ptr<net::Session> session) {
  const bool ended = session->member().not_after <= runtime().clock.wall_now();
  const bool enrols = cast_.rollovers().is_at_enrolment(static_cast<const NodeSession&>(*session).id());
  if (root_ && (enrols || (ended && !cast_.tamper().takes_an_ended_certificate()))) {
    co_return co_await serve_enrolment(session);
  }
  if (const Status known = cast_.rollovers().accepts(kRoot, session->member()); root_ && !known.ok()) {
    co_return session->close(known.error(), false);
  }
  if (root_ && cast_.rollovers().on()) cast_.rollovers().let_past(session->member());
  Status admitted = root_ ? root_->deny().check(session->member()) : Status{};
  if (cast_.tamper().supersedes_on_issue() && superseded_.contains(session->member().serial_hex)) {
    admitted = Error{Code::kPermissionDenied, "superseded"};
  }
  if (!admitted.ok()) cast_.shut_out(session->member());
  if (root_ && (admitted.ok() || cast_.tamper().forgets_revocation())) co_return co_await root_->hub().serve(session);
  session->close(admitted.ok() ? Error{Code::kUnavailable, "not started"} : admitted.error(), true);
}

void CoordinatorRole::after_frame() {
  if (!root_) return;
  const store::StagingBudget& budget = root_->hub().budget();
  cast_.checks().bounds(host(), budget.bytes_used(), budget.bytes_max(), root_->runs().sum().staged_count());
}

bool CoordinatorRole::says(v1::Envelope& message) {
  if (message.has_round_open()) {
    const auto opening = wire::from_proto(message.round_open());
    FLUVIAL_CHECK(opening.ok(), "an opening of our own");
    cast_.checks().rounds().opening_sent(opening->run, opening->round, opening->attempt, opening->epoch, opening->pass);
  } else if (message.has_round_commit()) {
    const auto commit = wire::from_proto(message.round_commit());
    FLUVIAL_CHECK(commit.ok(), "a commit of our own");
    cast_.checks().rounds().commit_sent(commit->run, commit->round, commit->model.digest);
  } else if (message.has_outcome_reply() && message.outcome_reply().round() != 0) {
    const auto is = static_cast<store::Outcome>(message.outcome_reply().outcome());
    store::Outcome outcome = is;
    cast_.tamper().answers(&outcome);
    if (outcome == is) return true;
    message.mutable_outcome_reply()->set_outcome(static_cast<v1::OutcomeReply::Outcome>(outcome));
    std::vector<v1::Envelope> answer(1, message);
    root_->signer().sign(&answer);  // as a coordinator that believes it
    message = std::move(answer.front());
  }
  return true;
}

void CoordinatorRole::lease_refused(NodeId node, const Error& why) {
  const bool knows_more = why.code == Code::kFailedPrecondition;
  if (knows_more && !cast_.is_dishonest(node)) cast_.checks().rounds().refused_as_ahead(node, why);
  if (journal_->fault()) attend_journal();
}

}  // namespace fluvial::simulator
