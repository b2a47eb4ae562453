#include <fmt/format.h>

#include <ranges>
#include <variant>

#include "core/store/audit_log.h"
#include "core/store/certificate_book.h"
#include "core/store/journal.h"
#include "core/store/model_book.h"
#include "core/store/model_store.h"
#include "core/store/plan_json.h"
#include "core/tree/orders.h"
#include "tests/upgrade/recording.h"
#include "tests/upgrade/signing.h"

namespace fluvial::upgrade {
namespace {

using store::CoordinatorJournal;

WallTime at(std::int64_t seconds) { return WallTime(std::chrono::seconds(seconds)); }

round::Schema schema() {
  return round::Schema::make({{"w", round::DType::kF32, {2, 2}}, {"steps", round::DType::kI64, {1}}}).value();
}

constexpr std::size_t kModelBytes = 24;

// The model of a round: numbers that only it has.
std::vector<std::byte> model_of(std::uint64_t run, std::uint64_t round) {
  std::vector<std::byte> bytes(kModelBytes);
  for (std::size_t i = 0; i < 4; ++i) {
    store_le(bytes.data() + 4 * i,
             std::bit_cast<std::uint32_t>(static_cast<float>(run) + 0.5F * static_cast<float>(round + i)));
  }
  store_le(bytes.data() + 16, std::uint64_t{round});
  return bytes;
}
Digest model_digest(std::uint64_t run, std::uint64_t round) { return store::model_digest(model_of(run, round)); }

// Errors in between stop the recorder: what it makes from constants has none.
template <typename T>
T must(Result<T> result) {
  FLUVIAL_CHECK(result.ok(), "what is made from constants can be made");
  return std::move(*result);
}
void must(const Status& status) { FLUVIAL_CHECK(status.ok(), "what is made from constants can be made"); }

store::TokenRow token(const std::string& id, Role role, const std::string& name) {
  return {id, digest_of(id), role, name, "eu/west", 1'000, at(100'000), std::nullopt};
}

// With a key unless its name is empty: certificates from before format 7 are of keys that the journal does not know.
void enrol(CoordinatorJournal& journal, Role role, const std::string& name, const std::string& key = "",
           const std::string& again = "") {
  must(journal.add_token(token("token-" + name + again, role, name)));
  const store::NodeRow row{NodeId(),  role, name,         "eu/west",    1'000, "serial-" + name + again,
                           at(2'000), "",   std::nullopt, std::nullopt, ""};
  const Buffer der = key.empty() ? Buffer() : recorded_public_key(key).der();
  must(journal.redeem_token(digest_of("token-" + name + again), row, at(2'000), {der.span(), at(90'000)}));
}

void show(CoordinatorJournal& journal, NodeId node, const std::string& serial, const std::string& key,
          std::int64_t when) {
  const Buffer der = recorded_public_key(key).der();
  must(store::CertificateBook(journal).saw({serial, node, der.span(), at(91'000)}, at(when)));
}

void add_members(CoordinatorJournal& journal) {
  enrol(journal, Role::kAggregator, "eu", "eu");
  enrol(journal, Role::kSite, "hospital-a", "hospital-a before");
  enrol(journal, Role::kSite, "hospital-b");
  enrol(journal, Role::kSite, "hospital-c", "hospital-c");
  enrol(journal, Role::kSite, "hospital-d");
  store::TokenRow several = token("token-lab", Role::kSite, "lab-*");
  several.uses_max = 5;
  must(journal.add_token(several));
  store::NodeRow lab{NodeId(),  Role::kSite, "lab-1",      "eu/west",    1'000, "serial-lab-1",
                     at(2'100), "",          std::nullopt, std::nullopt, ""};
  must(journal.redeem_token(several.secret_hash, lab, at(2'100)));
  must(journal.add_token(token("token-unused", Role::kSite, "hospital-e")));
  must(journal.add_token(token("token-revoked", Role::kSite, "hospital-f")));
  must(journal.revoke_token("token-revoked", at(2'200)));
  must(journal.set_advertise(NodeId(1), "eu.example.org:7410"));
  // One certificate is followed by another, and a key becomes known when its certificate is seen.
  show(journal, NodeId(2), "serial-hospital-a", "hospital-a before", 2'210);
  enrol(journal, Role::kSite, "hospital-a", "hospital-a", "-again");
  show(journal, NodeId(2), "serial-hospital-a-again", "hospital-a", 2'220);
  show(journal, NodeId(3), "serial-hospital-b", "hospital-b", 2'230);
  must(journal.grant(NodeId(1), NodeId(0)));
  must(journal.grant(NodeId(2), NodeId(1)));
  must(journal.grant(NodeId(3), NodeId(1)));
  must(journal.quarantine(NodeId(3), at(2'300), "two updates of one name"));
  must(journal.add_token(token("token-ended", Role::kSite, "hospital-c")));  // with its member
  const store::AuditEntry revoked{.kind = store::AuditKind::kRevoked, .member = "hospital-c", .node = NodeId(4)};
  must(store::AuditLog(journal).with(revoked, at(2'400), [&] { return journal.revoke(NodeId(4), at(2'400)); }));
  must(journal.remove(NodeId(5), at(2'500)));
}

// An entry of every kind, with everything that one can say. The first are pruned.
void write_audit_log(CoordinatorJournal& journal) {
  store::AuditLog log(journal);
  std::int64_t when = 2'600;
  for (const store::AuditKindInfo& kind : store::audit_kinds()) {
    store::AuditEntry entry{.kind = kind.kind, .by = store::AuditBy::kUser};
    entry.user = store::AuditUser{1'000, 4'711, "alice"};
    entry.from = "unix";
    entry.member = "hospital-a";
    entry.node = NodeId(2);
    entry.role = Role::kSite;
    entry.serial = "serial-hospital-a";
    entry.token = "token-hospital-a";
    entry.run = RunId(1);
    entry.detail = std::string(kind.meaning.substr(0, kind.meaning.find(';')));
    must(log.append(entry, at(when++)));
  }
  must(log.append({.kind = store::AuditKind::kEnrolmentRefused, .by = store::AuditBy::kNewcomer}, at(when++)));
  must(log.append({.kind = store::AuditKind::kStarted}, at(when++)));
  must(log.prune(at(2'602), at(when)));
}

RunId add_run(CoordinatorJournal& journal, store::ModelStore& models, RunId continues,
              const std::string& late = "residual") {
  store::RunRow row;
  row.plan.late = late;
  row.plan.name = "digits";
  row.plan.rounds = 4;
  row.plan.codec = "int8:block=256,rounding=stochastic";
  row.plan.optimizer = round::parse_server_optimizer("fedavgm:lr=1").value();
  row.plan.worker.values = {{"lr", 0.05}, {"network", "small"}, {"widths", std::vector<double>{8, 16}}};
  row.plan.worker.schedules = {{"momentum", {.start = 0.9, .decay = 0.5, .every = 10}}};
  row.plan.sum_digest = true;
  row.schema = schema();
  row.created_at = at(3'000);
  row.continues = continues;
  row.keeps_optimizer = continues != RunId();
  const std::uint64_t next = must(journal.runs()).size() + 1;
  row.initial_model = model_digest(next, 0);
  const RunId run = must(journal.create_run(row));
  const std::vector<float> state(row.keeps_optimizer ? 4 : 0, 0.5F);
  must(models.put({run, ModelVersion(0)}, schema(), model_of(next, 0), row.initial_model, state));
  return run;
}

void open_attempt(CoordinatorJournal& journal, RunId run, std::uint64_t round, std::uint32_t attempt) {
  round::AttemptRecord row{run, RoundId(round), AttemptId(attempt), must(journal.next_epoch()), {}, 30, {}};
  for (const store::LeaseRow& lease : must(journal.leases())) {
    if (lease.node != NodeId(1)) row.participants.push_back({SiteId(lease.node.value()), lease.epoch, 1'000});
  }
  row.base.digest = model_digest(run.value(), round - 1);
  must(journal.open_attempt(row));
}

// As versions from format 7 on commit: with the site's signature, the key of it, and the coordinator's own.
void sign(CoordinatorJournal& journal, store::CommitRow& row) {
  const RunId run = row.record.run;
  const RoundId round = row.record.round;
  round::ContributorSet contributors;
  for (round::Contribution one : row.record.contributors.entries() | std::views::values) {
    one.incarnation = Incarnation(5);
    one.submission = round.value() + 7;
    one.base = one.admitted = ModelVersion(round.value() - 1);
    const Digest base = model_digest(run.value(), round.value() - 1);
    one.signature = sign_as("hospital-a", wire::kContributionKind, wire::contribution_body(run, round, base, one));
    must(contributors.add(std::move(one)));
  }
  row.record.contributors = std::move(contributors);
  const Buffer key = recorded_public_key("hospital-a").der();
  row.keys[SiteId(2)] = {key.span().begin(), key.span().end()};
  wire::Commit said;
  said.run = run;
  said.round = round;
  said.attempt = row.record.attempt;
  said.model = {run, ModelVersion(round.value()), row.record.model.digest, kModelBytes};
  const auto head = must(store::AuditLog(journal).head()).bytes();
  const std::string body = wire::commit_body(said, std::string(as_text(head)), round::HistoryId());
  row.order = store::SignedOrder{body, sign_as(kCoordinator, wire::kCommitKind, body)};
  row.record.late_is_next = true;
}

void commit(CoordinatorJournal& journal, store::ModelStore& models, RunId run, std::uint64_t round, bool is_signed) {
  open_attempt(journal, run, round, 1);
  const std::vector<std::byte> model = model_of(run.value(), round);
  const std::vector<float> moment(4, 0.25F * static_cast<float>(round));
  store::CommitRow row;
  row.record.run = run;
  row.record.round = RoundId(round);
  row.record.attempt = AttemptId(1);
  row.record.model.digest = row.master = store::model_digest(model);
  row.optimizer = must(models.put({run, ModelVersion(round)}, schema(), model, row.master, moment));
  const Epoch lease = must(journal.last_attempt(run))->participants[0].lease;
  must(row.record.contributors.add({SiteId(2),
                                    lease,
                                    17,
                                    digest_of("update of round " + std::to_string(round)),
                                    std::int64_t{17} << 30,
                                    {{"loss", 1.0 / static_cast<double>(round)}}}));
  row.record.refusals = {{SiteId(3), {Code::kInvalidArgument, "NaN in tensor 'w'"}}};
  row.participants_count = 3;
  row.late = {{SiteId(4), "not connected since 03:12 UTC"}};
  row.sum_digest = digest_of("sum of round " + std::to_string(round));
  row.duration_ms = 1'200;
  row.bytes_up = 4'096;
  row.bytes_down = 8'192;
  row.metrics = {{"loss", 1.0 / static_cast<double>(round)}};
  row.committed_at = at(3'000 + static_cast<std::int64_t>(round));
  if (is_signed) sign(journal, row);
  must(journal.commit(row));
  must(journal.set_evaluation(run, RoundId(round), {{"accuracy", 0.5}}));
}

std::string time_text(const std::optional<WallTime>& time) {
  return time ? std::to_string(time->time_since_epoch().count()) : "-";
}

std::string metrics_text(const round::Metrics& metrics) {
  std::string text;
  for (const auto& [name, value] : metrics) text += fmt::format(" {}={}", name, value);
  return text;
}

Status describe_members(CoordinatorJournal& journal, std::string& out) {
  FLUVIAL_ASSIGN(const auto federation, journal.federation());
  if (federation) out += fmt::format("federation {} {}\n", federation->name, time_text(federation->created_at));
  FLUVIAL_ASSIGN(const auto tokens, journal.tokens());
  for (const store::TokenRow& token : tokens) {
    out +=
        fmt::format("token {} {} {} {} {} until {} used {} {}/{} revoked {} '{}'\n", token.id, role_name(token.role),
                    token.name, token.region, token.weight_max, time_text(token.expires_at), time_text(token.used_at),
                    token.uses, token.uses_max, time_text(token.revoked_at), token.revoked_why);
  }
  FLUVIAL_ASSIGN(const auto nodes, journal.nodes());
  for (const store::NodeRow& node : nodes) {
    FLUVIAL_ASSIGN(const std::uint64_t enrolments, journal.enrolments(node.name));
    out += fmt::format("node {} {} {} {} {} {} at {} '{}' revoked {} quarantined {} '{}' removed {} enrolments {}\n",
                       node.id.value(), role_name(node.role), node.name, node.region, node.weight_max,
                       node.certificate_serial, time_text(node.enrolled_at), node.advertise, time_text(node.revoked_at),
                       time_text(node.quarantined_at), node.quarantine_reason, time_text(node.removed_at), enrolments);
  }
  FLUVIAL_ASSIGN(const auto leases, journal.leases());
  for (const store::LeaseRow& lease : leases) {
    out += fmt::format("lease {} under {} epoch {}\n", lease.node.value(), lease.parent.value(), lease.epoch.value());
  }
  FLUVIAL_ASSIGN(const auto lineage, journal.lineage());
  for (const round::History& history : lineage) {
    out += fmt::format("history {} began {} last run {}\n", history.id.value(), history.began.value(),
                       history.last_run.value());
    for (const round::Fork& fork : history.forks) {
      out += fmt::format("fork {} {}\n", fork.run.value(), fork.round.value());
    }
  }
  FLUVIAL_ASSIGN(const auto lost, journal.lost());
  for (const store::LostRow& row : lost) {
    out += fmt::format("lost {} {} round {} of run {} {} {} {}\n", row.history.value(), row.site.value(),
                       row.known.round.value(), row.known.run.value(), row.known.decided, row.known.counted,
                       to_hex(row.known.digest));
  }
  return {};
}

std::string bytes_text(ByteSpan bytes) { return bytes.empty() ? "-" : to_hex(bytes); }

Status describe_trust(CoordinatorJournal& journal, std::string& out) {
  store::CertificateBook book(journal);
  FLUVIAL_ASSIGN(const auto certificates, book.all());
  for (const store::CertificateRow& row : certificates) {
    out += fmt::format("certificate {} of {} key {} issued {} ends {} used {} refused {} '{}'\n", row.serial,
                       row.node.value(), bytes_text(row.key), time_text(row.issued_at), time_text(row.ends_at),
                       time_text(row.used_at), time_text(row.refused_since), row.refused_why);
  }
  FLUVIAL_ASSIGN(const std::uint64_t denials, book.denials_number());
  out += fmt::format("denials {}\n", denials);
  FLUVIAL_ASSIGN(const auto signers, journal.signers());
  for (const SiteId site : signers) out += fmt::format("signer {}\n", site.value());
  FLUVIAL_ASSIGN(const auto entries, store::AuditLog(journal).rows(0, 1'000));
  store::AuditChain chain;
  for (const store::AuditRow& row : entries) {
    out += fmt::format("audit {} at {} {} {}\n", row.number, time_text(row.at), to_hex(row.chain),
                       row.entry.empty() ? "pruned" : row.entry);
    FLUVIAL_TRY(chain.next(row));
  }
  return chain.finish();
}

// What is signed is what today's checks believe, too.
Status describe_signatures(CoordinatorJournal& journal, const store::CommitRow& row, std::string& out) {
  const RunId run = row.record.run;
  const RoundId round = row.record.round;
  for (const auto& [site, der] : row.keys) {
    FLUVIAL_ASSIGN(const identity::PublicKey key, identity::PublicKey::from_der(der));
    const round::Contribution& one = *row.record.contributors.find(site);
    FLUVIAL_TRY(tree::check_author(key, run, round, model_digest(run.value(), round.value() - 1), one));
    out += fmt::format("signed {} incarnation {} submission {} key {} {}\n", site.value(), one.incarnation.value(),
                       one.submission, to_hex(der), to_hex(*one.signature));
  }
  if (!row.order) return {};
  wire::Commit said;
  said.run = run;
  said.round = round;
  said.attempt = row.record.attempt;
  said.model = {run, ModelVersion(round.value()), row.record.model.digest, kModelBytes};
  v1::Signed order;
  order.set_body(row.order->statement);
  order.set_signature(std::string(as_text(row.order->signature)));
  said.order = std::make_shared<const v1::Signed>(std::move(order));
  tree::Orders orders;
  orders.by(recorded_public_key(kCoordinator));
  FLUVIAL_TRY(orders.committed(said));
  v1::CommitStatement statement;
  if (!statement.ParseFromString(row.order->statement)) return Error{Code::kDataLoss, "no statement"};
  FLUVIAL_ASSIGN(const store::AuditHead head, store::AuditHead::from_bytes(as_byte_span(statement.audit_head())));
  FLUVIAL_TRY(store::AuditLog(journal).check(head));
  out += fmt::format("order {} {} after audit {}\n", to_hex(as_byte_span(row.order->statement)),
                     to_hex(row.order->signature), head.number);
  return {};
}

Status describe_commit(CoordinatorJournal& journal, const store::ModelStore& models, const store::CommitRow& row,
                       std::string& out) {
  out += fmt::format(
      "commit {} attempt {} of {} weight {} model {} master {} optimizer '{}' sum {} {} ms {} up {} down at {}{}{}\n",
      row.record.round.value(), row.record.attempt.value(), row.participants_count,
      row.record.contributors.total_weight(), to_hex(row.record.model.digest), to_hex(row.master), row.optimizer,
      row.sum_digest ? to_hex(*row.sum_digest) : "-", row.duration_ms, row.bytes_up, row.bytes_down,
      time_text(row.committed_at), metrics_text(row.metrics), metrics_text(row.evaluation));
  for (const auto& [site, one] : row.record.contributors.entries()) {
    FLUVIAL_ASSIGN(const round::Outcome outcome, journal.outcome(row.record.run, row.record.round, site, one.digest));
    out += fmt::format("contributor {} lease {} weight {} {} probe {} {}{} of {} on {}\n", site.value(),
                       one.lease.value(), one.weight, to_hex(one.digest), one.probe, round::outcome_name(outcome),
                       metrics_text(one.metrics), one.base.value(), one.admitted.value());
  }
  for (const auto& [site, parent] : row.parents)
    out += fmt::format("admitted {} by {}\n", site.value(), parent.value());
  FLUVIAL_TRY(describe_signatures(journal, row, out));
  for (const round::Refusal& refusal : row.record.refusals) {
    out += fmt::format("refused {} {}\n", refusal.site.value(), refusal.error.to_string());
  }
  for (const store::LateSite& late : row.late) out += fmt::format("late {} {}\n", late.site.value(), late.reason);
  FLUVIAL_ASSIGN(const store::Model model,
                 models.load({row.record.run, ModelVersion(row.record.round.value())}, row.record.model.digest));
  out += "values " + to_hex(model.bytes.span()) + "\n";
  if (row.optimizer.empty()) return {};
  FLUVIAL_ASSIGN(const std::vector<float> state, models.load_optimizer(row.optimizer, 4));
  out += "optimizer " + to_hex(std::as_bytes(std::span(state))) + "\n";
  return {};
}

// What stays beside the newest models.
Status describe_kept(CoordinatorJournal& journal, const store::ModelStore& models, const store::RunRow& run,
                     std::string& out) {
  store::ModelBook book(journal);
  FLUVIAL_ASSIGN(const auto labels, book.labels(run.id));
  for (const store::LabelRow& label : labels) {
    out += fmt::format("label {} round {} model {} at {}\n", label.name, label.round.value(), to_hex(label.model),
                       time_text(label.labelled_at));
  }
  FLUVIAL_ASSIGN(const auto best, book.best(run.id));
  if (best) out += fmt::format("best round {} model {} {}\n", best->round.value(), to_hex(best->model), best->value);
  if (!run.keeps_optimizer) return {};
  const std::string reference = store::ModelStore::name_of({run.id, ModelVersion(0)}, store::ModelFile::kOptimizer);
  FLUVIAL_ASSIGN(const std::vector<float> state, models.load_optimizer(reference, 4));
  out += "keeps optimizer " + to_hex(std::as_bytes(std::span(state))) + "\n";
  return {};
}

Status describe_run(CoordinatorJournal& journal, const store::ModelStore& models, const store::RunRow& run,
                    std::string& out) {
  out +=
      fmt::format("run {} {} '{}' at {} continues {} initial {}\n", run.id.value(), round::run_status_name(run.status),
                  run.reason, time_text(run.created_at), run.continues.value(), to_hex(run.initial_model));
  out += fmt::format("plan {} codec {} rounds {} optimizer {} lr {} seed {}\n", run.plan.name, run.plan.codec,
                     run.plan.rounds, round::to_string(run.plan.optimizer),
                     std::get<double>(run.plan.worker.values.at("lr")), run.plan.seed);
  const std::string plan = store::plan_to_json(run.plan);
  out += plan.substr(plan.find("\"worker\":")) + "\n";
  FLUVIAL_TRY(describe_kept(journal, models, run, out));
  for (const round::Tensor& tensor : run.schema.tensors()) out += fmt::format("tensor {}\n", tensor.name);
  FLUVIAL_ASSIGN(const auto commits, journal.commits(run.id, RoundId(1), 100));
  for (const store::CommitRow& row : commits) FLUVIAL_TRY(describe_commit(journal, models, row, out));
  FLUVIAL_ASSIGN(const auto marks, journal.marks(run.id));
  for (const auto& [site, own] : marks) out += fmt::format("mark {} of round {}\n", site.value(), own.value());
  FLUVIAL_ASSIGN(const auto attempt, journal.last_attempt(run.id));
  if (!attempt) return {};
  out += fmt::format("attempt {} of round {} epoch {} scale {} base {}\n", attempt->attempt.value(),
                     attempt->round.value(), attempt->epoch.value(), attempt->scale_bits, to_hex(attempt->base.digest));
  for (const round::Participant& one : attempt->participants) {
    out += fmt::format("participant {} lease {} at most {}\n", one.site.value(), one.lease.value(), one.weight_max);
  }
  return {};
}

}  // namespace

Status write_coordinator(const std::string& folder) {
  store::PosixFileSystem files;
  FLUVIAL_TRY(files.make_folder(folder));
  FLUVIAL_ASSIGN(const auto journal, CoordinatorJournal::open(files, folder + "/journal.sqlite"));
  FLUVIAL_ASSIGN(store::ModelStore models, store::ModelStore::open(files, folder + "/models"));
  FLUVIAL_TRY(journal->found({"hospitals", at(1'000)}));
  add_members(*journal);
  write_audit_log(*journal);
  const RunId first = add_run(*journal, models, RunId());
  commit(*journal, models, first, 1, false);
  must(journal->set_run_status(first, round::RunStatus::kDone, "all rounds are committed"));
  must(journal->set_run_status(add_run(*journal, models, first), round::RunStatus::kStopped, "by a person"));
  const RunId open = add_run(*journal, models, RunId(), "next");
  commit(*journal, models, open, 1, true);
  commit(*journal, models, open, 2, true);
  store::ModelBook book(*journal);
  must(book.add_label(open, {"candidate", RoundId(1), model_digest(open.value(), 1), at(3'500)}));
  must(book.set_best(open, {RoundId(2), model_digest(open.value(), 2), 0.5}));
  // A backup is restored: what members say of a round after it is kept.
  must(journal->begin_history(round::HistoryId(0x1122334455667788), Epoch(500), at(4'000)));
  const round::Standing knows{round::HistoryId(0), Epoch(400), {{open, RoundId(3), true, true, digest_of("lost")}}};
  must(journal->meet(NodeId(2), knows, at(4'001)));
  open_attempt(*journal, open, 3, 1);
  open_attempt(*journal, open, 3, 2);
  return {};
}

Result<std::string> describe_coordinator(const std::string& folder) {
  store::PosixFileSystem files;
  FLUVIAL_ASSIGN(const auto journal, CoordinatorJournal::open(files, folder + "/journal.sqlite"));
  FLUVIAL_ASSIGN(store::ModelStore models, store::ModelStore::open(files, folder + "/models"));
  FLUVIAL_ASSIGN(const auto referenced, journal->referenced_models());
  FLUVIAL_ASSIGN(const std::size_t swept, models.sweep({referenced.begin(), referenced.end()}));
  std::string out = fmt::format("swept {}\n", swept);
  FLUVIAL_TRY(describe_members(*journal, out));
  FLUVIAL_TRY(describe_trust(*journal, out));
  FLUVIAL_ASSIGN(const auto runs, journal->runs());
  for (const store::RunRow& run : runs) FLUVIAL_TRY(describe_run(*journal, models, run, out));
  return out;
}

}  // namespace fluvial::upgrade
