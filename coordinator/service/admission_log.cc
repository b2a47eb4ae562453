#include "coordinator/service/admission_log.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/net/address.h"
#include "core/store/audit_log.h"

namespace fluvial::coordinator {
namespace {

// Not for people: addresses that are told apart differ in it.
std::string network_of(const std::string& remote) {
  const net::AddressKey key = net::address_key(remote);
  return (key.is_v6 ? "6/" : "4/") + std::to_string(key.bits);
}

store::AuditEntry entry_of(store::AuditKind kind, const identity::PeerIdentity& peer, std::string remote) {
  store::AuditEntry entry{.kind = kind,
                          .by = store::AuditBy::kMember,
                          .from = std::move(remote),
                          .member = peer.name,
                          .node = peer.node,
                          .role = peer.role,
                          .serial = peer.serial_hex};
  if (peer.role == Role::kOperator) {
    entry.by = store::AuditBy::kOperator;
    entry.person = {peer.name, peer.node, peer.serial_hex};
  }
  return entry;
}

}  // namespace

net::Awaitable<Status> AdmissionLog::admitted(identity::PeerIdentity peer, std::uint64_t process, std::string remote) {
  const Admissions::Came came{peer.key ? peer.key.id() : Digest{}, process, network_of(remote)};
  std::optional<std::string> news = admissions_.admitted(peer.node, came, runtime_.clock.now());
  if (!news) co_return Status{};
  store::AuditEntry entry = entry_of(store::AuditKind::kAdmitted, peer, std::move(remote));
  entry.detail = std::move(*news);
  const Status kept = co_await write(std::move(entry));
  if (kept.ok()) co_return kept;
  admissions_.forget(peer.node);
  co_return Error{kept.error().code, "not admitted, the audit log does not take it: " + kept.error().message};
}

net::Awaitable<void> AdmissionLog::held_twice(identity::PeerIdentity peer, std::string remote) {
  const Status kept = co_await write(entry_of(store::AuditKind::kHeldTwice, peer, std::move(remote)));
  if (kept.ok()) co_return;
  runtime_.log.error(
      "the audit log does not say that two machines show the identity of a member; the older one is turned away all "
      "the same",
      {{"member", peer.name}, {"reason", kept.error().to_string()}});
}

net::Awaitable<Status> AdmissionLog::write(store::AuditEntry entry) {
  const WallTime when = runtime_.clock.wall_now();
  co_return co_await runtime_.pool.run([&] { return store::AuditLog(journal_).append(entry, when); });
}

}  // namespace fluvial::coordinator
