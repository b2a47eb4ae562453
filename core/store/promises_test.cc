// A coordinator writes two rounds, with each fault at each operation of its disk. Each step is one promise. The state
// is everything that the journal's reads give, as text. After any fault the state is, byte for byte, the one before the
// step or the one after it, and the rest of the script leads to the same end.
#include <gtest/gtest.h>

#include <functional>
#include <sstream>

#include "core/store/journal.h"
#include "core/store/memory_file_system.h"
#include "core/store/model_store.h"
#include "core/store/plan_json.h"
#include "core/store/safetensors.h"
#include "core/store/test_support.h"

namespace fluvial::store {
namespace {

constexpr RunId kPromisedRun(1);
constexpr std::uint64_t kRounds = 2;
constexpr std::size_t kPromisedValues = 3;

round::Schema promised_schema() { return round::Schema::make({{"w", round::DType::kF32, {kPromisedValues}}}).value(); }

std::vector<float> promised_model(std::uint64_t round) { return {1.0f + static_cast<float>(round), -2.5f, 0.125f}; }
std::vector<float> optimizer_of(std::uint64_t round) { return {static_cast<float>(round), 0.5f, 0.25f}; }
ByteSpan model_bytes(const std::vector<float>& values) { return std::as_bytes(std::span(values)); }
Digest model_digest_of(std::uint64_t round) { return model_digest(model_bytes(promised_model(round))); }

// ---- the state as text --------------------------------------------------------------------------------------------

void write(std::ostream& out, const NodeRow& n) {
  out << "node " << n.id.value() << ' ' << role_name(n.role) << ' ' << n.name << ' ' << n.region << ' ' << n.weight_max
      << ' ' << n.certificate_serial << ' ' << n.enrolled_at.time_since_epoch().count() << ' ' << n.advertise << ' '
      << n.revoked_at.has_value() << ' ' << n.quarantined_at.has_value() << ' ' << n.quarantine_reason << '\n';
}
void write(std::ostream& out, const round::AttemptRecord& a) {
  out << "attempt " << a.round.value() << ' ' << a.attempt.value() << ' ' << a.epoch.value() << ' ' << a.scale_bits
      << ' ' << to_hex(a.base.digest);
  for (const round::Participant& p : a.participants) {
    out << " (" << p.site.value() << ' ' << p.lease.value() << ' ' << p.weight_max << ')';
  }
  out << '\n';
}
void write(std::ostream& out, const CommitRow& c) {
  out << "commit " << c.record.round.value() << ' ' << c.record.attempt.value() << ' ' << c.participants_count << ' '
      << to_hex(c.record.model.digest) << ' ' << to_hex(c.master) << ' ' << c.optimizer << ' '
      << (c.sum_digest ? to_hex(*c.sum_digest) : "-") << ' ' << c.duration_ms << ' ' << c.bytes_up << ' '
      << c.bytes_down << ' ' << metrics_to_json(c.metrics) << metrics_to_json(c.evaluation) << ' '
      << c.committed_at.time_since_epoch().count();
  for (const auto& [site, e] : c.record.contributors.entries()) {
    out << " (" << site.value() << ' ' << e.lease.value() << ' ' << e.weight << ' ' << to_hex(e.digest) << ' '
        << e.probe << ' ' << metrics_to_json(e.metrics) << ')';
  }
  for (const round::Refusal& r : c.record.refusals) out << " [" << r.site.value() << ' ' << r.error.to_string() << ']';
  for (const LateSite& l : c.late) out << " {" << l.site.value() << ' ' << l.reason << '}';
  out << '\n';
}

std::string state_of(CoordinatorJournal& journal) {
  std::ostringstream out;
  if (const auto federation = journal.federation().value()) out << "federation " << federation->name << '\n';
  const auto all_t = journal.tokens().value();
  for (const TokenRow& t : all_t) {
    out << "token " << t.id << ' ' << to_hex(t.secret_hash) << ' ' << t.name << ' '
        << (t.used_at ? t.used_at->time_since_epoch().count() : 0) << '\n';
  }
  const auto all_n = journal.nodes().value();
  for (const NodeRow& n : all_n) write(out, n);
  const auto all_l = journal.leases().value();
  for (const LeaseRow& l : all_l) {
    out << "lease " << l.node.value() << ' ' << l.parent.value() << ' ' << l.epoch.value() << '\n';
  }
  const auto all_r = journal.runs().value();
  for (const RunRow& r : all_r) {
    out << "run " << r.id.value() << ' ' << plan_to_json(r.plan) << ' ' << schema_to_json(r.schema) << ' '
        << to_hex(r.initial_model) << ' ' << run_status_name(r.status) << ' ' << r.reason << '\n';
    if (const auto attempt = journal.last_attempt(r.id).value()) write(out, *attempt);
    const auto all_c = journal.commits(r.id, RoundId(1), 100).value();
    for (const CommitRow& c : all_c) write(out, c);
    for (const SiteId site : {SiteId(1), SiteId(2)}) {
      const auto outcome = journal.outcome(r.id, RoundId(1), site, digest_of("update 1"));
      out << "outcome " << site.value() << ' ' << (outcome.ok() ? outcome_name(*outcome) : "none") << '\n';
    }
  }
  const auto all_m = journal.referenced_models().value();
  for (const round::ModelKey& m : all_m) out << "model " << m.version.value() << '\n';
  return out.str();
}

// ---- the script ---------------------------------------------------------------------------------------------------

struct Coordinator {
  std::unique_ptr<CoordinatorJournal> journal;
  std::optional<ModelStore> models;
};
struct Step {
  std::string name;
  std::function<Status(Coordinator&)> take;
};

Result<Coordinator> start(MemoryFileSystem& disk) {
  Coordinator coordinator;
  FLUVIAL_ASSIGN(coordinator.journal, CoordinatorJournal::open(disk, "/c/journal.sqlite"));
  FLUVIAL_ASSIGN(coordinator.models, ModelStore::open(disk, "/c/models"));
  return coordinator;
}

round::AttemptRecord attempt_of(CoordinatorJournal& journal, std::uint64_t round) {
  round::AttemptRecord row{kPromisedRun, RoundId(round), AttemptId(1), Epoch(1000 + round), {}, 30, {}};
  row.base = {kPromisedRun, ModelVersion(round - 1), model_digest_of(round - 1), 0};
  const auto all_lease = journal.leases().value();
  for (const LeaseRow& lease : all_lease) row.participants.push_back({lease.node, lease.epoch, 1000});
  return row;
}

CommitRow commit_of(CoordinatorJournal& journal, std::uint64_t round) {
  CommitRow row;
  row.record.run = kPromisedRun;
  row.record.round = RoundId(round);
  row.record.attempt = AttemptId(1);
  const LeaseRow lease = journal.leases().value().at(0);
  const Digest update = digest_of("update " + std::to_string(round));
  EXPECT_TRUE(
      row.record.contributors.add({lease.node, lease.epoch, 10, update, 10, {{"loss", 0.5}}, Incarnation(1), 1}).ok());
  row.record.refusals = {{SiteId(2), {Code::kConflict, "two contents"}}};
  row.late = {{SiteId(3), "no worker attached"}};
  row.participants_count = 3;
  row.record.model.digest = row.master = model_digest_of(round);
  row.optimizer = "run-1/round-" + std::to_string(round) + ".optimizer.safetensors";
  row.committed_at = at(100);
  return row;
}

Status put_model(Coordinator& c, std::uint64_t round) {
  const std::vector<float> optimizer = round == 0 ? std::vector<float>{} : optimizer_of(round);
  const std::vector<float> model = promised_model(round);
  FLUVIAL_ASSIGN(const std::string reference, c.models->put({kPromisedRun, ModelVersion(round)}, promised_schema(),
                                                            model_bytes(model), model_digest_of(round), optimizer));
  EXPECT_TRUE(round == 0 || reference == "run-1/round-" + std::to_string(round) + ".optimizer.safetensors")
      << reference;
  return {};
}

void enrol(std::vector<Step>& steps, const std::string& name) {
  steps.push_back({"invite " + name, [=](Coordinator& c) {
                     return c.journal->add_token({name, digest_of(name), Role::kSite, name, "eu", 1000, at(2000), {}});
                   }});
  steps.push_back({"enrol " + name, [=](Coordinator& c) -> Status {
                     NodeRow node;
                     node.name = name;
                     node.region = "eu";
                     node.weight_max = 1000;
                     node.certificate_serial = "serial";
                     node.enrolled_at = at(1000);
                     FLUVIAL_ASSIGN(const NodeRow kept, c.journal->redeem_token(digest_of(name), node, at(1500)));
                     EXPECT_NE(kept.id, NodeId(0));
                     return {};
                   }});
}

std::vector<Step> script() {
  std::vector<Step> steps;
  const auto grant = [](std::uint32_t node, std::uint32_t parent) {
    return [=](Coordinator& c) -> Status {
      FLUVIAL_ASSIGN(const LeaseRow lease, c.journal->grant(NodeId(node), NodeId(parent)));
      EXPECT_EQ(lease.parent, NodeId(parent));
      return {};
    };
  };
  steps.push_back({"found", [](Coordinator& c) { return c.journal->found({"demo", at(1)}); }});
  enrol(steps, "a");
  enrol(steps, "b");
  steps.push_back({"lease a", grant(1, 0)});
  steps.push_back({"lease b", grant(2, 0)});
  steps.push_back({"run", [](Coordinator& c) -> Status {
                     round::Plan plan;
                     plan.name = "digits";
                     plan.rounds = kRounds;
                     RunRow row{RunId(), plan,   promised_schema(), model_digest_of(0), RunStatus::kRunning, "",
                                at(3),   RunId()};
                     FLUVIAL_ASSIGN(const RunId id, c.journal->create_run(row));
                     EXPECT_EQ(id, kPromisedRun);
                     return {};
                   }});
  steps.push_back({"initial model", [](Coordinator& c) { return put_model(c, 0); }});
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    steps.push_back({"open", [=](Coordinator& c) { return c.journal->open_attempt(attempt_of(*c.journal, round)); }});
    steps.push_back({"commit", [=](Coordinator& c) -> Status {
                       FLUVIAL_TRY(put_model(c, round));  // without its record it is swept and written again
                       return c.journal->commit(commit_of(*c.journal, round));
                     }});
    steps.push_back({"move b", grant(2, static_cast<std::uint32_t>(round % 2))});
  }
  steps.push_back({"quarantine", [](Coordinator& c) { return c.journal->quarantine(SiteId(2), at(9), "why"); }});
  steps.push_back(
      {"done", [](Coordinator& c) { return c.journal->set_run_status(kPromisedRun, RunStatus::kDone, ""); }});
  return steps;
}

// ---- what must hold whenever a coordinator comes up -----------------------------------------------------------------

void check_promises(Coordinator& c) {
  const std::vector<round::ModelKey> referenced = c.journal->referenced_models().value();
  ASSERT_TRUE(c.models->sweep({referenced.begin(), referenced.end()}).ok());
  const auto runs = c.journal->runs().value();
  if (runs.empty()) return;
  const std::optional<CommitRow> last = c.journal->last_commit(kPromisedRun).value();
  const std::vector<CommitRow> commits = c.journal->commits(kPromisedRun, RoundId(1), 100).value();
  for (std::size_t i = 0; i < commits.size(); ++i)
    EXPECT_EQ(commits[i].record.round, RoundId(i + 1)) << "each round once";
  if (last) {
    const std::uint64_t round = last->record.round.value();
    const auto model = c.models->load({kPromisedRun, ModelVersion(round)}, last->record.model.digest);
    ASSERT_TRUE(model.ok()) << model.error().to_string();
    EXPECT_EQ(c.models->load_optimizer(last->optimizer, kPromisedValues).value(), optimizer_of(round));
    EXPECT_EQ(c.journal->commit(commit_of(*c.journal, round)).error().code, Code::kFailedPrecondition);
  }
  const std::optional<round::AttemptRecord> open = c.journal->last_attempt(kPromisedRun).value();
  if (!open || (last && last->record.round >= open->round)) return;
  round::AttemptRecord other = *open;
  const auto refused = [&](const char* what) {
    EXPECT_EQ(c.journal->open_attempt(other).error().code, Code::kFailedPrecondition) << what;
    other = *open;
    other.attempt = open->attempt.next();
  };
  refused("the same attempt");
  other.scale_bits = 29;
  refused("another scale");
  other.participants.pop_back();
  refused("other participants");
  other.epoch = Epoch(open->epoch.value() - 1);
  refused("an older epoch");
}

std::vector<std::string> states_without_faults(const std::vector<Step>& steps) {
  MemoryFileSystem disk;
  EXPECT_TRUE(disk.make_folder("/c").ok());
  Coordinator c = start(disk).value();
  std::vector<std::string> states{state_of(*c.journal)};
  for (const Step& step : steps) {
    const Status done = step.take(c);
    EXPECT_TRUE(done.ok()) << step.name << ": " << (done.ok() ? "" : done.error().to_string());
    states.push_back(state_of(*c.journal));
  }
  return states;
}

struct Case {
  const char* name;
  Fault fault;
  Unsynced unsynced;
  bool power_fails_next = false;  // once the successor of a killed process is up
};

class Promises : public testing::TestWithParam<Case> {
 protected:
  // Plays the script with the fault at operation n. False when the fault came after the end.
  bool play(std::uint64_t n) {
    MemoryFileSystem disk;
    EXPECT_TRUE(disk.make_folder("/c").ok());
    Coordinator c = start(disk).value();
    const std::uint64_t before = disk.operations();
    disk.fail_at(n, GetParam().fault);
    bool hit = false;
    for (std::size_t i = 0; i < steps_.size(); ++i) {
      const Status done = steps_[i].take(c);
      if (done.ok()) continue;
      const std::string where = steps_[i].name + ", operation " + std::to_string(n) + ": " + done.error().to_string();
      EXPECT_FALSE(hit) << "once: " << where;
      hit = true;
      const bool taken = come_back(disk, c, n, i, done.error(), where);
      if (testing::Test::HasFailure()) return true;
      if (!taken) --i;  // the step did not happen: take it again
    }
    const bool reached = disk.operations() - before > n;  // or a step got by without it
    disk.clear_fault();
    EXPECT_EQ(state_of(*c.journal), states_.back()) << "operation " << n;
    check_promises(c);
    return reached;
  }

