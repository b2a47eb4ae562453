// Whoever looks after the coordinator: revokes, enrols, pauses, stops, and mends what it says is wrong.
#include <boost/asio/awaitable.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "coordinator/model/passes.h"
#include "core/aggregate/server_optimizer.h"
#include "core/digest/sha256.h"
#include "core/net/deadline.h"
#include "kernels/codec.h"
#include "simulator/roles/coordinator.h"

namespace fluvial::simulator {
namespace {

constexpr Duration kAttendance = std::chrono::seconds(3);  // how soon somebody looks

Result<std::string> without_warm_up(std::string_view codec) {
  FLUVIAL_ASSIGN(kernels::CodecSpec spec, kernels::parse_codec(codec));
  spec.freeze_rounds = 0;
  return kernels::to_string(spec);
}

}  // namespace

void CoordinatorRole::revoke(NodeId node) {
  if (root_) spawn("revoke", do_revoke(node));
}

net::Awaitable<void> CoordinatorRole::do_revoke(NodeId node) {
  if (cast_.tamper().forgets_revocation()) {
    if (!journal_->revoke(node, runtime().clock.wall_now()).ok()) co_return;
  } else {
    const Result<NodeId> revoked = co_await root_->registry().revoke(book().name_of(node));
    if (!revoked.ok()) co_return;
    root_->runs().members().revoked(*revoked);
  }
  cast_.checks().rounds().revoked(node);
}

bool CoordinatorRole::enrol(store::NodeRow node, const store::NewCertificate& certificate) {
  if (!root_) return false;
  const WallTime now = runtime().clock.wall_now();
  store::TokenRow token;
  token.id = node.name + "-" + std::to_string(world().starts(host())) + "-" + std::to_string(++tokens_);
  token.secret_hash = sha256(as_byte_span(token.id));
  token.role = node.role;
  token.name = node.name;
  token.expires_at = now + std::chrono::hours(1);
  node.enrolled_at = now;
  if (!journal_->add_token(token).ok()) return false;
  const Result<store::NodeRow> enrolled = journal_->redeem_token(token.secret_hash, std::move(node), now, certificate);
  if (!enrolled.ok()) return false;
  cast_.checks().rounds().enrolled(enrolled->id);
  if (root_->registry().enrolled(*enrolled, sha256(certificate.key))) {
    root_->runs().members().replaced(enrolled->id);
  } else {
    root_->runs().members().changed({});
  }
  spawn("tell aggregators", root_->registry().refresh_refused());
  return true;
}

void CoordinatorRole::pause() {
  const auto run = root_ ? root_->runs().active_run() : std::nullopt;
  if (run) spawn("pause", command(root_->runs().pause(*run, "by a person")));
}

void CoordinatorRole::roll_over() {
  if (root_ && authorities_) spawn("roll over", take_step());
}

void CoordinatorRole::stop() {
  const auto run = root_ ? root_->runs().active_run() : std::nullopt;
  if (run) spawn("stop", command(root_->runs().stop_run(*run, "by a person")));
}

// A journal that does not take what the person wants wants a restart. What cannot be wanted of a run that has ended
// does not.
net::Awaitable<void> CoordinatorRole::command(net::Awaitable<Status> given) {
  const Status done = co_await std::move(given);
  if (!done.ok() && done.error().code != Code::kFailedPrecondition) fail("not obeyed", done.error());
}

// Somebody reads the reason, mends what is to be mended, and resumes the run.
net::Awaitable<void> CoordinatorRole::attend(RunId run) {
  co_await net::sleep_for(kAttendance);
  if (root_->runs().active_run() != run || machine()->status() != coordinator::RunStatus::kPaused) co_return;
  co_await command(root_->runs().resume(run));
}

// /readyz says that the journal has failed: who looks after the coordinator starts it again.
void CoordinatorRole::attend_journal() {
  world().after(host(), kAttendance, [this] {
    if (const auto fault = journal_->fault()) fail("journal failed", *fault);
  });
}

// One that was stopped, and one that came to its end while there are faults: it ends while somebody is away.
net::Awaitable<void> CoordinatorRole::attend_end() {
  co_await net::sleep_for(kAttendance);
  const Status continued = co_await continue_run();
  // Another start may be under way.
  if (!continued.ok() && continued.error().code != Code::kFailedPrecondition) fail("not continued", continued.error());
}

net::Awaitable<Status> CoordinatorRole::continue_run() {
  if (!cast_.continues_runs() || root_->runs().active_run()) co_return Status{};
  Result<std::vector<store::RunRow>> runs = co_await runtime().pool.run([this] { return journal_->runs(); });
  if (!runs.ok()) co_return runs.error();
  const auto never_began = [](const store::RunRow& row) {
    return row.reason.starts_with("it could not be started") || row.reason == "its start was cut off";
  };
  while (!runs->empty() && never_began(runs->back())) runs->pop_back();
  if (runs->empty()) co_return Error{Code::kInternal, "no run to continue"};
  const store::RunRow before = runs->back();
  if (before.status == store::RunStatus::kDone && !world().faults_on()) {
    cast_.checks().run_status(round::run_status_name(before.status), before.reason);  // nobody told before a crash
    co_return Status{};
  }
  const Result<RunId> started = co_await root_->runs().start([&] { return continuation_of(before); });
  if (started.ok()) co_return Status{};
  if (started.error().code == Code::kInvalidArgument) {  // whatever the disk does
    world().violate("warm_start", "a run cannot be continued: " + started.error().message);
  }
  co_return started.error();
}

// As the admin API makes it. Blocking.
Result<coordinator::NewRun> CoordinatorRole::continuation_of(const store::RunRow& before) const {
  FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_->last_commit(before.id));
  const ModelVersion version(last ? last->record.round.value() : 0);
  coordinator::NewRun next{before, {}, {}};
  next.row.id = RunId();
  next.row.continues = before.id;
  next.row.initial_model = last ? last->master : before.initial_model;
  next.row.codec_state.reset();
  next.row.keeps_optimizer = false;
  next.row.plan.codec = cast_.scenario().plan.codec;
  FLUVIAL_ASSIGN(store::Model model, models_->load({before.id, version}, next.row.initial_model));
  next.model = std::move(model.bytes);
  const std::optional<round::VectorRef>& left = last ? last->record.codec_state : before.codec_state;
  if (!left) return next;
  const std::string reference =
      last ? last->optimizer : store::ModelStore::name_of({before.id, ModelVersion(0)}, store::ModelFile::kOptimizer);
  // After 1-bit Adam's warm-up: with a new one, or with what the run before has learned in its own.
  const bool is_onebit = before.plan.optimizer.kind == round::Optimizer::kOnebitAdam;
  if (is_onebit && cast_.world().chance().stream("warm up again", before.id.value()).below(3) != 0) {
    FLUVIAL_ASSIGN(next.row.plan.codec, without_warm_up(before.plan.codec));
    const std::size_t vectors = aggregate::state_vectors(before.plan.optimizer);
    FLUVIAL_ASSIGN(next.states.optimizer, models_->load_optimizer(reference, vectors * before.schema.value_count()));
    next.row.keeps_optimizer = true;
  }
  FLUVIAL_ASSIGN(const kernels::CodecSpec own, kernels::parse_codec(before.plan.codec));
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(next.row.plan.codec));
  if (!coordinator::goes_on_from(own, spec)) return next;
  FLUVIAL_ASSIGN(const Buffer state, models_->load_codec_state(reference, left->digest));
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  FLUVIAL_ASSIGN(coordinator::NamedVector begins,
                 coordinator::continued_state(*codec, before.schema, next.row.plan, state.span()));
  next.row.codec_state = begins.ref;
  next.states.codec = std::move(begins.bytes);
  return next;
}

net::Awaitable<void> CoordinatorRole::prune_journal() {
  const store::KeptRounds kept{cast_.scenario().federation.keep_rounds, {}};
  const auto pruned = co_await runtime().pool.run([&] { return journal_->prune_rounds(kept); });
  if (!pruned.ok() && journal_->fault()) attend_journal();  // otherwise a round too many
}

}  // namespace fluvial::simulator
