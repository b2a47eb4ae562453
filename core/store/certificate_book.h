// The certificates of the members, as the coordinator's journal keeps them: every one that was issued, the key that it
// is of, when it was first used, and since when and why it is refused.
//
// A certificate that was revoked, removed with its member or superseded is refused for ever. So is the key of one that
// was revoked or removed: whoever enrols anew with the name needs another. A certificate is superseded when a later one
// of its member, of another key, is first used. One of the same key supersedes nothing: its holder is the same, and its
// sessions outlast a renewal. An ended one is forgotten a month later, unless its key is refused.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
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
  std::string renews = {};                // the serial of the one that it was issued for; empty: by a token
  std::vector<std::byte> authority = {};  // the SHA-256 of its issuer's public key; empty: the federation's first one
  bool refuses_key() const { return refused_why == kRefusedRevoked || refused_why == kRefusedRemoved; }
  bool operator==(const CertificateRow&) const = default;
};

// A certificate as its holder shows it.
struct CertificateShown {
  std::string serial;
  NodeId node;
  ByteSpan key;  // a DER SubjectPublicKeyInfo
  WallTime ends_at;
  WallTime issued_at = {};  // the epoch: not known
  // A restore may have lost its record: then it is adopted if it is later than what the journal has of the member.
  bool adopt = false;
};
struct CertificateSeen {
  bool refuses_more = false;  // somebody is refused from now on who was not before
  bool adopted = false;       // it is of another key than the journal had
  bool operator==(const CertificateSeen&) const = default;
};

// A certificate that a member gets in place of one that it has, for the same key.
struct RenewedCertificate {
  std::string serial;
  NodeId node;
  ByteSpan key;  // a DER SubjectPublicKeyInfo
  WallTime issued_at;
  WallTime ends_at;
  std::string renews;       // a serial
  ByteSpan authority = {};  // as CertificateRow's
};

// Who is refused, in other words than this journal's rows.
struct Refusals {
  std::set<NodeId> nodes;
  std::set<Digest> keys;
  std::set<std::string> serials;
};

// A facet of the journal: thread safe and blocking as that is, each change one durable transaction. What is issued and
// refused is written by redeem_token(), revoke() and remove() in their own transactions.
class CertificateBook {
 public:
  explicit CertificateBook(CoordinatorJournal& journal) : journal_(journal) {}

  // Its holder came with it. The first time of one of a member's current key, the member's certificates of other keys
  // are superseded. Writes nothing for one that was seen.
  Result<CertificateSeen> saw(const CertificateShown& shown, WallTime now);

  // Before the certificate leaves; again with the same serial changes nothing. kUnauthenticated when the member was
  // revoked, or has another key by now.
  Status renewed(const RenewedCertificate& issued, WallTime now);

  // After a restore: what the history before it refused, as somebody still knows. Keys and serials for good; members
  // who have not enrolled since `before`. Whether anybody is refused from now on who was not before.
  Result<bool> take_over(const Refusals& earlier, WallTime before, WallTime now);
  Result<Refusals> taken_over();   // keys and serials
  Result<WallTime> restored_at();  // the last time; the epoch: never

  Result<std::optional<CertificateRow>> find(const std::string& serial);
  Result<std::vector<CertificateRow>> of_key(ByteSpan key);  // a key may be certified more than once
  // The member's newest certificate, and so its key. None: no such member, or it enrolled before format 7 and was not
  // seen since.
  Result<std::optional<CertificateRow>> current_of(NodeId node);
  Result<std::vector<CertificateRow>> of_member(NodeId node);  // the oldest first
  Result<std::vector<CertificateRow>> current();               // of all members, where their keys are known
  Result<std::vector<CertificateRow>> all();                   // by member, the oldest first
  Result<std::vector<CertificateRow>> refused(WallTime now);   // that have not ended: by member, the oldest first
  // Grows whenever somebody is refused from then on, or no longer: orders what is told of refused().
  Result<std::uint64_t> denials_number();

 private:
  CoordinatorJournal& journal_;
};

}  // namespace fluvial::store
