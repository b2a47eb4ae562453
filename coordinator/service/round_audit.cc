#include "coordinator/service/round_audit.h"

#include <algorithm>
#include <map>
#include <utility>

#include "coordinator/service/pass_audit.h"
#include "coordinator/service/share_audit.h"
#include "core/store/audit_log.h"
#include "core/store/certificate_book.h"
#include "core/tree/orders.h"
#include "core/wire/mapping.h"

namespace fluvial::coordinator {
namespace {

std::string name_of(SiteId site) { return "site " + std::to_string(site.value()); }

// The model that the round before made; none: that round is pruned.
Result<std::optional<Digest>> base_of(store::CoordinatorJournal& journal, RunId run, RoundId round) {
  if (round == RoundId(1)) {
    FLUVIAL_ASSIGN(const store::RunRow row, journal.run(run));
    return std::optional(row.initial_model);
  }
  const Result<store::CommitRow> before = journal.commit_of(run, RoundId(round.value() - 1));
  if (before.ok()) return std::optional(before->record.model.digest);
  if (before.error().code == Code::kNotFound) return std::optional<Digest>();
  return before.error();
}

Status check_commit(const store::CommitRow& row, const identity::PublicKey& coordinator) {
  if (!coordinator) return Error{Code::kFailedPrecondition, "this coordinator has no key to check the commit by"};
  FLUVIAL_TRY(coordinator.verify(wire::kCommitKind, as_byte_span(row.order->statement), row.order->signature));
  v1::CommitStatement said;
  const round::CommitRecord& record = row.record;
  const bool same = said.ParseFromString(row.order->statement) && said.run() == record.run.value() &&
                    said.round() == record.round.value() && said.attempt() == record.attempt.value() &&
                    said.model().version() == record.model.version.value() &&
                    said.model().sha256() == wire::digest_to_proto(record.model.digest) &&
                    (said.master_sha256().empty() ? row.master == record.model.digest
                                                  : said.master_sha256() == wire::digest_to_proto(row.master));
  if (same) return {};
  return Error{Code::kDataLoss, "the coordinator signed another commit than the journal holds"};
}

// An audit log that was cut, or written anew, no longer holds the entry that the commit was signed with.
Status check_audit_log(store::CoordinatorJournal& journal, const store::CommitRow& row) {
  v1::CommitStatement said;
  if (!said.ParseFromString(row.order->statement) || said.audit_head().empty()) return {};
  FLUVIAL_ASSIGN(const store::AuditHead head, store::AuditHead::from_bytes(as_byte_span(said.audit_head())));
  return store::AuditLog(journal).check(head);
}

// Whoever holds the journal could exchange a key with its signature; the certificates say whose it is.
Status check_key(store::CoordinatorJournal& journal, SiteId site, ByteSpan key) {
  store::CertificateBook book(journal);
  FLUVIAL_ASSIGN(const std::vector<store::CertificateRow> certificates, book.of_key(key));
  if (std::ranges::any_of(certificates, [site](const auto& one) { return one.node == site; })) return {};
  return Error{Code::kDataLoss, "it is signed by a key that was never certified as this site's"};
}

Status check_contribution(store::CoordinatorJournal& journal, const store::CommitRow& row, const Digest& base,
                          const round::Contribution& entry) {
  const auto key = row.keys.find(entry.site);
  FLUVIAL_CHECK(key != row.keys.end(), "a signature is kept with its key");
  FLUVIAL_TRY(check_key(journal, entry.site, key->second));
  FLUVIAL_ASSIGN(const identity::PublicKey reader, identity::PublicKey::from_der(key->second));
  return tree::check_author(reader, row.record.run, entry.own_round(row.record.round), base, entry);
}

// How old what is in a round may be, in models: at all, and since it was admitted.
struct Ages {
  std::uint64_t staleness_max = 0;
  std::uint64_t drift_max = 0;
};

Result<AuditedRound> audit(store::CoordinatorJournal& journal, const store::CommitRow& row,
                           const identity::PublicKey& coordinator, const Ages& rule) {
  const round::CommitRecord& record = row.record;
  AuditedRound audited;
  audited.round = record.round;
  audited.contributors = record.contributors.size();
  audited.commit_signed = row.order.has_value();
  if (row.order) {
    Status good = check_commit(row, coordinator);
    if (good.ok()) good = check_audit_log(journal, row);
    if (!good.ok()) audited.faults.push_back(good.error().message);
  }
  if (record.contributors.total_weight() != row.weight) {
    audited.faults.push_back("its contributors' weights add up to " +
                             std::to_string(record.contributors.total_weight()) + ", and the commit says " +
                             std::to_string(row.weight));
  }
  std::map<RoundId, std::optional<Digest>> bases;  // by the round that an update was made for
  for (const auto& [site, entry] : record.contributors.entries()) {
    const std::uint64_t began = record.round.value() - 1;
    const bool says_versions = entry.admitted > ModelVersion(0);
    if (says_versions && (entry.admitted.value() > began || began - entry.admitted.value() > rule.drift_max)) {
      audited.faults.push_back(name_of(site) + ": the commit holds it as admitted on model version " +
                               std::to_string(entry.admitted.value()) + ", and the round began with " +
                               std::to_string(began));
    }
    if (!says_versions && rule.staleness_max > 0 && began > 0) {
      audited.faults.push_back(name_of(site) + ": the commit does not say which model it was trained from");
    }
    const bool is_of_age = entry.base <= entry.admitted && began - entry.base.value() <= rule.staleness_max;
    if (says_versions && rule.staleness_max > 0 && !is_of_age) {
      audited.faults.push_back(name_of(site) + ": the commit holds it as trained from model version " +
                               std::to_string(entry.base.value()) + ", from which none may be in this round");
    }
    if (!entry.signature) continue;
    ++audited.contributors_signed;
    const RoundId own_round = entry.own_round(record.round);
    if (!bases.contains(own_round)) {
      FLUVIAL_ASSIGN(bases[own_round], base_of(journal, record.run, own_round));
    }
    const std::optional<Digest>& from = bases[own_round];
    if (!from) {
      audited.contributions_checked = false;
      continue;
    }
    const Status own = check_contribution(journal, row, *from, entry);
    if (!own.ok()) audited.faults.push_back(name_of(site) + ": " + own.error().message);
  }
  return audited;
}

struct CountedIn {
  RoundId own;    // of this round an update was counted
  RoundId round;  // in that commit
};

// A signature says of which round an update is, and not which commit it went into: that may be several rounds later.
void check_once(const round::CommitRecord& record, std::map<SiteId, CountedIn>* newest,
                std::vector<std::string>* faults) {
  for (const auto& [site, entry] : record.contributors.entries()) {
    const CountedIn now{entry.own_round(record.round), record.round};
    const auto [before, is_first] = newest->try_emplace(site, now);
    if (!is_first && now.own <= before->second.own) {
      faults->push_back(name_of(site) + ": what it made for round " + std::to_string(now.own.value()) +
                        " counts, and round " + std::to_string(before->second.round.value()) +
                        " has counted what it made for round " + std::to_string(before->second.own.value()));
    } else {
      before->second = now;
    }
  }
}

}  // namespace

Result<std::vector<AuditedRound>> audit_rounds(store::CoordinatorJournal& journal,
                                               const identity::PublicKey& coordinator, const AuditedRounds& which) {
  FLUVIAL_ASSIGN(const std::vector<store::CommitRow> rows, journal.commits(which.run, which.from, which.limit));
  FLUVIAL_ASSIGN(const store::RunRow run, journal.run(which.run));
  const Ages rule{round::late_is_next(run.plan) ? run.plan.staleness_max : 0,
                  round::is_async(run.plan) ? run.plan.async_drift_max : 0};
  FLUVIAL_ASSIGN(const PassAudit passes, PassAudit::of(run));
  FLUVIAL_ASSIGN(ShareAudit shares, ShareAudit::before(journal, run, std::max(which.from, RoundId(1))));
  std::vector<AuditedRound> audited;
  std::map<SiteId, CountedIn> newest;
  for (const store::CommitRow& row : rows) {
    FLUVIAL_ASSIGN(AuditedRound one, audit(journal, row, coordinator, rule));
    check_once(row.record, &newest, &one.faults);
    for (std::string& fault : shares.faults_of(row.record)) one.faults.push_back(std::move(fault));
    for (std::string& fault : passes.faults_of(row.record)) one.faults.push_back(std::move(fault));
    audited.push_back(std::move(one));
  }
  return audited;
}

}  // namespace fluvial::coordinator
