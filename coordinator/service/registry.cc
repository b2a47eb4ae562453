#include "coordinator/service/registry.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/digest/sha256.h"
#include "core/net/connector.h"
#include "core/store/audit_log.h"
#include "core/store/authority_book.h"
#include "core/store/certificate_book.h"
#include "core/tree/denials.h"
#include "core/tree/lease_statement.h"
#include "core/wire/history_mapping.h"
#include "core/wire/mapping.h"

namespace fluvial::coordinator {
namespace {

NodeEntry from_row(const store::NodeRow& row) {
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
  node.certificate_serial = row.certificate_serial;
  node.removed_at = row.removed_at;
  return node;
}

OperatorEntry operator_from(const store::NodeRow& row) {
  const Result<Access> access = access_from_name(row.access);
  return {.node = row.id,
          .name = row.name,
          .access = access.ok() ? *access : Access::kNone,
          .enrolled_at = row.enrolled_at,
          .certificate_serial = row.certificate_serial,
          .revoked_at = row.revoked_at,
          .removed_at = row.removed_at};
}

constexpr int kLeasesAMessage = 1'000;  // of some 200 bytes each
constexpr std::size_t kNamesALine = 8;

LeaseEntry from_row(const store::LeaseRow& row) { return {row.node, row.parent, row.epoch}; }

}  // namespace

// The first few: whoever announces them decides how many there are.
std::string Registry::some_names(const std::vector<NodeId>& nodes) const {
  std::string text;
  for (std::size_t i = 0; i < std::min(nodes.size(), kNamesALine); ++i) {
    text += (i == 0 ? "" : ", ") + book_.name_of(nodes[i]);
  }
  return nodes.size() > kNamesALine ? text + ", ..." : text;
}

std::string_view Registry::known_name(const store::LostRow& row) const {
  const auto node = book_.nodes().find(row.site);
  if (node == book_.nodes().end() || node->second.role != Role::kSite) return "";
  if (row.known.counted) return "counted";
  return row.known.decided ? "not counted" : "waited";
}

Result<v1::Signed> Registry::sign(const identity::PeerIdentity& peer, const LeaseAnswer& answer) const {
  round::LeaseTerms terms{peer.node, peer.key.id(), answer.epoch, answer.parent, {}, round::current_of(lineage_)};
  const auto parent_key = keys_.find(answer.parent);
  if (answer.parent == NodeId(0)) {
    terms.parent_key = identity::PublicKey::of(*key_).id();
  } else if (parent_key != keys_.end()) {
    terms.parent_key = parent_key->second;
  }
  return tree::sign_lease(*key_, terms, runtime_.clock.wall_now());
}

// The first aggregator from `parent` up that is of the version before: whoever is below it would wait forever for what
// the coordinator signs. 0: none is known to be.
NodeId Registry::passes_nothing_on(NodeId parent) const {
  for (std::size_t steps = 0; parent != NodeId(0) && steps <= book_.nodes().size(); ++steps) {
    const auto seen = passes_on_.find(parent);
    if (seen != passes_on_.end() && !seen->second) return parent;
    const LeaseEntry* lease = book_.lease_of(parent);
    parent = lease == nullptr ? NodeId(0) : lease->parent;
  }
  return NodeId(0);
}

Result<v1::LeaseGrant> Registry::grant(const identity::PeerIdentity& peer, const LeaseAnswer& answer,
                                       bool shows_lease) {
  v1::LeaseGrant grant;
  grant.set_epoch(answer.epoch.value());
  v1::Parent& parent = *grant.add_parents();
  parent.set_node(answer.parent.value());
  parent.set_role(wire::role_to_proto(answer.parent_role));
  parent.set_name(answer.parent_name);
  parent.set_address(answer.address);
  wire::to_proto(lineage_, grant.mutable_histories());
  const RenewalTerms renewal = renewal_();
  grant.set_certificate_s(static_cast<std::uint64_t>(renewal.validity.count()));
  grant.set_trust(renewal.trust);
  mute_.erase(peer.node);
  if (!key_) return grant;
  if (const auto key = keys_.find(answer.parent); key != keys_.end()) {
    parent.set_key_sha256(wire::digest_to_proto(key->second));
  }
  if (const NodeId old = passes_nothing_on(answer.parent); old != NodeId(0)) {
    if (said_old_.insert(old).second) {
      runtime_.log.warn(
          "an aggregator of a version that passes no signatures on; what is below it believes it: update it",
          {{"aggregator", book_.name_of(old)}});
    }
    return grant;
  }
  FLUVIAL_ASSIGN(*grant.add_leases(), sign(peer, answer));
  if (!shows_lease && answer.parent != NodeId(0)) mute_.emplace(peer.node, std::pair(answer.parent, grant.leases(0)));
  return grant;
}

std::vector<v1::MemberChange> Registry::leases_to_tell(NodeId parent) const {
  std::vector<v1::MemberChange> changes;
  for (const auto& [node, lease] : mute_) {
    if (lease.first != parent) continue;
    if (changes.empty() || changes.back().leases_size() == kLeasesAMessage) changes.emplace_back();
    *changes.back().add_leases() = lease.second;
  }
  return changes;
}

Status Registry::load() {
  FLUVIAL_ASSIGN(const std::vector<store::NodeRow> nodes, journal_.nodes());
  for (const store::NodeRow& row : nodes) enter(row);
  FLUVIAL_ASSIGN(const std::vector<store::LeaseRow> leases, journal_.leases());
  for (const store::LeaseRow& row : leases) book_.put(from_row(row));
  FLUVIAL_ASSIGN(const std::set<NodeId> relays, journal_.relays());
  for (const NodeId node : relays) passes_on_[node] = true;
  FLUVIAL_ASSIGN(lineage_, journal_.lineage());
  FLUVIAL_ASSIGN(lost_, journal_.lost());
  FLUVIAL_ASSIGN(refused_, read_refused());
  FLUVIAL_TRY(load_current());
  refresh_deny_list();
  refused_changed_();
  return {};
}

void Registry::refresh_deny_list() {
  identity::DenyEntries entries;
  for (const auto& [id, node] : book_.nodes()) {
    if (node.revoked_at) entries.nodes.insert(id);
    entries.serials_hex[id] = node.certificate_serial;
  }
  entries.current = current_;
  entries.adopts_newer = !lineage_.empty();
  for (const auto& [id, person] : operators_.all()) {
    if (person.revoked_at) entries.nodes.insert(id);
  }
  entries.keys = refused_.who.keys;
  entries.refused_serials = refused_.who.refused_serials;
  deny_->replace(std::move(entries));
  shut_out_();
}

// The number first: what is read after it holds at least what it counts.
Result<Registry::Refused> Registry::read_refused() {
  Refused refused;
  store::CertificateBook certificates(journal_);
  FLUVIAL_ASSIGN(refused.number, certificates.denials_number());
  FLUVIAL_ASSIGN(const std::vector<store::NodeRow> nodes, journal_.nodes());
  for (const store::NodeRow& row : nodes) {
    if (row.revoked_at) refused.who.nodes.insert(row.id);
  }
  FLUVIAL_ASSIGN(const std::vector<store::CertificateRow> rows, certificates.refused(runtime_.clock.wall_now()));
  for (const store::CertificateRow& row : rows) {
    if (row.refuses_key() && !row.key.empty()) {
      refused.who.keys.insert(sha256(row.key));
    } else {
      refused.who.refused_serials.insert(row.serial);
    }
  }
  FLUVIAL_ASSIGN(store::Refusals taken_over, certificates.taken_over());
  refused.who.keys.merge(taken_over.keys);
  refused.who.refused_serials.merge(taken_over.serials);
  return refused;
}

std::optional<v1::Denials> Registry::denials() const {
  if (!key_) return std::nullopt;
  Result<v1::Denials> denials = tree::signed_denials(refused_.who, round::current_of(lineage_), refused_.number, *key_);
  if (denials.ok()) return std::move(*denials);
  runtime_.log.error("aggregators are not told whom the journal refuses; they are with the next change",
                     {{"reason", denials.error().to_string()}});
  return std::nullopt;
}

net::Awaitable<void> Registry::refresh_refused() {
  Result<Refused> read = co_await runtime_.pool.run([this] { return read_refused(); });
  if (!read.ok()) {
    runtime_.log.error("aggregators are not told whom the journal refuses; they are with the next change",
                       {{"reason", read.error().to_string()}});
    co_return;
  }
  if (read->number <= refused_.number) co_return;
  refused_ = std::move(*read);
  refresh_deny_list();
  refused_changed_();
}

net::Awaitable<Result<LeaseAnswer>> Registry::lease(identity::PeerIdentity peer, v1::LeaseRequest request) {
  if (peer.role == Role::kAggregator) {
    const Result<net::HostPort> address = net::parse_host_port(request.advertise());
    if (!address.ok()) co_return address.error();
  }
  if (peer.role == Role::kAggregator && request.has_denials()) {
    const Status taken = co_await take_over(std::move(*request.mutable_denials()));
    if (!taken.ok()) co_return taken.error();
  }
  const LeaseAsk ask{peer.node, peer.role, peer.name, request.advertise(), NodeId(request.unreachable())};
  const Result<LeaseWanted> wanted = book_.request_lease(ask, now());
  if (!wanted.ok()) co_return wanted.error();
  note_holder(peer, request.process());
  const Status met = co_await meet(peer.node, request.standing());
  if (!met.ok()) co_return met.error();
  bool passes_on = false;
  if (peer.role == Role::kAggregator) {
    keys_[peer.node] = peer.key.id();
    passes_on = passes_on_[peer.node] || request.shows_lease();
    passes_on_[peer.node] = passes_on;
  }
  std::optional<store::CertificateRow> parent;
  store::CertificateSeen seen;
  const WallTime when = runtime_.clock.wall_now();
  const Result<store::LeaseRow> row = co_await runtime_.pool.run([&]() -> Result<store::LeaseRow> {
    if (peer.key && !peer.serial_hex.empty()) {
      const Buffer key = peer.key.der();
      FLUVIAL_ASSIGN(
          seen, store::CertificateBook(journal_).saw(
                    {peer.serial_hex, peer.node, key.span(), peer.not_after, peer.issued, !lineage_.empty()}, when));
    }
    FLUVIAL_TRY(store::AuthorityBook(journal_).shown(peer.node, request.trust()));
    if (wanted->advertise) FLUVIAL_TRY(journal_.set_advertise(wanted->node, *wanted->advertise));
    FLUVIAL_ASSIGN(parent, store::CertificateBook(journal_).current_of(wanted->parent));
    return journal_.grant(wanted->node, wanted->parent, passes_on);
  });
  co_await came_with(peer, seen);
  if (!row.ok()) co_return row.error();
  if (parent && !parent->key.empty()) keys_[wanted->parent] = sha256(parent->key);
  co_return book_.lease_granted(*wanted, from_row(*row), now());
}

void Registry::note_holder(const identity::PeerIdentity& peer, std::uint64_t process) {
  if (!holders_.came(peer.node, process, now())) return;
  runtime_.log.warn("two machines show the identity of a member; the older one is turned away each time",
                    {{"member", peer.name}, {"serial", peer.serial_hex}});
}

// Before it is granted anything: what it knows must be in the journal, or be lost with a restore.
net::Awaitable<Status> Registry::meet(NodeId node, v1::Standing shown) {
  const Result<round::Standing> standing = wire::from_proto(shown);
  if (!standing.ok()) co_return standing.error();
  const WallTime when = runtime_.clock.wall_now();
  const auto lost = co_await runtime_.pool.run([&] { return journal_.meet(node, *standing, when); });
  if (lost.ok()) {
    ahead_.erase(node);
    note_lost(*lost);
    co_return Status{};
  }
  if (lost.error().code == Code::kFailedPrecondition && ahead_[node] != lost.error().message) {
    ahead_[node] = lost.error().message;
    runtime_.log.error("a member knows more than the journal; it gets no lease until that is settled",
                       {{"member", book_.name_of(node)}, {"reason", lost.error().message}});
  }
  co_return lost.error();
}

void Registry::note_lost(const std::vector<store::LostRow>& rows) {
  for (const store::LostRow& row : rows) {
    const auto same = [&](const store::LostRow& known) {
      return known.site == row.site && known.known.run == row.known.run && known.known.round == row.known.round;
    };
    if (const auto known = std::ranges::find_if(lost_, same); known != lost_.end()) {
      *known = row;
      continue;
    }
    lost_.push_back(row);
    runtime_.log.warn("a round is lost with the history before; its number is given out again",
                      {{"run", row.known.run},
                       {"round", row.known.round},
                       {"member", book_.name_of(row.site)},
                       {"outcome", known_name(row)}});
  }
}

bool Registry::enter(const store::NodeRow& row) {
  if (row.role != Role::kOperator) return book_.put(from_row(row), now());
  operators_.put(operator_from(row));
  return false;
}

bool Registry::enrolled(const store::NodeRow& row, const Digest& key) {
  current_.erase(row.id);
  if (key != Digest{}) current_[row.id] = {key, row.enrolled_at};
  const bool replaced = enter(row);
  if (replaced) holders_.forget(row.id);
  passes_on_.erase(row.id);  // perhaps as a version that passes nothing on
  refresh_deny_list();       // a new token lifts a revocation, and voids the certificate before
  return replaced;
}

void Registry::child_joined(const tree::Child& child) {
  book_.child_joined(child.node, child.lease, child.incarnation, now());
}

std::vector<SiteId> Registry::members_changed(NodeId child, const v1::MemberChange& change) {
  std::vector<MemberUp> up;
  for (const v1::Member& member : change.up()) {
    up.push_back({NodeId(member.node()), NodeId(member.parent()), Epoch(member.lease_epoch()),
                  Incarnation(member.incarnation())});
  }
  std::vector<NodeId> down;
  for (const std::uint32_t node : change.down()) down.emplace_back(node);
  MembersChanged changed = book_.members_changed(child, up, down, now());
  if (!changed.not_counted.empty()) {
    runtime_.log.warn("members without a current lease are not counted; they come for one",
                      {{"member", book_.name_of(child)},
                       {"members", changed.not_counted.size()},
                       {"names", some_names(changed.not_counted)}});
  }
  return std::move(changed.sites_up);
}

store::AuditEntry Registry::about(store::AuditKind kind, NodeId node, store::AuditEntry entry) const {
  entry.kind = kind;
  entry.node = node;
  if (const OperatorEntry* person = operators_.find(node)) {
    entry.member = person->name;
    entry.role = Role::kOperator;
    entry.serial = person->certificate_serial;
    return entry;
  }
  const NodeEntry& known = book_.nodes().at(node);
  entry.member = known.name;
  entry.role = known.role;
  entry.serial = known.certificate_serial;
  return entry;
}

Result<NodeId> Registry::find(const std::string& name) const {
  if (const OperatorEntry* person = operators_.named(name)) return person->node;
  return book_.find(name);
}

net::Awaitable<Result<NodeId>> Registry::revoke(std::string name, store::AuditEntry by) {
  const Result<NodeId> node = find(name);
  if (!node.ok()) co_return node.error();
  const WallTime when = runtime_.clock.wall_now();
  const store::AuditEntry entry = about(store::AuditKind::kRevoked, *node, std::move(by));
  const Status kept = co_await runtime_.pool.run(
      [&] { return store::AuditLog(journal_).with(entry, when, [&] { return journal_.revoke(*node, when); }); });
  if (!kept.ok()) co_return kept.error();
  operators_.revoked(*node, when);
  if (operators_.find(*node) == nullptr) book_.revoked(*node, when, now());
  holders_.forget(*node);
  refresh_deny_list();
  co_await refresh_refused();
  co_return *node;
}

net::Awaitable<Result<NodeId>> Registry::remove(std::string name, store::AuditEntry by) {
  const Result<NodeId> node = find(name);
  if (!node.ok()) co_return node.error();
  if (book_.members().contains(*node)) {  // a revoked one is no member
    co_return Error{Code::kFailedPrecondition,
                    name + " is connected: stop it, or shut it out before: fluvial nodes revoke " + name};
  }
  const WallTime when = runtime_.clock.wall_now();
  const store::AuditEntry entry = about(store::AuditKind::kRemoved, *node, std::move(by));
  const Status kept = co_await runtime_.pool.run(
      [&] { return store::AuditLog(journal_).with(entry, when, [&] { return journal_.remove(*node, when); }); });
  if (!kept.ok()) co_return kept.error();
  operators_.removed(*node, when);
  if (operators_.find(*node) == nullptr) book_.removed(*node, when, now());
  holders_.forget(*node);
  refresh_deny_list();
  co_await refresh_refused();
  co_return *node;
}

net::Awaitable<Status> Registry::quarantine(SiteId site, std::string reason) {
  if (!book_.nodes().contains(site) || book_.is_quarantined(site)) co_return Status{};
  const WallTime when = runtime_.clock.wall_now();
  book_.quarantined(site, when, reason);  // at once: what is sampled next must not hold it
  const store::AuditEntry entry = about(store::AuditKind::kQuarantined, site, {.detail = reason});
  co_return co_await runtime_.pool.run([&] {
    return store::AuditLog(journal_).with(entry, when, [&] { return journal_.quarantine(site, when, reason); });
  });
}

net::Awaitable<Result<NodeId>> Registry::clear(std::string name, store::AuditEntry by) {
  const Result<NodeId> node = book_.find(name);
  if (!node.ok()) co_return node.error();
  if (!book_.is_quarantined(*node)) {
    co_return Error{Code::kFailedPrecondition, name + " is not in quarantine; see: fluvial nodes list"};
  }
  const store::AuditEntry entry = about(store::AuditKind::kQuarantineLifted, *node, std::move(by));
  const WallTime when = runtime_.clock.wall_now();
  const Status kept = co_await runtime_.pool.run(
      [&] { return store::AuditLog(journal_).with(entry, when, [&] { return journal_.clear_quarantine(*node); }); });
  if (!kept.ok()) co_return kept.error();
  book_.cleared(*node);
  co_return *node;
}

}  // namespace fluvial::coordinator
