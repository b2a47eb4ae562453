#include "core/identity/deny.h"

#include <utility>

namespace fluvial::identity {

namespace {

bool is_current(const DenyEntries& entries, const PeerIdentity& peer) {
  if (const auto current = entries.current.find(peer.node); current != entries.current.end()) {
    return current->second.key == peer.key.id() ||
           (entries.adopts_newer && peer.issued >= std::chrono::floor<std::chrono::seconds>(current->second.issued));
  }
  const auto serial = entries.serials_hex.find(peer.node);
  return serial == entries.serials_hex.end() || serial->second == peer.serial_hex;
}

}  // namespace

void DenyList::replace(DenyEntries entries) {
  auto next = std::make_shared<const DenyEntries>(std::move(entries));
  const std::scoped_lock lock(mutex_);
  entries_.swap(next);
}

Status DenyList::check(const PeerIdentity& peer) const {
  const auto entries = [this] {
    const std::scoped_lock lock(mutex_);
    return entries_;
  }();
  if (entries->nodes.contains(peer.node)) {
    return Error{Code::kPermissionDenied, describe(peer) + " is on the deny list"};
  }
  if (entries->keys.contains(peer.key.id()) || entries->refused_serials.contains(peer.serial_hex)) {
    return Error{Code::kPermissionDenied,
                 "certificate " + peer.serial_hex + " of " + describe(peer) +
                     " is on the deny list: it was revoked, or the member has enrolled anew since"};
  }
  if (is_current(*entries, peer)) return {};
  return Error{Code::kPermissionDenied, "certificate " + peer.serial_hex + " of " + describe(peer) +
                                            " is on the deny list: the member has enrolled anew since"};
}

}  // namespace fluvial::identity
