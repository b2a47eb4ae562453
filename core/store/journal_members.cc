// Members: nodes and their leases.
#include "core/store/journal_members.h"

#include <utility>

#include "core/store/certificate_rows.h"
#include "core/store/journal.h"

namespace fluvial::store {
namespace {

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

Result<std::optional<NodeRow>> node_where(Database& database, const char* condition, SqlValue value) {
  std::optional<NodeRow> found;
  const std::string sql = std::string(kNodeColumns) + condition;
  FLUVIAL_TRY(database.query(sql.c_str(), {value}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(found, node_from(row));
    return {};
  }));
  return found;
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

Result<Role> role_from_name(std::string_view name) {
  for (const Role role : {Role::kCoordinator, Role::kAggregator, Role::kSite, Role::kOperator}) {
    if (role_name(role) == name) return role;
  }
  return Error{Code::kDataLoss, "the journal holds an unknown role"};
}

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
