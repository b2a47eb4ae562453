#include "coordinator/service/authorities.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/identity/token.h"
#include "core/store/audit_log.h"
#include "core/store/certificate_book.h"

namespace fluvial::coordinator {
namespace {

using identity::Certificate;
using store::AuthorityState;

constexpr std::size_t kNameDigits = 16;
constexpr const char* kIssuingKey = "ca-key.pem";
constexpr const char* kIssuingChain = "ca.pem";
constexpr std::string_view kKeyPrefix = "authority-";
constexpr std::string_view kKeySuffix = "-key.pem";

std::string name_of_key(const Digest& key) {
  return std::string(kKeyPrefix) + to_hex(key).substr(0, kNameDigits) + std::string(kKeySuffix);
}

bool is_trusted(AuthorityState state) {
  return state == AuthorityState::kNext || state == AuthorityState::kIssuing || state == AuthorityState::kOld;
}

// Nobody waits for a person, who may come once a year.
bool is_in_tree(Role role) { return role == Role::kSite || role == Role::kAggregator; }

std::string root_pin(const std::vector<Certificate>& chain) { return identity::pin_of(chain.back()); }

store::AuthorityRow row_of(const identity::Issuer& issuer, AuthorityState state, WallTime now) {
  return {identity::PublicKey::of(issuer.key).id(), Certificate::pem_of(issuer.chain), state, now};
}

store::AuthorityRow moved(store::AuthorityRow row, AuthorityState state, WallTime now) {
  row.state = state;
  row.since = now;
  return row;
}

}  // namespace

RolloverPhase phase_of(const identity::CertificateAuthority& authority) {
  const bool overlaps = authority.authorities().size() > 1;
  return rollover_phase(overlaps && authority.before() == nullptr, authority.before() != nullptr);
}

std::string_view state_name(AuthorityState state) {
  switch (state) {
    case AuthorityState::kNext: return "next";
    case AuthorityState::kIssuing: return "issuing";
    case AuthorityState::kOld: return "old";
    case AuthorityState::kRenewed: return "renewed";
    case AuthorityState::kGone: return "gone";
  }
  return "gone";
}

Result<std::unique_ptr<Authorities>> Authorities::open(store::CoordinatorJournal& journal,
                                                       const AuthorityOptions& options, const telemetry::Logger& log,
                                                       WallTime now) {
  std::unique_ptr<Authorities> made(new Authorities(journal, options, log));
  FLUVIAL_TRY(made->folder_->make());
  FLUVIAL_TRY(made->read());
  if (made->known_.empty()) {
    FLUVIAL_TRY(made->take_first(now));
  } else if (options.files) {
    FLUVIAL_TRY(made->take_files(now));
  }
  FLUVIAL_TRY(made->settle());
  FLUVIAL_TRY(made->publish(now));
  return made;
}

Authorities::Authorities(store::CoordinatorJournal& journal, const AuthorityOptions& options,
                         const telemetry::Logger& log)
    : journal_(journal),
      options_(options),
      folder_(options.folder ? options.folder : authority_folder(store::join_path(options.data_dir, kAuthorityFolder))),
      log_(log) {}

// The first start, or the first one of this version.
Status Authorities::take_first(WallTime now) {
  const bool is_there = folder_->has(kIssuingChain) || folder_->has(kIssuingKey);
  if (!options_.files || is_there) {
    FLUVIAL_ASSIGN(const identity::Issuer issuer, folder_->open_or_make_issuer(options_.federation, now));
    FLUVIAL_TRY(store::AuthorityBook(journal_).put({row_of(issuer, AuthorityState::kIssuing, now)}, {}));
    FLUVIAL_TRY(read());
    return options_.files ? take_files(now) : Status();
  }
  FLUVIAL_ASSIGN(const identity::Issuer issuer, identity::load_issuer(*options_.files, now));
  FLUVIAL_TRY(folder_->save_key(issuer.key, name_of_key(identity::PublicKey::of(issuer.key).id())));
  const store::AuditEntry entry{.kind = store::AuditKind::kAuthorityTaken, .detail = root_pin(issuer.chain)};
  FLUVIAL_TRY(write({row_of(issuer, AuthorityState::kIssuing, now)}, false, entry, now));
  return read();
}

// The files of the settings hold what the journal knows, or a later certificate below the same root.
Status Authorities::take_files(WallTime now) {
  const Result<identity::Issuer> issuer = identity::load_issuer(*options_.files, now);
  if (!issuer.ok()) {
    log_.warn("the certificate in authority.certificate is not taken; the one that was taken before goes on issuing",
              {{"reason", issuer.error().to_string()}});
    return {};
  }
  const Known* const issuing = find(AuthorityState::kIssuing);
  const store::AuthorityRow row = row_of(*issuer, AuthorityState::kIssuing, now);
  const std::string root = root_pin(issuer->chain);
  const auto same_root = [&root](const Known& one) { return root_pin(one.chain) == root; };
  if (!same_root(*issuing)) {
    if (std::ranges::any_of(known_, same_root)) {
      log_.warn("authority.certificate names an authority that does not issue; it changes nothing",
                {{"file", options_.files->certificate}});
      return {};
    }
    return Error{Code::kFailedPrecondition,
                 options_.files->certificate +
                     " leads to a root that this federation's members do not trust. Take the settings authority.* out, "
                     "start, and roll over to it: fluvial authority rollover begin --certificate FILE --key FILE "
                     "--root FILE"};
  }
  if (row.key == issuing->row.key && row.chain == issuing->row.chain) return {};
  if (row.key != issuing->row.key &&
      std::ranges::any_of(known_, [&](const Known& one) { return one.row.key == row.key; })) {
    log_.warn("authority.certificate names a certificate that a later one has replaced; it changes nothing",
              {{"file", options_.files->certificate}});
    return {};
  }
  FLUVIAL_TRY(folder_->save_key(issuer->key, name_of_key(row.key)));
  std::vector<store::AuthorityRow> rows = {row};
  if (row.key != issuing->row.key) rows.push_back(moved(issuing->row, AuthorityState::kRenewed, now));
  const bool list_changes = issuer->chain.back().pem() != issuing->chain.back().pem();
  const store::AuditEntry entry{
      .kind = store::AuditKind::kAuthorityTaken, .serial = issuer->chain.front().serial_hex(), .detail = root};
  FLUVIAL_TRY(write(rows, list_changes, entry, now));
  log_.info("the certificate in authority.certificate issues from now on", {{"pin", root}});
  return read();
}

Status Authorities::read() {
  store::AuthorityBook book(journal_);
  FLUVIAL_ASSIGN(std::vector<store::AuthorityRow> rows, book.all());
  FLUVIAL_ASSIGN(trust_, book.trust());
  std::vector<Known> known;
  for (store::AuthorityRow& row : rows) {
    FLUVIAL_ASSIGN(std::vector<Certificate> chain, Certificate::chain_from_pem(row.chain));
    known.push_back({std::move(row), std::move(chain)});
  }
  known_ = std::move(known);
  if (known_.empty() || find(AuthorityState::kIssuing) != nullptr) return {};
  return Error{Code::kDataLoss, "the journal names no authority that issues"};
}

const Authorities::Known* Authorities::find(AuthorityState state) const {
  const auto found = std::ranges::find_if(known_, [state](const Known& one) { return one.row.state == state; });
  return found == known_.end() ? nullptr : &*found;
}

RolloverPhase Authorities::phase() const {
  return rollover_phase(find(AuthorityState::kNext) != nullptr, find(AuthorityState::kOld) != nullptr);
}

Result<identity::PrivateKey> Authorities::key_of(const Known& known) const {
  for (const std::string& name : {std::string(kIssuingKey), name_of_key(known.row.key)}) {
    auto key = folder_->load_key(name);
    if (!key.ok() && key.error().code == Code::kNotFound) continue;
    if (!key.ok()) return key.error();
    if (identity::PublicKey::of(*key).id() == known.row.key) return key;
  }
  return Error{Code::kDataLoss, "the key of the authority " + root_pin(known.chain) + " is not in " + folder_->path() +
                                    ": restore the file " + folder_->path() + "/" + name_of_key(known.row.key)};
}

// During a rollover each trusted one has its key in a file of its own, so that ca-key.pem may change hands. Otherwise
// ca-key.pem is the only one.
Status Authorities::settle() {
  std::set<std::string> kept;
  for (const Known& one : known_) {
    if (phase() == RolloverPhase::kNone || !is_trusted(one.row.state)) continue;
    FLUVIAL_ASSIGN(const identity::PrivateKey key, key_of(one));
    const std::string name = name_of_key(one.row.key);
    kept.insert(name);
    if (!folder_->has(name)) FLUVIAL_TRY(folder_->save_key(key, name));
  }
  const Known& issuing = *find(AuthorityState::kIssuing);
  const auto held = folder_->load_key(kIssuingKey);
  const auto shown = folder_->load_chain(kIssuingChain);
  const bool same_key = held.ok() && identity::PublicKey::of(*held).id() == issuing.row.key;
  if (!same_key || !shown.ok() || Certificate::pem_of(*shown) != issuing.row.chain) {
    FLUVIAL_ASSIGN(const identity::PrivateKey key, key_of(issuing));
    FLUVIAL_TRY(folder_->save_key(key, kIssuingKey));
    FLUVIAL_TRY(folder_->save_chain(issuing.chain, kIssuingChain));
  }
  remove_keys_but(kept);
  return {};
}

// Of those that are trusted no more, and of a step that was cut short. What cannot be removed now is at the next start.
void Authorities::remove_keys_but(const std::set<std::string>& kept) const {
  for (const std::string& name : folder_->names()) {
    if (name.starts_with(kKeyPrefix) && name.ends_with(kKeySuffix) && !kept.contains(name)) folder_->remove(name);
  }
}

std::vector<Certificate> Authorities::trusted() const {
  std::vector<Certificate> roots;
  for (const AuthorityState state : {AuthorityState::kIssuing, AuthorityState::kOld, AuthorityState::kNext}) {
    if (const Known* one = find(state)) roots.push_back(one->chain.back());
  }
  return roots;
}

Status Authorities::publish(WallTime now) {
  const Known& issuing = *find(AuthorityState::kIssuing);
  if (identity::end_of(issuing.chain) <= now) {
    return Error{Code::kFailedPrecondition, folder_->path() + "/ca.pem has expired"};
  }
  if (identity::end_of(issuing.chain) - now < options_.validity) {
    log_.warn(
        "the certificate authority ends soon: what it issues is cut short, and then it issues nothing; see "
        "docs/operations/authorities.md",
        {{"ends_at", identity::format_utc(identity::end_of(issuing.chain))}});
  }
  std::shared_ptr<const identity::CertificateAuthority> before;
  if (const Known* old = find(AuthorityState::kOld); old != nullptr && identity::end_of(old->chain) > now) {
    FLUVIAL_ASSIGN(identity::PrivateKey key, key_of(*old));
    before = std::make_shared<const identity::CertificateAuthority>(
        identity::CertificateAuthority::of({std::move(key), old->chain}, trusted(), trust_));
  }
  FLUVIAL_ASSIGN(identity::PrivateKey key, key_of(issuing));
  auto next = std::make_shared<const identity::CertificateAuthority>(
      identity::CertificateAuthority::of({std::move(key), issuing.chain}, trusted(), trust_, std::move(before)));
  if (live_ == nullptr) {
    live_ = std::make_shared<identity::LiveAuthority>(std::move(next));
  } else {
    live_->replace(std::move(next));
  }
  return {};
}

Status Authorities::write(const std::vector<store::AuthorityRow>& rows, bool list_changed,
                          const store::AuditEntry& entry, WallTime now) {
  const std::optional<WallTime> changed = list_changed ? std::optional(now) : std::nullopt;
  return store::AuditLog(journal_).with(entry, now, [&] { return store::AuthorityBook(journal_).put(rows, changed); });
}

Status Authorities::begin(const std::optional<identity::IssuerFiles>& files, store::AuditEntry entry, WallTime now) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_TRY(may_begin(phase()));
  Result<identity::Issuer> issuer =
      files ? identity::load_issuer(*files, now) : folder_->make_issuer(options_.federation, now);
  if (!issuer.ok()) return issuer.error();
  const std::string root = root_pin(issuer->chain);
  const auto same_root = [&root](const Known& one) { return root_pin(one.chain) == root; };
  if (same_root(*find(AuthorityState::kIssuing))) {
    return Error{Code::kFailedPrecondition,
                 "that is below the root that members trust already: no rollover is needed. Name it in the settings "
                 "authority.certificate, authority.key and authority.root, and start the coordinator again"};
  }
  const auto was = std::ranges::find_if(known_, same_root);
  if (was != known_.end() && was->row.state == AuthorityState::kRenewed) {
    return Error{Code::kFailedPrecondition, "the root " + root + " was this federation's before"};
  }
  const store::AuthorityRow row = row_of(*issuer, AuthorityState::kNext, now);
  FLUVIAL_TRY(folder_->save_key(issuer->key, name_of_key(row.key)));
  entry.kind = store::AuditKind::kRolloverBegun;
  entry.detail = root;
  FLUVIAL_TRY(write({row}, true, entry, now));
  FLUVIAL_TRY(read());
  return publish(now);
}

