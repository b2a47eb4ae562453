#include "coordinator/service/authorship.h"

#include <algorithm>
#include <utility>

#include "core/store/certificate_book.h"
#include "core/tree/orders.h"

namespace fluvial::coordinator {
namespace {

// What is on its way in a window may count in one after it.
constexpr std::uint64_t kRoundsKept = 2 * std::uint64_t{round::kStalenessMost};

}  // namespace

Status Authorship::load() {
  FLUVIAL_ASSIGN(std::set<SiteId> signers, journal_.signers());
  const std::lock_guard lock(mutex_);
  signers_ = std::move(signers);
  return {};
}

void Authorship::begins_anew(SiteId site) {
  const std::lock_guard lock(mutex_);
  signers_.erase(site);
}

bool Authorship::has_signed(SiteId site) const {
  const std::lock_guard lock(mutex_);
  return signers_.contains(site);
}

void Authorship::note(const transfer::Brought& brought, const round::Contribution& contribution,
                      const identity::PublicKey& key) {
  const std::lock_guard lock(mutex_);
  signers_.insert(contribution.site);
  if (brought.run < run_) return;
  if (brought.run > run_) {
    verified_.clear();
    run_ = brought.run;
    newest_ = {};
  }
  if (brought.round > newest_) {
    newest_ = brought.round;
    std::erase_if(verified_, [&](const auto& one) { return one.second.round.value() + kRoundsKept < newest_.value(); });
  }
  verified_[*contribution.signature] = {brought.round, key};
}

Result<identity::PublicKey> Authorship::key_of(SiteId site) const {
  store::CertificateBook book(journal_);
  FLUVIAL_ASSIGN(const std::optional<store::CertificateRow> certificate, book.current_of(site));
  if (!certificate || certificate->key.empty()) return identity::PublicKey();
  return identity::PublicKey::from_der(certificate->key);
}

Result<std::vector<identity::PublicKey>> Authorship::keys_before(SiteId site, RunId run,
                                                                 const std::optional<store::CommitRow>& commit) const {
  store::CertificateBook book(journal_);
  std::vector<identity::PublicKey> keys;
  FLUVIAL_ASSIGN(const std::optional<store::CertificateRow> current, book.current_of(site));
  FLUVIAL_ASSIGN(const store::RunRow began, journal_.run(run));
  const WallTime opened_after = commit ? commit->committed_at : began.created_at;
  if (!current || current->issued_at < opened_after) return keys;
  FLUVIAL_ASSIGN(const std::vector<store::CertificateRow> certificates, book.of_member(site));
  for (const store::CertificateRow& one : certificates) {
    if (one.key.empty() || one.refuses_key() || one.key == current->key) continue;
    FLUVIAL_ASSIGN(identity::PublicKey key, identity::PublicKey::from_der(one.key));
    keys.push_back(std::move(key));
  }
  return keys;
}

Result<identity::PublicKey> Authorship::author_of(const transfer::Brought& brought,
                                                  const round::Contribution& contribution,
                                                  const identity::PublicKey& session) const {
  const SiteId site = contribution.site;
  const std::string name = "site " + std::to_string(site.value());
  if (!contribution.signature) {
    if (!has_signed(site)) return identity::PublicKey();
    return Error{Code::kUnauthenticated, name + " signs what it contributes, and this is not signed"};
  }
  identity::PublicKey key = session;
  if (!key) {
    FLUVIAL_ASSIGN(key, key_of(site));
  }
  if (!key) return key;
  const std::optional<transfer::Brought::Signed> what = brought.signed_of(contribution);
  if (!what) return Error{Code::kUnauthenticated, name + ": an update of a model that none may be of"};
  const auto is_by = [&](const identity::PublicKey& author) {
    return tree::check_author(author, brought.run, what->round, what->base, contribution);
  };
  const Status own = is_by(key);
  if (own.ok()) return key;
  if (!session) {
    FLUVIAL_ASSIGN(const std::optional<store::CommitRow> before, journal_.last_commit(brought.run));
    FLUVIAL_ASSIGN(const std::vector<identity::PublicKey> keys, keys_before(site, brought.run, before));
    const auto author = std::ranges::find_if(keys, [&](const identity::PublicKey& one) { return is_by(one).ok(); });
    if (author != keys.end()) return *author;
  }
  return Error{own.error().code, name + ": " + own.error().message};
}

Status Authorship::check(const tree::Child& child, const transfer::Brought& brought,
                         const round::Contribution& contribution) {
  const bool is_own = child.node == contribution.site;
  FLUVIAL_ASSIGN(const identity::PublicKey key,
                 author_of(brought, contribution, is_own ? child.session->member().key : identity::PublicKey()));
  if (key) note(brought, contribution, key);
  return {};
}

Status Authorship::is_contradiction(RunId run, RoundId own, SiteId site,
                                    const std::vector<round::Contribution>& contents) const {
  if (contents.size() != 2) return Error{Code::kInvalidArgument, "without the two contents"};
  const round::Contribution& first = contents[0];
  const round::Contribution& second = contents[1];
  const bool is_one = first.site == site && second.site == site && first.incarnation == second.incarnation &&
                      first.submission == second.submission && first.own_round(own) == own &&
                      second.own_round(own) == own && own > RoundId(0);
  if (!is_one || first.digest == second.digest) {
    return Error{Code::kInvalidArgument, "these are not two contents of one submission"};
  }
  std::optional<store::CommitRow> before;
  FLUVIAL_ASSIGN(const store::RunRow row, journal_.run(run));
  Digest base = row.initial_model;
  if (own > RoundId(1)) {
    FLUVIAL_ASSIGN(before, journal_.commit_of(run, RoundId(own.value() - 1)));
    base = before->record.model.digest;
  }
  FLUVIAL_ASSIGN(const identity::PublicKey key, key_of(site));
  FLUVIAL_ASSIGN(std::vector<identity::PublicKey> keys, keys_before(site, run, before));
  if (key) keys.push_back(key);
  for (const round::Contribution& content : contents) {
    const bool is_own = std::ranges::any_of(
        keys, [&](const identity::PublicKey& one) { return tree::check_author(one, run, own, base, content).ok(); });
    if (!is_own) return Error{Code::kUnauthenticated, "a content without the site's signature"};
  }
  return {};
}

std::vector<round::Refusal> Authorship::forged(const tree::Child& child, const transfer::Brought& brought) {
  std::vector<round::Refusal> forged;
  for (const auto& [site, contribution] : brought.contributors.entries()) {
    const Status own = check(child, brought, contribution);
    if (!own.ok()) forged.push_back({site, own.error()});
  }
  return forged;
}

std::map<SiteId, std::vector<std::byte>> Authorship::keys_of(const round::ContributorSet& contributors) const {
  std::map<SiteId, std::vector<std::byte>> keys;
  const std::lock_guard lock(mutex_);
  for (const auto& [site, contribution] : contributors.entries()) {
    if (!contribution.signature) continue;
    const auto found = verified_.find(*contribution.signature);
    if (found == verified_.end()) continue;
    const Buffer der = found->second.key.der();
    keys.emplace(site, std::vector<std::byte>(der.span().begin(), der.span().end()));
  }
  return keys;
}

}  // namespace fluvial::coordinator
