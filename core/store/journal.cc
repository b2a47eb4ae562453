// The federation: its founding, tokens, nodes and leases. Runs and rounds: journal_rounds.cc.
#include "core/store/journal.h"

#include <fmt/chrono.h>

#include <thread>
#include <utility>

#include "core/store/audit_log.h"
#include "core/store/certificate_rows.h"
#include "core/store/journal_schema.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

std::string format_time(WallTime time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", std::chrono::floor<std::chrono::seconds>(time));
}

// A journal that is damaged may not say it.
std::string used_at(const TokenRow& token) { return token.used_at ? format_time(*token.used_at) : "an unknown time"; }

Result<Role> role_from_name(std::string_view name) {
  for (const Role role : {Role::kCoordinator, Role::kAggregator, Role::kSite, Role::kOperator}) {
    if (role_name(role) == name) return role;
  }
  return Error{Code::kDataLoss, "the journal holds an unknown role"};
}

// The next value of a counter: 1, 2, ... Within a transaction.
Result<std::uint64_t> bump(Database& database, std::string_view counter) {
  std::uint64_t value = 0;
  FLUVIAL_TRY(database.query(
      "INSERT INTO counters VALUES (?, 1) ON CONFLICT (name) DO UPDATE SET value = value + 1 RETURNING value",
      {counter}, [&](const SqlRow& row) -> Status {
        value = row.number(0);
        return {};
      }));
  return value;
}

constexpr const char* kTokenColumns =
    "SELECT id, secret_hash, role, name, region, weight_max, expires_at, used_at, uses_max, uses, revoked_at, "
    "revoked_why, access "
    "FROM tokens ";
Result<TokenRow> token_from(const SqlRow& row) {
  TokenRow token;
  token.id = row.text(0);
  FLUVIAL_ASSIGN(token.secret_hash, row.digest(1));
  FLUVIAL_ASSIGN(token.role, role_from_name(row.text(2)));
  token.name = row.text(3);
  token.region = row.text(4);
  token.weight_max = row.number(5);
  token.expires_at = row.time(6);
  token.used_at = row.optional_time(7);
  token.uses_max = row.number(8);
  token.uses = row.number(9);
  token.revoked_at = row.optional_time(10);
  token.revoked_why = row.text(11);
  token.access = row.text(12);
  return token;
}

constexpr const char* kNodeColumns =
    "SELECT id, role, name, region, weight_max, certificate_serial, enrolled_at, advertise, revoked_at, "
    "quarantined_at, quarantine_reason, removed_at, access "
    "FROM nodes ";
Result<NodeRow> node_from(const SqlRow& row) {
  NodeRow node;
  node.id = row.id<NodeId>(0);
  FLUVIAL_ASSIGN(node.role, role_from_name(row.text(1)));
  node.name = row.text(2);
  node.region = row.text(3);
  node.weight_max = row.number(4);
  node.certificate_serial = row.text(5);
  node.enrolled_at = row.time(6);
  node.advertise = row.text(7);
  node.revoked_at = row.optional_time(8);
  node.quarantined_at = row.optional_time(9);
  node.quarantine_reason = row.text(10);
  node.removed_at = row.optional_time(11);
  node.access = row.text(12);
  return node;
}

Result<std::optional<TokenRow>> token_by_hash(Database& database, const Digest& hash) {
  std::optional<TokenRow> found;
  const std::string sql = std::string(kTokenColumns) + "WHERE secret_hash = ?";
  FLUVIAL_TRY(database.query(sql.c_str(), {hash}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(found, token_from(row));
    return {};
  }));
  return found;
}

Result<std::optional<NodeRow>> node_where(Database& database, const char* condition, SqlValue value) {
  std::optional<NodeRow> found;
  const std::string sql = std::string(kNodeColumns) + condition;
  FLUVIAL_TRY(database.query(sql.c_str(), {value}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(found, node_from(row));
    return {};
  }));
  return found;
}

Result<std::optional<NodeRow>> node_by_id(Database& database, NodeId id) {
  return node_where(database, "WHERE id = ?", id);
}

