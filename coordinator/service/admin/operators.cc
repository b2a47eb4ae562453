// The people at the admin API over the network: who they are, who asks, and their certificates.
#include <boost/asio/awaitable.hpp>
#include <boost/json.hpp>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/json.h"
#include "core/identity/csr.h"

namespace fluvial::coordinator::admin {
namespace {

namespace json = boost::json;

constexpr double kRenewalsPerSecond = 1.0 / 3'600;  // one is due every two weeks
constexpr double kRenewalsAtOnce = 8;               // answers are lost

json::object operator_object(const OperatorEntry& entry) {
  return {{"id", entry.node.value()},
          {"name", entry.name},
          {"access", access_name(entry.access)},
          {"enrolled_at", utc(entry.enrolled_at)},
          {"certificate_ends_at", entry.certificate_ends_at ? json::value(utc(*entry.certificate_ends_at)) : nullptr},
          {"last_seen_at", entry.seen_at ? json::value(utc(*entry.seen_at)) : nullptr},
          {"revoked", entry.revoked_at.has_value()},
          {"removed", entry.removed_at.has_value()}};
}

net::Awaitable<Reply> list_operators(Context* admin, Call call) {
  const bool all = call.request.query.contains("all");
  json::array operators;
  for (const auto& [node, entry] : admin->root.registry().operators().all()) {
    if (!entry.removed_at || all) operators.push_back(operator_object(entry));
  }
  co_return json::serialize(json::object{{"operators", std::move(operators)}});
}

net::Awaitable<Reply> self(Context*, Call call) {
  json::object object{{"access", access_name(call.caller.access)}, {"from", call.caller.from}};
  if (call.caller.person) {
    object["operator"] = call.caller.person->name;
    object["certificate_ends_at"] = utc(call.caller.person->not_after);
  } else if (call.caller.user) {
    object["uid"] = call.caller.user->uid;
  }
  co_return json::serialize(object);
}

// Of the very key that the caller has shown in TLS: whoever else asks in its name gets nothing that is of use.
net::Awaitable<Reply> renew(Context* admin, Call call) {
  const std::optional<identity::PeerIdentity>& who = call.caller.person;
  if (!who || !admin->renew) {
    co_return Error{Code::kFailedPrecondition, "an operator renews its certificate over the network, with it"};
  }
  const ByteSpan csr = as_byte_span(call.request.body);
  if (csr.size() > identity::kCsrBytesMax) co_return Error{Code::kInvalidArgument, "not a certificate request"};
  const TimePoint begin = admin->runtime.clock.now();
  net::Pace& pace = admin->renewals.try_emplace(who->node, kRenewalsPerSecond, kRenewalsAtOnce, begin).first->second;
  if (pace.try_take(begin) > Duration::zero()) {
    co_return Error{Code::kResourceExhausted, "renewed too often: use the certificate that you were given last"};
  }
  const WallTime now = admin->runtime.clock.wall_now();
  Result<Renewal> made = co_await admin->runtime.pool.run([&] { return admin->renew(*who, csr, now); });
  if (!made.ok()) co_return made.error();
  const identity::Certificate& certificate = made->chain.front();
  if (!(certificate.public_key() == who->key)) {
    co_return Error{Code::kPermissionDenied, "a renewal is of the key that the certificate is of"};
  }
  const Status kept = co_await admin->root.registry().renewed_operator(*who, certificate, made->authority,
                                                                       call.entry(store::AuditKind::kRenewed));
  if (!kept.ok()) co_return kept.error();
  admin->runtime.log.info("operator's certificate renewed",
                          {{"operator", who->name}, {"serial", certificate.serial_hex()}});
  co_return json::serialize(json::object{{"certificate_pem", identity::Certificate::pem_of(made->chain)},
                                         {"ca_pem", made->ca_pem},
                                         {"trust", made->trust},
                                         {"ends_at", utc(certificate.not_after())}});
}

}  // namespace

void add_operators(Router& router) {
  router.get("/v1/operators", list_operators);
  router.get("/v1/self", self);
  router.post_own("/v1/renew", renew);
}

}  // namespace fluvial::coordinator::admin
