// A coordinator's journal that was damaged, or that somebody else wrote: any value in any column, or other bytes in the
// file. Every call of the journal gives an answer that keeps its own rules or a clear error, and the same again;
// nothing stops the process.
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/digest/sha256.h"
#include "core/store/audit_log.h"
#include "core/store/authority_book.h"
#include "core/store/certificate_book.h"
#include "core/store/journal.h"
#include "core/store/journal_copy.h"
#include "core/store/memory_file_system.h"
#include "tests/fuzz/damage.h"

namespace fluvial::fuzz {
namespace {

using store::CoordinatorJournal;

constexpr const char* kPath = "/c/journal.db";
constexpr RunId kRun{1};

WallTime at(std::int64_t seconds) { return WallTime(std::chrono::seconds(seconds)); }
Digest digest_of(std::string_view text) { return sha256(as_byte_span(text)); }
void must(const Status& status) { FLUVIAL_CHECK(status.ok(), status.ok() ? "" : status.error().to_string()); }

// ---- a journal with a row in every table -------------------------------------------------------------------------

store::CommitRow commit_of(std::uint64_t round) {
  store::CommitRow row;
  row.record.run = kRun;
  row.record.round = RoundId(round);
  row.record.attempt = AttemptId(1);
  row.record.model = {kRun, ModelVersion(round), digest_of("model"), 12};
  for (std::uint32_t site = 1; site <= 2; ++site) {
    round::Contribution entry{SiteId(site),    Epoch(site),       10,      digest_of("update"), 10,
                              {{"loss", 0.5}}, Incarnation(site), site + 7};
    if (site == 1) entry.signature.emplace().fill(std::byte{7});
    must(row.record.contributors.add(entry));
  }
  row.record.refusals = {{SiteId(3), {Code::kInvalidArgument, "not finite"}}};
  row.late = {{SiteId(4), "still training"}};
  row.participants_count = 4;
  row.metrics = {{"loss", 0.25}};
  row.keys[SiteId(1)] = {std::byte{'k'}};
  row.order.emplace().statement = "what was committed";
  row.committed_at = at(2'000);
  return row;
}

void commit(CoordinatorJournal& journal, std::uint64_t round) {
  round::AttemptRecord attempt{kRun, RoundId(round), AttemptId(1), journal.next_epoch().value(), {}, 30, {}};
  for (std::uint32_t site = 1; site <= 4; ++site) attempt.participants.push_back({SiteId(site), Epoch(site), 10});
  must(journal.open_attempt(attempt));
  must(journal.commit(commit_of(round)));
}

void enrol(CoordinatorJournal& journal, const std::string& name, std::uint64_t uses_max = 1) {
  store::TokenRow token;
  token.id = "token-" + name;
  token.secret_hash = digest_of(name);
  token.name = uses_max == 1 ? name : name + "-*";
  token.expires_at = at(5'000);
  token.uses_max = uses_max;
  must(journal.add_token(token));
  if (name.ends_with("unused")) return;
  store::NodeRow node;
  node.name = uses_max == 1 ? name : name + "-0123456789ab";
  node.certificate_serial = "5e" + to_hex(ByteSpan(digest_of(name)).first(4));
  node.enrolled_at = at(1'000);
  const std::string key = "key of " + name;
  const auto row = journal.redeem_token(digest_of(name), node, at(1'000), {as_byte_span(key), at(9'000)});
  FLUVIAL_CHECK(row.ok() && journal.grant(row->id, NodeId(0)).ok(), "a member is enrolled");
}

void write_journal(store::MemoryFileSystem& files) {
  must(files.make_folder("/c"));
  const auto journal = CoordinatorJournal::open(files, kPath).value();
  must(journal->found({"fuzz", at(1)}));
  for (const char* name : {"hospital-a", "hospital-b", "unused"}) enrol(*journal, name);
  enrol(*journal, "clinic", 3);
  must(journal->revoke(NodeId(2), at(1'500)));
  must(journal->quarantine(SiteId(1), at(1'600), "it contradicted itself"));
  store::RunRow run;
  run.plan.name = "digits";
  run.plan.models_kept = 1;
  run.schema = round::Schema::make({{"w", round::DType::kF32, {3}}}).value();
  FLUVIAL_CHECK(journal->create_run(run).ok() && journal->create_run(run).ok(), "two runs");
  must(journal->set_run_status(RunId(2), store::RunStatus::kStopped, "by a person"));
  for (std::uint64_t round = 1; round <= 3; ++round) commit(*journal, round);
  FLUVIAL_CHECK(journal->prune_rounds({.newest = 2}).ok(), "a round is pruned");
  FLUVIAL_CHECK(journal->begin_history(round::HistoryId(77), Epoch(50), at(3'000)).ok(), "a restore");
  must(store::AuditLog(*journal).append({.kind = store::AuditKind::kRevoked, .member = "hospital-b"}, at(1'500)));
  FLUVIAL_CHECK(journal->grant(NodeId(3), NodeId(0), true).ok(), "a member that passes others' orders on");
  using State = store::AuthorityState;
  must(store::AuthorityBook(*journal).put({{digest_of("old"), "a chain", State::kOld, at(1'000)},
                                           {digest_of("new"), "another", State::kIssuing, at(2'000)}},
                                          at(2'000)));
  const store::Refusals lost{{}, {digest_of("a lost key")}, {"5e5e"}};
  FLUVIAL_CHECK(store::CertificateBook(*journal).take_over(lost, at(100), at(3'000)).ok(), "what a restore has lost");
}

struct Prototype {
  std::shared_ptr<const store::MemoryFileSystem::Copy> copy;
  std::vector<Column> columns;
  static const Prototype& get() {
    static const Prototype prototype = [] {
      store::MemoryFileSystem files;
      write_journal(files);
      Prototype made{nullptr, columns_of(files, kPath)};
      made.copy = files.copy();
      return made;
    }();
    return prototype;
  }
};

// ---- what is asked of it -----------------------------------------------------------------------------------------

// The same, asked twice, is the same; then the answer.
template <typename T>
std::optional<T> same(Result<T> once, const Result<T>& again) {
  check_said(once);
  check_said(again);
  FLUVIAL_CHECK(once.ok() == again.ok(), "read again, an answer is an error");
  if (!once.ok()) return std::nullopt;
  return std::move(*once);
}
template <typename T>
std::optional<T> equal(Result<T> once, const Result<T>& again) {
  FLUVIAL_CHECK(!once.ok() || !again.ok() || *once == *again, "read again, an answer is another");
  return same(std::move(once), again);
}

void check_commit(const store::CommitRow& commit) {
  FLUVIAL_CHECK(commit.record.contributors.size() < 100 && commit.late.size() < 100, "no more sites than there are");
  for (const auto& [site, entry] : commit.record.contributors.entries()) {
    FLUVIAL_CHECK(entry.weight > 0 && entry.weight < round::kWeightLimit, "a weight that no site has");
  }
}

void read_members(CoordinatorJournal& journal) {
  equal(journal.lineage(), journal.lineage());
  equal(journal.lost(), journal.lost());
  if (const auto tokens = equal(journal.tokens(), journal.tokens())) {
    for (const store::TokenRow& token : *tokens) {
      FLUVIAL_CHECK(role_name(token.role) != "unknown", "a role that nobody has");
      equal(journal.find_token(token.secret_hash), journal.find_token(token.secret_hash));
    }
  }
  if (const auto nodes = equal(journal.nodes(), journal.nodes())) {
    for (const store::NodeRow& node : *nodes) {
      equal(journal.node(node.id), journal.node(node.id));
      equal(journal.node_named(node.name), journal.node_named(node.name));
      equal(journal.enrolments(node.name), journal.enrolments(node.name));
    }
  }
  equal(journal.leases(), journal.leases());
  check_said(journal.federation());
}

void read_books(CoordinatorJournal& journal) {
  store::AuthorityBook authorities(journal);
  equal(authorities.all(), authorities.all());
  equal(authorities.trust(), authorities.trust());
  equal(authorities.shown(), authorities.shown());
  store::CertificateBook certificates(journal);
  if (const auto all = equal(certificates.all(), certificates.all())) {
    for (const store::CertificateRow& row : *all) {
      check_said(certificates.find(row.serial));
      check_said(certificates.of_key(row.key));
      check_said(certificates.of_member(row.node));
      check_said(certificates.current_of(row.node));
    }
  }
  equal(certificates.current(), certificates.current());
  equal(certificates.refused(at(1'700)), certificates.refused(at(1'700)));
  equal(certificates.restored_at(), certificates.restored_at());
  equal(certificates.denials_number(), certificates.denials_number());
  check_said(certificates.taken_over());
  equal(journal.relays(), journal.relays());
}

void read_rounds(CoordinatorJournal& journal) {
  if (const auto runs = equal(journal.runs(), journal.runs())) {
    for (const store::RunRow& run : *runs) {
      FLUVIAL_CHECK(round::check_plan(run.plan).ok() && run.schema.value_count() > 0, "a run that cannot be");
      FLUVIAL_CHECK(round::run_status_name(run.status) != "unknown", "a status that no run has");
    }
  }
  for (const RunId run : {kRun, RunId(2)}) {
    equal(journal.continued_by(run, 10), journal.continued_by(run, 10));
    equal(journal.last_attempt(run), journal.last_attempt(run));
    equal(journal.pruned(run), journal.pruned(run));
    if (const auto last = same(journal.last_commit(run), journal.last_commit(run)); last && *last) {
      check_commit(**last);
    }
    if (const auto commits = same(journal.commits(run, RoundId(1), 10), journal.commits(run, RoundId(1), 10))) {
      for (const store::CommitRow& commit : *commits) check_commit(commit);
    }
    for (std::uint64_t round = 1; round <= 4; ++round) {
      check_said(journal.commit_of(run, RoundId(round)));
      equal(journal.outcome(run, RoundId(round), SiteId(1), digest_of("update")),
            journal.outcome(run, RoundId(round), SiteId(1), digest_of("update")));
    }
  }
  equal(journal.signers(), journal.signers());
  equal(journal.referenced_models(), journal.referenced_models());
  check_said(journal.size());
}

void read_audit(CoordinatorJournal& journal) {
  store::AuditLog log(journal);
  equal(log.head(), log.head());
  if (const auto read = equal(log.rows(0, 1'000), log.rows(0, 1'000))) {
    store::AuditChain chain;
    for (const store::AuditRow& row : *read) {
      const Status next = chain.next(row);
      check_said(next);
      if (!next.ok()) return;
    }
  }
}

// As the coordinator does when it goes on with it.
void go_on(CoordinatorJournal& journal, Input& input) {
  store::NodeRow node;
  node.name = "unused";
  node.certificate_serial = "77";
  for (const char* name : {"hospital-a", "unused", "clinic"}) {
    node.name = name;
    check_said(journal.redeem_token(digest_of(name), node, at(input.number<std::uint16_t>())));
    check_said(journal.revoke_token("token-" + std::string(name), at(1'700)));
  }
  check_said(journal.meet(
      NodeId(1), {round::HistoryId(0), Epoch(2), {{kRun, RoundId(1), true, true, digest_of("update")}}}, at(4'000)));
  check_said(journal.grant(NodeId(1), NodeId(0)));
  const std::string key = "key of hospital-a";
  store::CertificateBook certificates(journal);
  for (const auto& row : certificates.all().ok() ? *certificates.all() : std::vector<store::CertificateRow>()) {
    check_said(certificates.saw({row.serial, row.node, as_byte_span(key), at(9'000), at(1'800), true}, at(3'900)));
    check_said(certificates.renewed({"5e77", row.node, row.key, at(4'000), at(9'000), row.serial}, at(4'000)));
  }
  check_said(certificates.take_over({{NodeId(1)}, {digest_of(key)}, {"5e78"}}, at(60'000), at(4'000)));
  check_said(store::AuthorityBook(journal).put({{digest_of("new"), "a chain", store::AuthorityState::kGone, at(4'000)}},
                                               at(4'000)));
  check_said(journal.renew(NodeId(3)));
  check_said(journal.revoke(NodeId(1), at(4'000)));
  check_said(journal.remove(NodeId(3), at(4'000)));
  check_said(journal.prune_tokens(at(60'000)));
  check_said(journal.prune_rounds({.newest = 1}));
  check_said(store::AuditLog(journal).append({.kind = store::AuditKind::kStarted}, at(5'000)));
  check_said(store::AuditLog(journal).prune(at(1'600), at(6'000)));
  round::AttemptRecord attempt{kRun, RoundId(4), AttemptId(1), Epoch(900), {{SiteId(1), Epoch(1), 10}}, 30, {}};
  check_said(journal.open_attempt(attempt));
  check_said(journal.commit(commit_of(4)));
  check_said(journal.set_run_status(kRun, store::RunStatus::kPaused, "x"));
  check_said(journal.begin_history(round::HistoryId(78), Epoch(60), at(4'000)));
}

void run(ByteSpan bytes) {
  Input input(bytes);
  const Prototype& prototype = Prototype::get();
  store::MemoryFileSystem files;
  files.replace(*prototype.copy);
  const bool of_rows = input.below(4) != 0;
  if (of_rows) {
    damage_rows(files, kPath, prototype.columns, input);
  } else {
    damage_bytes(files, kPath, input);
  }
  check_said(store::read_journal_copy(files, kPath));
  const auto journal = CoordinatorJournal::open(files, kPath);
  check_said(journal);
  if (!journal.ok()) return;
  read_members(**journal);
  read_books(**journal);
  read_rounds(**journal);
  read_audit(**journal);
  go_on(**journal, input);
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