Result<NodeId> reserve(Database& database, Role role, const std::string& name) {
  std::optional<NodeId> held;
  std::string held_role;
  FLUVIAL_TRY(database.query("SELECT node, role FROM names WHERE name = ?", {name}, [&](const SqlRow& row) -> Status {
    held = row.id<NodeId>(0);
    held_role = row.text(1);
    return {};
  }));
  if (held && held_role != role_name(role)) {
    return Error{Code::kAlreadyExists, "the name '" + name + "' belongs to a node of role " + held_role};
  }
  if (held) return *held;
  FLUVIAL_ASSIGN(const std::uint64_t number, bump(database, "node"));
  const NodeId id(static_cast<NodeId::rep>(number));
  FLUVIAL_TRY(database.run("INSERT INTO names VALUES (?, ?, ?, 0)", {name, role_name(role), id}));
  return id;
}

Status check_token(const std::optional<TokenRow>& token, const NodeRow& node, WallTime now) {
  if (!token) return Error{Code::kUnauthenticated, "wrong token: the federation has not issued it"};
  if (token->revoked_at) {
    const std::string why = token->revoked_why.empty() ? "" : ": " + token->revoked_why;
    return Error{Code::kUnauthenticated,
                 "token " + token->id + " was revoked at " + format_time(*token->revoked_at) + why};
  }
  if (token->uses >= token->uses_max) {
    return Error{Code::kUnauthenticated, "token " + token->id + " was used at " + used_at(*token)};
  }
  if (now >= token->expires_at) {
    return Error{Code::kUnauthenticated, "token " + token->id + " expired at " + format_time(token->expires_at)};
  }
  if (!token->is_for(node.role, node.name)) {
    return Error{Code::kUnauthenticated, "token " + token->id + " is for " + std::string(role_name(token->role)) +
                                             " '" + token->name + "', not for " + std::string(role_name(node.role)) +
                                             " '" + node.name + "'"};
  }
  return {};
}

Status use_token(Database& database, const TokenRow& token, const NodeRow& node, WallTime now) {
  FLUVIAL_TRY(database.run("UPDATE tokens SET used_at = ?, uses = uses + 1 WHERE id = ?", {now, token.id}));
  FLUVIAL_TRY(database.run("UPDATE names SET enrolments = enrolments + 1 WHERE name = ?", {node.name}));
  if (token.uses_max == 1) return {};
  FLUVIAL_ASSIGN(const auto held, database.scalar("SELECT id FROM nodes WHERE name = ?", {node.name}));
  if (held) {
    return Error{Code::kAlreadyExists,
                 "'" + node.name + "' is enrolled: a token for several members takes over from none of them"};
  }
  return {};
}

Result<std::optional<LeaseRow>> lease_of(Database& database, NodeId node) {
  std::optional<LeaseRow> found;
  FLUVIAL_TRY(
      database.query("SELECT parent, epoch FROM leases WHERE node = ?", {node}, [&](const SqlRow& row) -> Status {
        found = LeaseRow{node, row.id<NodeId>(0), row.id<Epoch>(1)};
        return {};
      }));
  return found;
}

Result<LeaseRow> write_lease(Database& database, NodeId node, NodeId parent) {
  FLUVIAL_ASSIGN(const std::uint64_t epoch, bump(database, "epoch"));
  FLUVIAL_TRY(
      database.run("INSERT INTO leases VALUES (?, ?, ?) ON CONFLICT (node) DO UPDATE SET parent = excluded.parent, "
                   "epoch = excluded.epoch",
                   {node, parent, epoch}));
  return LeaseRow{node, parent, Epoch(epoch)};
}

Error no_such_node(NodeId node) { return {Code::kNotFound, "there is no node " + std::to_string(node.value())}; }

// What was made for the member before it was shut out does not bring it back.
Status shut_out(Database& database, NodeId node, const char* why, WallTime now) {
  FLUVIAL_TRY(database.run("UPDATE nodes SET revoked_at = coalesce(revoked_at, ?) WHERE id = ?", {now, node}));
  if (database.changes() != 1) return no_such_node(node);
  FLUVIAL_TRY(refuse_certificates(database, node, why, now));
  FLUVIAL_TRY(database.run(
      "UPDATE tokens SET revoked_at = ?1, revoked_why = name || ' was ' || ?2 || ' then; ask for a token made since' "
      "WHERE name = (SELECT name FROM nodes WHERE id = ?3) AND uses < uses_max AND revoked_at IS NULL",
      {now, std::string_view(why), node}));
  return bump_denials(database);
}

}  // namespace

