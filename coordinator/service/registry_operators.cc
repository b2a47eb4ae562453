// The people at the admin API: who is admitted, and what the journal remembers of their certificates.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "coordinator/service/registry.h"
#include "core/store/audit_log.h"

namespace fluvial::coordinator {

net::Awaitable<Result<Access>> Registry::admit_operator(identity::PeerIdentity peer) {
  FLUVIAL_CO_TRY(identity::may_speak_as(peer, Role::kOperator));
  FLUVIAL_CO_TRY(deny_->check(peer));
  FLUVIAL_CO_ASSIGN(const Access access, operators_.access_of(peer.node, peer.name));
  const WallTime when = runtime_.clock.wall_now();
  operators_.seen(peer.node, peer.serial_hex, peer.not_after, when);
  if (operators_seen_.contains(peer.serial_hex)) co_return access;
  const Buffer key = peer.key.der();
  const Result<store::CertificateSeen> seen = co_await runtime_.pool.run([&] {
    return store::CertificateBook(journal_).saw({peer.serial_hex, peer.node, key.span(), peer.not_after}, when);
  });
  if (!seen.ok()) co_return seen.error();
  operators_seen_.insert(peer.serial_hex);
  if (seen->refuses_more) co_await refresh_refused();
  FLUVIAL_CO_TRY(deny_->check(peer));  // it may have been revoked meanwhile
  co_return access;
}

net::Awaitable<Status> Registry::renewed_operator(identity::PeerIdentity peer, identity::Certificate issued,
                                                  Digest authority, store::AuditEntry by) {
  const WallTime when = runtime_.clock.wall_now();
  const Buffer key = issued.public_key().der();
  by.member = peer.name;
  by.node = peer.node;
  by.role = Role::kOperator;
  by.serial = issued.serial_hex();
  const store::RenewedCertificate row{.serial = by.serial,
                                      .node = peer.node,
                                      .key = key.span(),
                                      .issued_at = when,
                                      .ends_at = issued.not_after(),
                                      .renews = peer.serial_hex,
                                      .authority = authority};
  const Status kept = co_await runtime_.pool.run([&] {
    return store::AuditLog(journal_).with(by, when,
                                          [&] { return store::CertificateBook(journal_).renewed(row, when); });
  });
  if (kept.ok()) operators_.renewed(peer.node, by.serial, row.ends_at);
  co_return kept;
}

}  // namespace fluvial::coordinator
