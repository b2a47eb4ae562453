// X.509 certificates, the pin of an authority, and the identity that a member's certificate states.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/identity/names.h"
#include "core/identity/signature.h"

struct x509_st;
struct ssl_st;

namespace fluvial::identity {

inline constexpr int kIntermediatesMax = 3;  // between a member's certificate and an authority
inline constexpr std::size_t kChainMax = 1 + kIntermediatesMax;
inline constexpr std::size_t kAuthoritiesMax = 8;  // trusted at the same time
inline constexpr std::string_view kPinPrefix = "sha256:";

// A handle on an immutable certificate; copies share it. Thread safe.
class Certificate {
 public:
  static Result<Certificate> from_der(ByteSpan der);                             // kDataLoss; at most 16 KiB
  static Result<std::vector<Certificate>> chain_from_pem(std::string_view pem);  // leaf first, 1 to 4
  static Result<std::vector<Certificate>> load_chain(const std::string& path);
  static Result<std::vector<Certificate>> authorities_from_pem(std::string_view pem);  // 1 to kAuthoritiesMax
  static Result<std::vector<Certificate>> load_authorities(const std::string& path);
  static Status save_chain(const std::vector<Certificate>& chain, const std::string& path);  // mode 0644, atomic

  Buffer der() const;
  std::string pem() const;
  static std::string pem_of(const std::vector<Certificate>& certificates);  // one after the other
  PublicKey public_key() const;
  std::string serial_hex() const;  // lower case, no leading zeros but for "0"
  WallTime not_before() const;
  WallTime not_after() const;

  x509_st* native() const { return certificate_.get(); }
  explicit Certificate(std::shared_ptr<x509_st> certificate) : certificate_(std::move(certificate)) {}

 private:
  std::shared_ptr<x509_st> certificate_;
};

// "sha256:" and 64 hex digits: SHA-256 over the DER SubjectPublicKeyInfo. It survives a renewed CA certificate.
std::string pin_of(const Certificate& authority);
Status check_pin(std::string_view pin);  // is it in that form?

// Who a peer is, as its verified certificate says.
struct PeerIdentity {
  Role role = Role::kSite;
  NodeId node;
  std::string name;
  std::string serial_hex;
  WallTime not_after;
  PublicKey key = {};
  WallTime issued = {};  // as authority.h backdates; the epoch: not known
  bool operator==(const PeerIdentity&) const = default;
};
std::string describe(const PeerIdentity& peer);  // "site 7 (hospital-a)"

// Reads the identity strictly: exactly one fluvial URI, an extended key usage, no authority. Verifies no signature.
Result<PeerIdentity> identity_of(const Certificate& certificate);

// The identity of the other side of a finished handshake. kUnauthenticated when the handshake is not finished, the
// peer showed no certificate or its chain did not verify, or the application protocol is not the context's own.
Result<PeerIdentity> peer_identity(ssl_st* ssl);

// kPermissionDenied unless the peer's certificate is for that role.
Status may_speak_as(const PeerIdentity& peer, Role expected);

}  // namespace fluvial::identity