Status Authorities::undo(store::AuditEntry entry, WallTime now) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_TRY(may_undo(phase()));
  const Known& next = *find(AuthorityState::kNext);
  entry.kind = store::AuditKind::kRolloverUndone;
  entry.detail = root_pin(next.chain);
  FLUVIAL_TRY(write({moved(next.row, AuthorityState::kGone, now)}, true, entry, now));
  FLUVIAL_TRY(read());
  FLUVIAL_TRY(settle());
  return publish(now);
}

Status Authorities::issue(bool force, store::AuditEntry entry, WallTime now) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const std::vector<std::string> who, without());
  FLUVIAL_TRY(may_issue(phase(), who, force));
  const Known& next = *find(AuthorityState::kNext);
  const Known& issuing = *find(AuthorityState::kIssuing);
  entry.kind = store::AuditKind::kRolloverIssues;
  entry.detail = root_pin(next.chain);
  if (!who.empty()) entry.detail += "; " + std::to_string(who.size()) + " members do not trust it yet";
  // settle() has given each of the two keys a file of its own: the journal may change first.
  FLUVIAL_TRY(settle());
  FLUVIAL_TRY(write({moved(issuing.row, AuthorityState::kOld, now), moved(next.row, AuthorityState::kIssuing, now)},
                    false, entry, now));
  FLUVIAL_TRY(read());
  FLUVIAL_TRY(settle());
  return publish(now);
}