CoordinatorJournal::CoordinatorJournal(std::unique_ptr<Database> database) : database_(std::move(database)) {}
CoordinatorJournal::~CoordinatorJournal() = default;

Result<std::unique_ptr<CoordinatorJournal>> CoordinatorJournal::open(FileSystem& files, const std::string& path) {
  FLUVIAL_ASSIGN(std::unique_ptr<Database> database, Database::open(files, path, kJournalSteps, "another coordinator"));
  return std::unique_ptr<CoordinatorJournal>(new CoordinatorJournal(std::move(database)));
}

Status CoordinatorJournal::copy_to(const std::string& path) {
  std::unique_lock lock(mutex_);
  return database_->copy_to(path, [&lock] {
    lock.unlock();
    std::this_thread::yield();
    lock.lock();
  });
}

Status CoordinatorJournal::change(const std::function<Status()>& body) {
  AuditLog::Joined* const entry = AuditLog::waiting_for(*this);
  const Status done = database_->transact([&]() -> Status {
    FLUVIAL_TRY(body());
    return entry == nullptr ? Status() : AuditLog::write(*database_, entry->at, entry->text);
  });
  if (entry != nullptr) entry->written = done.ok();
  const bool of_the_disk =
      !done.ok() && (done.error().code == Code::kUnavailable || done.error().code == Code::kResourceExhausted ||
                     done.error().code == Code::kDataLoss);
  const std::lock_guard lock(fault_mutex_);
  if (done.ok()) fault_.reset();
  if (of_the_disk) fault_ = done.error();
  return done;
}

std::optional<Error> CoordinatorJournal::fault() const {
  const std::lock_guard lock(fault_mutex_);
  return fault_;
}

Status CoordinatorJournal::found(const FederationRow& federation) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_ASSIGN(const auto there, database_->scalar("SELECT one FROM federation"));
    if (there) return Error{Code::kAlreadyExists, "the federation was founded before"};
    return database_->run("INSERT INTO federation VALUES (1, ?, ?)", {federation.name, federation.created_at});
  });
}

Result<std::optional<FederationRow>> CoordinatorJournal::federation() {
  const std::lock_guard lock(mutex_);
  std::optional<FederationRow> found;
  FLUVIAL_TRY(database_->query("SELECT name, created_at FROM federation", {}, [&](const SqlRow& row) -> Status {
    found = FederationRow{row.text(0), row.time(1)};
    return {};
  }));
  return found;
}

Result<Epoch> CoordinatorJournal::next_epoch() {
  const std::lock_guard lock(mutex_);
  Epoch epoch;
  FLUVIAL_TRY(change([&]() -> Status {
    FLUVIAL_ASSIGN(const std::uint64_t value, bump(*database_, "epoch"));
    epoch = Epoch(value);
    return {};
  }));
  return epoch;
}

Status CoordinatorJournal::add_token(const TokenRow& token) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    return database_->run("INSERT INTO tokens VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                          {token.id, token.secret_hash, role_name(token.role), token.name, token.region,
                           token.weight_max, token.expires_at, token.used_at, token.uses_max, token.uses,
                           token.revoked_at, token.revoked_why, token.access});
  });
}

Status CoordinatorJournal::revoke_token(const std::string& id, WallTime now) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    std::optional<TokenRow> token;
    const std::string sql = std::string(kTokenColumns) + "WHERE id = ?";
    FLUVIAL_TRY(database_->query(sql.c_str(), {id}, [&](const SqlRow& row) -> Status {
      FLUVIAL_ASSIGN(token, token_from(row));
      return {};
    }));
    if (!token) return Error{Code::kNotFound, "there is no token '" + id + "'"};
    if (token->revoked_at) return {};
    if (token->uses >= token->uses_max) {
      return Error{Code::kFailedPrecondition,
                   "token " + id + " was used at " + used_at(*token) + ": nothing of it is left to revoke"};
    }
    return database_->run("UPDATE tokens SET revoked_at = ? WHERE id = ?", {now, id});
  });
}

