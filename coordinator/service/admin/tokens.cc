// Invitations.
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/json.h"
#include "core/identity/token.h"
#include "core/store/audit_log.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

// What a token is still good for, in a word.
std::string_view token_state(const store::TokenRow& token, WallTime now) {
  if (token.revoked_at) return "revoked";
  if (token.uses >= token.uses_max) return "used";
  return now >= token.expires_at ? "expired" : "valid";
}

// What an operator may do, read when nothing is said; nothing of anybody else.
Result<std::string> access_given(Role role, const std::string& text) {
  if (role != Role::kOperator) {
    if (text.empty()) return std::string();
    return Error{Code::kInvalidArgument, "access: expected of a token for an operator alone"};
  }
  FLUVIAL_ASSIGN(const Access access, access_from_name(text.empty() ? "read" : text));
  return std::string(access_name(access));
}

net::Awaitable<Reply> create_token(Context* admin, Call call) {
  Result<json::object> object = parse_object(call.request.body);
  if (!object.ok()) co_return object.error();
  const Result<std::string> role_text = text_of(*object, "role", "site");
  const Result<std::string> name = text_of(*object, "name", "");
  const Result<std::string> region = text_of(*object, "region", "");
  const Result<std::uint64_t> weight_max = number_of(*object, "weight_max", 1'000'000);
  const Result<std::uint64_t> ttl_s = number_of(*object, "ttl_s", admin->facts.token_ttl_s);
  const Result<std::uint64_t> uses = number_of(*object, "uses", 1);
  const Result<std::string> access = text_of(*object, "access", "");
  for (const Error* error : {role_text.ok() ? nullptr : &role_text.error(), name.ok() ? nullptr : &name.error(),
                             region.ok() ? nullptr : &region.error(), weight_max.ok() ? nullptr : &weight_max.error(),
                             ttl_s.ok() ? nullptr : &ttl_s.error(), uses.ok() ? nullptr : &uses.error(),
                             access.ok() ? nullptr : &access.error()}) {
    if (error != nullptr) co_return *error;
  }
  const Result<Role> role = identity::role_from_name(*role_text);
  if (!role.ok()) co_return role.error();
  const Result<std::string> given = access_given(*role, *access);
  if (!given.ok()) co_return given.error();
  if (*weight_max == 0 || *weight_max >= round::kWeightLimit) {
    co_return Error{Code::kInvalidArgument, "weight_max = " + std::to_string(*weight_max) + ": expected 1 to 2^29 - 1"};
  }
  if (*ttl_s == 0 || *ttl_s > 365 * 86'400ULL) {
    co_return Error{Code::kInvalidArgument, "ttl_s = " + std::to_string(*ttl_s) + ": expected 1 second to a year"};
  }
  const WallTime expires = admin->runtime.clock.wall_now() + std::chrono::seconds(*ttl_s);
  const Result<identity::NewToken> made = identity::make_token(
      {*role, *name, *region, static_cast<std::uint32_t>(*weight_max), expires, admin->facts.enrol_address, *uses},
      admin->facts.pin);
  if (!made.ok()) co_return made.error();
  const identity::TokenRecord& record = made->record;
  store::TokenRow row{record.id,      record.secret_hash, record.role, record.name,
                      record.region,  record.weight_max,  expires,     {},
                      record.uses_max};
  row.access = *given;
  store::AuditEntry entry = call.entry(store::AuditKind::kTokenMade);
  entry.token = row.id;
  entry.role = row.role;
  entry.member = row.name;
  if (!row.access.empty()) entry.detail = "access " + row.access;
  if (row.uses_max > 1) entry.detail = "for " + std::to_string(row.uses_max) + " members";
  const WallTime when = admin->runtime.clock.wall_now();
  const Status kept = co_await admin->runtime.pool.run(
      [&] { return store::AuditLog(admin->journal).with(entry, when, [&] { return admin->journal.add_token(row); }); });
  if (!kept.ok()) co_return kept.error();
  admin->runtime.log.info(
      "token created",
      {{"token", row.id}, {"member_role", role_name(row.role)}, {"member", row.name}, {"uses", row.uses_max}});
  co_return json::serialize(
      json::object{{"token", made->token.to_text()}, {"id", row.id}, {"name", row.name}, {"expires_at", utc(expires)}});
}

net::Awaitable<Reply> list_tokens(Context* admin, Call) {
  const Result<std::vector<store::TokenRow>> rows =
      co_await admin->runtime.pool.run([&] { return admin->journal.tokens(); });
  if (!rows.ok()) co_return rows.error();
  json::array tokens;
  const WallTime now = admin->runtime.clock.wall_now();
  for (const store::TokenRow& row : *rows) {
    json::object token{{"id", row.id},          {"role", role_name(row.role)},
                       {"name", row.name},      {"region", row.region},
                       {"access", row.access},  {"state", token_state(row, now)},
                       {"uses", row.uses},      {"uses_max", row.uses_max},
                       {"used_at", nullptr},    {"expires_at", utc(row.expires_at)},
                       {"revoked_at", nullptr}, {"revoked_why", row.revoked_why}};
    if (row.used_at) token["used_at"] = utc(*row.used_at);
    if (row.revoked_at) token["revoked_at"] = utc(*row.revoked_at);
    tokens.push_back(std::move(token));
  }
  co_return json::serialize(json::object{{"tokens", std::move(tokens)}});
}

net::Awaitable<Reply> revoke_token(Context* admin, Call call) {
  const std::string& id = call.names[0];
  const WallTime when = admin->runtime.clock.wall_now();
  store::AuditEntry entry = call.entry(store::AuditKind::kTokenRevoked);
  entry.token = id;
  const Status kept = co_await admin->runtime.pool.run([&] {
    return store::AuditLog(admin->journal).with(entry, when, [&] { return admin->journal.revoke_token(id, when); });
  });
  if (!kept.ok()) co_return kept.error();
  admin->runtime.log.info("token revoked", {{"token", id}});
  co_return json::serialize(json::object{{"revoked", id}});
}

}  // namespace

void add_tokens(Router& router) {
  router.get("/v1/tokens", list_tokens);
  router.post("/v1/tokens", create_token);
  router.post("/v1/tokens/{id}/revoke", revoke_token);
}

}  // namespace fluvial::coordinator::admin
