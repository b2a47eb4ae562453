// The certificates of the members, as the coordinator's journal keeps them: every one that was issued, the key that it
// is of, when it was first used, and since when and why it is refused.
//
// A certificate that was revoked, removed with its member or superseded is refused for ever. So is the key of one that
// was revoked or removed: whoever enrols anew with the name needs another. A certificate is superseded when a later one
// of its member is first used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::store {

class CoordinatorJournal;

// Why a certificate is refused (CertificateRow::refused_why).
inline constexpr const char* kRefusedRevoked = "revoked";
inline constexpr const char* kRefusedRemoved = "removed";
inline constexpr const char* kRefusedSuperseded = "superseded";

struct CertificateRow {
  std::string serial;  // as Certificate::serial_hex() writes it
  NodeId node;
  std::vector<std::byte> key;  // a DER SubjectPublicKeyInfo; empty: it enrolled before format 7 and was not seen since
  WallTime issued_at;
  WallTime ends_at;
  std::optional<WallTime> used_at;        // first, by its holder: when it came for a lease
  std::optional<WallTime> refused_since;  // none: it is good
  std::string refused_why;
  bool refuses_key() const { return refused_why == kRefusedRevoked || refused_why == kRefusedRemoved; }
  bool operator==(const CertificateRow&) const = default;
};

// A certificate as its holder shows it.
struct CertificateShown {
  std::string serial;
  NodeId node;
  ByteSpan key;  // a DER SubjectPublicKeyInfo
  WallTime ends_at;
};

// A facet of the journal: thread safe and blocking as that is, each change one durable transaction. What is issued and
// refused is written by redeem_token(), revoke() and remove() in their own transactions.
class CertificateBook {
 public:
  explicit CertificateBook(CoordinatorJournal& journal) : journal_(journal) {}

  // Its holder came with it. The first time of a member's current one, the member's others are superseded. Returns
  // whether anything is refused from now on that was not before. Writes nothing for one that was seen.
  Result<bool> saw(const CertificateShown& shown, WallTime now);

  Result<std::optional<CertificateRow>> find(const std::string& serial);
  Result<std::vector<CertificateRow>> of_key(ByteSpan key);  // a key may be certified more than once
  // The member's newest certificate, and so its key. None: no such member, or it enrolled before format 7 and was not
  // seen since.
  Result<std::optional<CertificateRow>> current_of(NodeId node);
  Result<std::vector<CertificateRow>> all();                  // by member, the oldest first
  Result<std::vector<CertificateRow>> refused(WallTime now);  // that have not ended: by member, the oldest first
  // Grows whenever somebody is refused from then on, or no longer: orders what is told of refused().
  Result<std::uint64_t> denials_number();

 private:
  CoordinatorJournal& journal_;
};

}  // namespace fluvial::store