Result<std::optional<TokenRow>> CoordinatorJournal::find_token(const Digest& secret_hash) {
  const std::lock_guard lock(mutex_);
  return token_by_hash(*database_, secret_hash);
}

Result<std::vector<TokenRow>> CoordinatorJournal::tokens() {
  const std::lock_guard lock(mutex_);
  std::vector<TokenRow> found;
  const std::string sql = std::string(kTokenColumns) + "ORDER BY expires_at, id";
  FLUVIAL_TRY(database_->query(sql.c_str(), {}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(TokenRow token, token_from(row));
    found.push_back(std::move(token));
    return {};
  }));
  return found;
}

Result<NodeRow> CoordinatorJournal::redeem_token(const Digest& secret_hash, NodeRow node, WallTime now,
                                                 const NewCertificate& certificate) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_TRY(change([&]() -> Status {
    FLUVIAL_ASSIGN(const std::optional<TokenRow> token, token_by_hash(*database_, secret_hash));
    FLUVIAL_TRY(check_token(token, node, now));
    FLUVIAL_ASSIGN(const NodeId id, reserve(*database_, node.role, node.name));
    if (node.id != NodeId() && node.id != id) {
      return Error{Code::kFailedPrecondition, "'" + node.name + "' is node " + std::to_string(id.value()) + ", not " +
                                                  std::to_string(node.id.value())};
    }
    node.id = id;
    node.revoked_at.reset();
    FLUVIAL_TRY(use_token(*database_, *token, node, now));
    FLUVIAL_TRY(issue_certificate(*database_, node, certificate));
    FLUVIAL_TRY(database_->run("DELETE FROM signers WHERE site = ?", {id}));  // by a person's token it begins anew
    FLUVIAL_TRY(database_->run("DELETE FROM relays WHERE node = ?", {id}));
    FLUVIAL_TRY(bump_denials(*database_));
    // The earlier holder of the lease knows its epoch, so the node is nobody's child until the next grant.
    FLUVIAL_TRY(database_->run("UPDATE leases SET parent = node WHERE node = ?", {id}));
    FLUVIAL_TRY(database_->run(
        "INSERT INTO nodes (id, role, name, region, weight_max, certificate_serial, enrolled_at, advertise, access) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO UPDATE SET region = excluded.region, weight_max = "
        "excluded.weight_max, certificate_serial = excluded.certificate_serial, enrolled_at = excluded.enrolled_at, "
        "advertise = excluded.advertise, access = excluded.access, revoked_at = NULL, removed_at = NULL",
        {node.id, role_name(node.role), node.name, node.region, node.weight_max, node.certificate_serial,
         node.enrolled_at, node.advertise, node.access}));
    FLUVIAL_ASSIGN(const std::optional<NodeRow> stands, node_by_id(*database_, node.id));
    node = stands.value();  // a quarantine stays
    return {};
  }));
  return node;
}

Result<std::uint64_t> CoordinatorJournal::enrolments(const std::string& name) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const auto count, database_->scalar("SELECT enrolments FROM names WHERE name = ?", {name}));
  return static_cast<std::uint64_t>(count.value_or(0));
}

Result<NodeId> CoordinatorJournal::reserve_node_id(Role role, const std::string& name) {
  const std::lock_guard lock(mutex_);
  NodeId id;
  FLUVIAL_TRY(change([&]() -> Status {
    FLUVIAL_ASSIGN(id, reserve(*database_, role, name));
    return {};
  }));
  return id;
}

Status CoordinatorJournal::set_advertise(NodeId node, const std::string& address) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_TRY(database_->run("UPDATE nodes SET advertise = ? WHERE id = ?", {address, node}));
    return database_->changes() == 1 ? Status() : no_such_node(node);
  });
}

Status CoordinatorJournal::set_certificate_serial(NodeId node, const std::string& serial) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_TRY(database_->run("UPDATE nodes SET certificate_serial = ? WHERE id = ?", {serial, node}));
    return database_->changes() == 1 ? Status() : no_such_node(node);
  });
}

Status CoordinatorJournal::revoke(NodeId node, WallTime now) {
  const std::lock_guard lock(mutex_);
  return change([&] { return shut_out(*database_, node, kRefusedRevoked, now); });
}

