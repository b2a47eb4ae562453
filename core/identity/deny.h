// The deny list: certificates and members that are shut out before their certificates expire.
#pragma once

#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/identity/certificate.h"

namespace fluvial::identity {

struct DenyEntries {
  std::set<std::string> serials_hex;  // one certificate, as Certificate::serial_hex() writes it
  std::set<NodeId> nodes;             // a member, whatever certificate it shows
};

// Consulted at accept and again each round. Thread safe: replace() swaps the whole list, check() reads one version.
class DenyList {
 public:
  void replace(DenyEntries entries);
  Status check(const PeerIdentity& peer) const;  // kPermissionDenied, naming what is denied

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const DenyEntries> entries_ = std::make_shared<const DenyEntries>();
};

}  // namespace fluvial::identity
