#include "tests/simulator/bugs/bugs.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <utility>

#include "core/store/unsynced_file.h"

namespace fluvial::simulator {
namespace {

class CountsOnAck final : public Tamper {
  bool counts_on_ack() override { return true; }
};

class SkipsFence final : public Tamper {
  bool admits_stale() override { return true; }
};

class GuessesOutcome final : public Tamper {
  void told(edge::Verdict* verdict) override {
    if (!verdict->counted && !verdict->refused) verdict->late = true;
  }
};

class DropsLate final : public Tamper {
  void told(edge::Verdict* verdict) override {
    if (std::exchange(verdict->late, false)) verdict->refused = true;
  }
  void told(round::Outcome* outcome) override {
    if (*outcome == round::Outcome::kLate) *outcome = round::Outcome::kRefused;
  }
};

class KeepsRefused final : public Tamper {
  void told(edge::Verdict* verdict) override {
    if (std::exchange(verdict->refused, false)) verdict->late = true;
  }
  void told(round::Outcome* outcome) override {
    if (*outcome == round::Outcome::kRefused) *outcome = round::Outcome::kLate;
  }
};

class AnswersRefused final : public Tamper {
  void answers(round::Outcome* outcome) override {
    if (*outcome == round::Outcome::kLate) *outcome = round::Outcome::kRefused;
  }
};

class TrustsClocks final : public Tamper {
  void reported(round::NodeReport* report) override {
    if (report->clock) report->clock->uncertainty = Duration(0);
  }
};

class SkipsIntegers final : public Tamper {
  void staged(transfer::StagedArrival* arrival) override {
    std::ranges::fill(arrival->integers, std::numeric_limits<std::int64_t>::min());  // the maximum takes no note of it
  }
};

class TakesAnyValue final : public Tamper {
  // Not without any bound: the sum's room would refuse that.
  void terms(transfer::Terms* terms) override { terms->value_abs_max *= 8; }
};

class CallsTheHeavy final : public Tamper {
  void calls(const std::map<SiteId, coordinator::SiteInfo>& connected,
             std::vector<round::Participant>* participants) override {
    for (const auto& [site, info] : connected) {
      if (std::ranges::find(*participants, site, &round::Participant::site) == participants->end()) {
        participants->push_back({site, info.lease, info.weight_max});
      }
    }
  }
};

class ForgetsRevocation final : public Tamper {
  bool forgets_revocation() override { return true; }
};

class AcceptsARevokedSerial final : public Tamper {
  bool accepts_revoked_serial() override { return true; }
};

class RenewsTooLate final : public Tamper {
  bool renews_too_late() override { return true; }
};

class TakesAnEndedCertificate final : public Tamper {
  bool takes_an_ended_certificate() override { return true; }
};

class SupersedesOnIssue final : public Tamper {
  bool supersedes_on_issue() override { return true; }
};

class EndsTheOverlapTooEarly final : public Tamper {
  bool ends_the_overlap_too_early() override { return true; }
};

class TrustsTheOldAuthorityForEver final : public Tamper {
  bool trusts_the_old_authority() override { return true; }
};

class ChecksRoleAlone final : public Tamper {
  bool checks_role_alone() override { return true; }
};

class TakesAnyLease final : public Tamper {
  bool takes_any_lease() override { return true; }
};

class TrustsAnUnsignedOpening final : public Tamper {
  bool trusts_unsigned() override { return true; }
};

class LetsAnAggregatorReweigh final : public Tamper {
  bool takes_any_contribution() override { return true; }
};

// The state of the last round that was finalised, whether or not it was committed.
class OptimizerOutsideCommit final : public Tamper {
  void optimizer_finalised(const std::vector<float>& state) override { state_ = state; }
  void optimizer_loaded(std::vector<float>* state) override {
    if (!state_.empty()) *state = state_;
  }
  std::vector<float> state_;
};

class ReusesEpoch final : public Tamper {
  Result<Epoch> term(store::CoordinatorJournal& journal) override {
    if (term_) return *term_;
    FLUVIAL_ASSIGN(term_, journal.next_epoch());
    return *term_;
  }
  std::optional<Epoch> term_;
};

class MergesOverlap final : public Tamper {
  bool merges_overlap() override { return true; }
};

class ForgetsQuarantine final : public Tamper {
  bool forgets_quarantine() override { return true; }
};

// A disk whose syncs do nothing: of any path, or of those that have `part` in them.
class UnsyncedFiles final : public store::FileSystem {
 public:
  UnsyncedFiles(store::FileSystem& files, std::string part) : files_(files), part_(std::move(part)) {}
  Result<std::unique_ptr<store::File>> open(const std::string& path, store::OpenMode mode) override {
    return wrap(path, files_.open(path, mode));
  }
  Result<std::unique_ptr<store::File>> open_unnamed(const std::string& folder) override {
    return wrap(folder, files_.open_unnamed(folder));
  }
  Status rename(const std::string& from, const std::string& to) override { return files_.rename(from, to); }
  Status remove(const std::string& path) override { return files_.remove(path); }
  Result<bool> exists(const std::string& path) override { return files_.exists(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override { return files_.list(folder); }
  Status make_folder(const std::string& path) override { return files_.make_folder(path); }
  Status sync_folder(const std::string& path) override { return is_meant(path) ? Status{} : files_.sync_folder(path); }

 private:
  bool is_meant(const std::string& path) const { return path.find(part_) != std::string::npos; }
  Result<std::unique_ptr<store::File>> wrap(const std::string& path, Result<std::unique_ptr<store::File>> file) const {
    if (!file.ok() || !is_meant(path)) return file;
    return std::unique_ptr<store::File>(std::make_unique<store::UnsyncedFile>(std::move(*file)));
  }
  store::FileSystem& files_;
  std::string part_;
};

class SendsBeforeSync : public Tamper {
 public:
  explicit SendsBeforeSync(std::string part) : part_(std::move(part)) {}
  store::FileSystem& site_files(HostId host, store::FileSystem& honest) override {
    const auto [entry, fresh] = files_.try_emplace(host, honest, part_);
    return entry->second;
  }

 private:
  std::string part_;
  std::map<HostId, UnsyncedFiles> files_;
};

}  // namespace

const std::vector<Bug>& bugs() {
  static const std::vector<Bug> all = {
      {"counts-on-ack", "outcome", "a site takes the parent's acknowledgement for the commit"},
      {"skips-fence", "fence", "a parent admits what is under an older lease, attempt or epoch"},
      {"guesses-outcome", "outcome", "a site that a commit does not name takes its update for late"},
      {"drops-late", "outcome", "a site takes late for refused, and drops its work"},
      {"keeps-refused", "outcome", "a site takes refused for late"},
      {"answers-refused", "outcome", "the journal answers refused for every late update"},
      {"trusts-clocks", "timeline", "the coordinator takes what was measured of clocks for exact"},
      {"skips-integers", "exact_sum", "integer tensors are never added up"},
      {"takes-any-value", "bounds", "a parent knows no value_abs_max"},
      {"calls-the-heavy", "room", "substitutes are called whether or not the sum has room for their weight"},
      {"forgets-revocation", "members_only", "the coordinator's book of nodes takes no note of a revoked certificate"},
      {"accepts-a-revoked-serial", "stays_revoked", "a parent looks at a member's name, and not at its certificate"},
      {"renews-too-late", "renews_in_time", "a member renews its certificate when it has ended"},
      {"takes-an-ended-certificate", "certificates_end", "a parent does not look when its children's certificates end"},
      {"supersedes-on-issue", "renewal_keeps_in", "a renewed certificate replaces the one before when it is issued"},
      {"ends-the-overlap-too-early", "rollover_waits",
       "a rollover ends while members rely on the authority that it drops"},
      {"trusts-the-old-authority-for-ever", "trusted_no_more",
       "the coordinator lets in whom an authority before has certified"},
      {"checks-role-alone", "leased_parent", "a child takes any aggregator for its parent"},
      {"takes-any-lease", "leased", "an aggregator takes a child in under whatever lease it names"},
      {"trusts-an-unsigned-opening", "signed_orders", "a site does what its parent says, whoever signed it"},
      {"lets-an-aggregator-reweigh", "exact_sum", "the coordinator takes contributions as an aggregator tells them"},
      {"optimizer-outside-commit", "model_chain",
       "the optimizer's state is kept apart from the commit, and taken up after a restart"},
      {"reuses-epoch", "epochs_grow", "a restarted coordinator goes on under its last epoch"},
      {"sends-before-sync", "write_ahead", "a site sends its submission before it is synced"},
      {"tensors-unsynced", "write_ahead", "a site syncs its records, and not the files that they name"},
      {"forgets-quarantine", "quarantine", "the coordinator samples a site that contradicted itself"},
      {"merges-overlap", "exact_sum", "a parent adds a partial that overlaps with what it holds"},
  };
  return all;
}

std::unique_ptr<Tamper> make_bug(const std::string& name) {
  if (name == "counts-on-ack") return std::make_unique<CountsOnAck>();
  if (name == "skips-fence") return std::make_unique<SkipsFence>();
  if (name == "guesses-outcome") return std::make_unique<GuessesOutcome>();
  if (name == "drops-late") return std::make_unique<DropsLate>();
  if (name == "keeps-refused") return std::make_unique<KeepsRefused>();
  if (name == "answers-refused") return std::make_unique<AnswersRefused>();
  if (name == "trusts-clocks") return std::make_unique<TrustsClocks>();
  if (name == "skips-integers") return std::make_unique<SkipsIntegers>();
  if (name == "takes-any-value") return std::make_unique<TakesAnyValue>();
  if (name == "calls-the-heavy") return std::make_unique<CallsTheHeavy>();
  if (name == "forgets-revocation") return std::make_unique<ForgetsRevocation>();
  if (name == "accepts-a-revoked-serial") return std::make_unique<AcceptsARevokedSerial>();
  if (name == "renews-too-late") return std::make_unique<RenewsTooLate>();
  if (name == "takes-an-ended-certificate") return std::make_unique<TakesAnEndedCertificate>();
  if (name == "supersedes-on-issue") return std::make_unique<SupersedesOnIssue>();
  if (name == "ends-the-overlap-too-early") return std::make_unique<EndsTheOverlapTooEarly>();
  if (name == "trusts-the-old-authority-for-ever") return std::make_unique<TrustsTheOldAuthorityForEver>();
  if (name == "checks-role-alone") return std::make_unique<ChecksRoleAlone>();
  if (name == "takes-any-lease") return std::make_unique<TakesAnyLease>();
  if (name == "trusts-an-unsigned-opening") return std::make_unique<TrustsAnUnsignedOpening>();
  if (name == "lets-an-aggregator-reweigh") return std::make_unique<LetsAnAggregatorReweigh>();
  if (name == "optimizer-outside-commit") return std::make_unique<OptimizerOutsideCommit>();
  if (name == "reuses-epoch") return std::make_unique<ReusesEpoch>();
  if (name == "sends-before-sync") return std::make_unique<SendsBeforeSync>("");
  if (name == "tensors-unsynced") return std::make_unique<SendsBeforeSync>("/tensors");
  if (name == "forgets-quarantine") return std::make_unique<ForgetsQuarantine>();
  if (name == "merges-overlap") return std::make_unique<MergesOverlap>();
  return nullptr;
}

}  // namespace fluvial::simulator