  // Whether step i turns out to have been taken.
  bool come_back(MemoryFileSystem& disk, Coordinator& c, std::uint64_t n, std::size_t i, const Error& why,
                 const std::string& where) {
    const bool dead = disk.crashed();
    EXPECT_TRUE(dead || why.code == Code::kUnavailable || why.code == Code::kResourceExhausted) << where;
    const std::optional<Error> fault = c.journal->fault();
    if (dead) {
      disk.restart(GetParam().unsynced, n + 1);
    } else if (fault && fault->code == Code::kUnavailable) {
      EXPECT_EQ(c.journal->next_epoch().ok(), false) << "it promises nothing until it is started again; " << where;
    }
    if (dead || (fault && fault->code == Code::kUnavailable)) {
      c = Coordinator{};
      Result<Coordinator> again = start(disk);
      EXPECT_TRUE(again.ok()) << where << (again.ok() ? "" : "; then " + again.error().to_string());
      if (!again.ok()) return true;
      c = std::move(*again);
    }
    const std::string state = state_of(*c.journal);
    EXPECT_TRUE(state == states_[i] || state == states_[i + 1]) << where << "\n" << state;
    if (dead && GetParam().power_fails_next) {  // others may have been told what it has read
      disk.restart(Unsynced::kLost);
      c = Coordinator{};
      c = start(disk).value();
      EXPECT_EQ(state_of(*c.journal), state) << where << ", then the power failed";
    }
    check_promises(c);
    return state == states_[i + 1] && states_[i] != states_[i + 1];
  }

