// Tokens, and what becomes of one: a member.
#include <fmt/chrono.h>

#include <utility>

#include "core/store/certificate_rows.h"
#include "core/store/journal.h"
#include "core/store/journal_members.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

std::string format_time(WallTime time) {
  return fmt::format("{:%Y-%m-%d %H:%M:%S} UTC", std::chrono::floor<std::chrono::seconds>(time));
}

// A journal that is damaged may not say it.
std::string used_at(const TokenRow& token) { return token.used_at ? format_time(*token.used_at) : "an unknown time"; }

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

Result<std::optional<TokenRow>> token_by_hash(Database& database, const Digest& hash) {
  std::optional<TokenRow> found;
  const std::string sql = std::string(kTokenColumns) + "WHERE secret_hash = ?";
  FLUVIAL_TRY(database.query(sql.c_str(), {hash}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(found, token_from(row));
    return {};
  }));
  return found;
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

}  // namespace

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

}  // namespace fluvial::store
