// The deny list: members and certificates that are shut out before they expire.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/identity/certificate.h"

namespace fluvial::identity {

struct DenyEntries {
  std::set<NodeId> nodes;  // a member, whatever certificate it shows
  // The one certificate that a member may show, as Certificate::serial_hex() writes it: certificates that a later
  // enrolment replaced are refused. A member without an entry may show any certificate.
  std::map<NodeId, std::string> serials_hex;
  std::set<Digest> keys = {};                  // PublicKey::id(): nobody may show one of these, under whatever name
  std::set<std::string> refused_serials = {};  // as serials_hex; of certificates that nobody may show any more
  // The same where the member's key is known: it may show any certificate of that key. This goes before serials_hex.
  struct Current {
    Digest key{};  // PublicKey::id()
    WallTime issued;
    bool operator==(const Current&) const = default;
  };
  std::map<NodeId, Current> current = {};
  bool adopts_newer = false;  // after a restore: one of another key that was issued later passes, too
  bool operator==(const DenyEntries&) const = default;
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