  const std::vector<Step> steps_ = script();
  const std::vector<std::string> states_ = states_without_faults(steps_);
};

TEST_P(Promises, AreKeptWhateverOperationFails) {
  for (std::uint64_t n = 0; play(n); ++n) {
    ASSERT_FALSE(HasFailure()) << "operation " << n;
    ASSERT_LT(n, 5000u);
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, Promises,
                         testing::Values(Case{"DiskFull", Fault::kNoSpace, Unsynced::kKept},
                                         Case{"Io", Fault::kIo, Unsynced::kKept},
                                         Case{"ShortWrite", Fault::kShortWrite, Unsynced::kKept},
                                         Case{"CrashLosesUnsynced", Fault::kCrash, Unsynced::kLost},
                                         Case{"CrashKeepsUnsynced", Fault::kCrash, Unsynced::kKept},
                                         Case{"KilledThenThePowerFails", Fault::kCrash, Unsynced::kKept, true},
                                         Case{"CrashTearsUnsynced", Fault::kCrash, Unsynced::kTorn}),
                         [](const auto& info) { return std::string(info.param.name); });

// A process is killed at any operation of its first start; its successor makes a promise; then the power fails.
TEST(PromisesAfterAKilledStart, WhatTheNextOnePromisesIsKept) {
  bool finished = false;
  for (std::uint64_t n = 0; !finished; ++n) {
    MemoryFileSystem disk;
    ASSERT_TRUE(disk.make_folder("/c").ok());
    disk.fail_at(n, Fault::kCrash);
    finished = start(disk).ok();
    disk.restart(Unsynced::kKept);
    Coordinator c = start(disk).value();
    ASSERT_TRUE(c.journal->found({"demo", at(1)}).ok());
    ASSERT_TRUE(put_model(c, 0).ok());
    disk.restart(Unsynced::kLost);
    c = Coordinator{};
    c = start(disk).value();
    const auto kept = c.journal->federation().value();
    ASSERT_TRUE(kept.has_value()) << "operation " << n;
    ASSERT_TRUE(c.models->load({kPromisedRun, ModelVersion(0)}, model_digest_of(0)).ok()) << "operation " << n;
    ASSERT_LT(n, 500u);
  }
}

TEST(PromisesBetweenSteps, ACrashGivesTheSameStateByteForByte) {
  const std::vector<Step> steps = script();
  MemoryFileSystem disk;
  ASSERT_TRUE(disk.make_folder("/c").ok());
  Coordinator c = start(disk).value();
  for (const Step& step : steps) {
    ASSERT_TRUE(step.take(c).ok()) << step.name;
    const std::string before = state_of(*c.journal);
    disk.restart(Unsynced::kLost);
    c = Coordinator{};
    c = start(disk).value();
    ASSERT_EQ(state_of(*c.journal), before) << step.name;
  }
}

}  // namespace
}  // namespace fluvial::store