Status Authorities::end(bool force, store::AuditEntry entry, WallTime now) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const std::vector<std::string> who, relying(now));
  FLUVIAL_TRY(may_end(phase(), who, force));
  const Known& old = *find(AuthorityState::kOld);
  entry.kind = store::AuditKind::kRolloverEnded;
  entry.detail = root_pin(old.chain);
  if (!who.empty()) entry.detail += "; " + std::to_string(who.size()) + " members relied on it";
  FLUVIAL_TRY(write({moved(old.row, AuthorityState::kGone, now)}, true, entry, now));
  FLUVIAL_TRY(read());
  FLUVIAL_TRY(settle());
  return publish(now);
}

Result<std::vector<std::string>> Authorities::without() const {
  FLUVIAL_ASSIGN(const auto shown, store::AuthorityBook(journal_).shown());
  FLUVIAL_ASSIGN(const std::vector<store::NodeRow> nodes, journal_.nodes());
  std::vector<TrustingMember> members;
  for (const store::NodeRow& node : nodes) {
    const auto list = shown.find(node.id);
    members.push_back({node.name, list == shown.end() ? 0 : list->second,
                       is_in_tree(node.role) && !node.revoked_at && !node.removed_at});
  }
  return without_list(members, trust_);
}

// `issuer` is empty for the first one, and for what a restore has lost and its holder has shown: that may be of any.
// None: it is of one that is trusted no more, and so proves nothing, whoever has shown it.
std::optional<bool> Authorities::is_leaving(ByteSpan issuer) const {
  const Known* const old = find(AuthorityState::kOld);
  if (old == nullptr) return false;
  const auto by_key = [issuer](const Known& one) { return std::ranges::equal(one.row.key, issuer); };
  const auto found = issuer.empty() ? known_.begin() : std::ranges::find_if(known_, by_key);
  if (found == known_.end()) return std::nullopt;
  const std::string pin = root_pin(found->chain);
  const std::vector<Certificate> roots = trusted();
  const auto is_root = [&pin](const Certificate& root) { return identity::pin_of(root) == pin; };
  if (std::ranges::any_of(roots, is_root)) return pin == root_pin(old->chain);
  return issuer.empty() ? std::optional(true) : std::nullopt;
}