Status CoordinatorJournal::remove(NodeId node, WallTime now) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_TRY(shut_out(*database_, node, kRefusedRemoved, now));
    return database_->run("UPDATE nodes SET removed_at = ? WHERE id = ?", {now, node});
  });
}

Status CoordinatorJournal::quarantine(SiteId site, WallTime now, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_ASSIGN(const std::optional<NodeRow> known, node_by_id(*database_, site));
    if (!known) return no_such_node(site);
    if (known->quarantined_at) return {};
    return database_->run("UPDATE nodes SET quarantined_at = ?, quarantine_reason = ? WHERE id = ?",
                          {now, reason, site});
  });
}

Status CoordinatorJournal::clear_quarantine(SiteId site) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_TRY(database_->run("UPDATE nodes SET quarantined_at = NULL, quarantine_reason = '' WHERE id = ?", {site}));
    return database_->changes() == 1 ? Status() : no_such_node(site);
  });
}

Result<std::vector<NodeRow>> CoordinatorJournal::nodes() {
  const std::lock_guard lock(mutex_);
  std::vector<NodeRow> found;
  const std::string sql = std::string(kNodeColumns) + "ORDER BY id";
  FLUVIAL_TRY(database_->query(sql.c_str(), {}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(NodeRow node, node_from(row));
    found.push_back(std::move(node));
    return {};
  }));
  return found;
}

Result<std::optional<NodeRow>> CoordinatorJournal::node(NodeId id) {
  const std::lock_guard lock(mutex_);
  return node_by_id(*database_, id);
}

Result<std::optional<NodeRow>> CoordinatorJournal::node_named(const std::string& name) {
  const std::lock_guard lock(mutex_);
  return node_where(*database_, "WHERE name = ?", name);
}

Result<LeaseRow> CoordinatorJournal::grant(NodeId node, NodeId parent, bool passes_on) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const std::optional<LeaseRow> held, lease_of(*database_, node));
  FLUVIAL_ASSIGN(const auto known_relay, database_->scalar("SELECT node FROM relays WHERE node = ?", {node}));
  const bool same = held && held->parent == parent;
  const bool new_relay = passes_on && !known_relay;
  if (same && !new_relay) return *held;
  LeaseRow lease;
  FLUVIAL_TRY(change([&]() -> Status {
    FLUVIAL_ASSIGN(const std::optional<NodeRow> known, node_by_id(*database_, node));
    if (!known) return no_such_node(node);
    if (new_relay) FLUVIAL_TRY(database_->run("INSERT INTO relays VALUES (?)", {node}));
    if (same) {
      lease = *held;
      return {};
    }
    FLUVIAL_ASSIGN(lease, write_lease(*database_, node, parent));
    return {};
  }));
  return lease;
}

Result<LeaseRow> CoordinatorJournal::renew(NodeId node) {
  const std::lock_guard lock(mutex_);
  LeaseRow lease;
  FLUVIAL_TRY(change([&]() -> Status {
    FLUVIAL_ASSIGN(const std::optional<LeaseRow> held, lease_of(*database_, node));
    if (!held) return Error{Code::kNotFound, "node " + std::to_string(node.value()) + " has no lease"};
    FLUVIAL_ASSIGN(lease, write_lease(*database_, node, held->parent));
    return {};
  }));
  return lease;
}

Result<std::set<NodeId>> CoordinatorJournal::relays() {
  const std::lock_guard lock(mutex_);
  std::set<NodeId> found;
  FLUVIAL_TRY(database_->query("SELECT node FROM relays ORDER BY node", {}, [&](const SqlRow& row) -> Status {
    found.insert(found.end(), row.id<NodeId>(0));
    return {};
  }));
  return found;
}

Result<std::vector<LeaseRow>> CoordinatorJournal::leases() {
  constexpr const char* kLeases = "SELECT node, parent, epoch FROM leases ORDER BY node";
  const std::lock_guard lock(mutex_);
  std::vector<LeaseRow> found;
  FLUVIAL_TRY(database_->query(kLeases, {}, [&](const SqlRow& row) -> Status {
    found.push_back({row.id<NodeId>(0), row.id<NodeId>(1), row.id<Epoch>(2)});
    return {};
  }));
  return found;
}

}  // namespace fluvial::store
