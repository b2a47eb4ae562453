#include "core/identity/deny.h"

#include <utility>

namespace fluvial::identity {

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
  const auto current = entries->serials_hex.find(peer.node);
  if (current != entries->serials_hex.end() && current->second != peer.serial_hex) {
    return Error{Code::kPermissionDenied, "certificate " + peer.serial_hex + " of " + describe(peer) +
                                              " is on the deny list: the member has enrolled anew since"};
  }
  return {};
}

}  // namespace fluvial::identity