Result<std::vector<std::string>> Authorities::relying(WallTime now) const {
  FLUVIAL_ASSIGN(const std::vector<store::CertificateRow> rows, store::CertificateBook(journal_).all());
  FLUVIAL_ASSIGN(const std::vector<store::NodeRow> nodes, journal_.nodes());
  std::map<NodeId, const store::NodeRow*> by_id;
  for (const store::NodeRow& node : nodes) by_id.emplace(node.id, &node);
  std::vector<HeldCertificate> held;
  for (const store::CertificateRow& row : rows) {
    const auto node = by_id.find(row.node);
    if (node == by_id.end() || node->second->revoked_at || !is_in_tree(node->second->role)) continue;
    const std::optional<bool> leaving = is_leaving(row.authority);
    if (!leaving) continue;
    held.push_back({row.node, node->second->name, *leaving, row.used_at.has_value(), row.refused_since.has_value(),
                    row.ends_at + options_.grace});
  }
  return relying_on_leaving(held, now);
}

Result<AuthorityView> Authorities::view(WallTime now) {
  const std::lock_guard lock(mutex_);
  AuthorityView view;
  view.phase = phase();
  view.trust = trust_;
  for (const AuthorityState state : {AuthorityState::kOld, AuthorityState::kIssuing, AuthorityState::kNext}) {
    const Known* const one = find(state);
    if (one == nullptr) continue;
    view.authorities.push_back({state, one->row.since, root_pin(one->chain), identity::federation_of(one->chain.back()),
                                one->chain.size() > 1, identity::end_of(one->chain), one->chain.back().not_after()});
  }
  if (view.phase == RolloverPhase::kBegun) {
    FLUVIAL_ASSIGN(view.without, without());
  }
  if (view.phase != RolloverPhase::kIssuing) return view;
  FLUVIAL_ASSIGN(view.relying, relying(now));
  FLUVIAL_ASSIGN(const std::vector<store::TokenRow> tokens, journal_.tokens());
  view.open_tokens = static_cast<std::uint64_t>(std::ranges::count_if(tokens, [now](const store::TokenRow& token) {
    return !token.revoked_at && token.uses < token.uses_max && now < token.expires_at;
  }));
  return view;
}

}  // namespace fluvial::coordinator
