// The federation's certificate authority, kept by the coordinator.
#pragma once

#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/identity/certificate.h"
#include "core/identity/key.h"

namespace fluvial::identity {

inline constexpr std::chrono::hours kMemberValidity = std::chrono::days(90);
inline constexpr std::chrono::hours kAuthorityValidity = std::chrono::days(20 * 365);
inline constexpr std::chrono::hours kBackdated{24};  // of notBefore: a peer's clock may be behind by this much

using Serial = std::array<std::byte, 16>;  // to_hex() of it is Certificate::serial_hex()

// What a new certificate says. Everything comes from our own records, nothing from the request.
struct Grant {
  Member member;
  std::chrono::seconds validity = kMemberValidity;
  std::vector<std::string> dns_names;     // optional, servers only; members verify each other by role, not by host
  std::vector<std::string> ip_addresses;  // optional, servers only
  std::optional<Serial> serial = {};      // as serial_of() makes it; none: a random one
};

// Immutable after it is made; thread safe. No certificate that it issues outlives its own.
class CertificateAuthority {
 public:
  // Opens `folder`/ca-key.pem and ca.pem, or makes them on first start (and the folder, mode 0700). A start that was
  // cut short between the two files goes on with the key it wrote, so the pin never changes. `federation` is a node
  // name; an existing authority keeps the one it was made with.
  static Result<CertificateAuthority> create_or_open(const std::string& folder, const std::string& federation,
                                                     WallTime now);
  static Result<CertificateAuthority> create_in_memory(const std::string& federation, WallTime now,
                                                       std::chrono::seconds validity = kAuthorityValidity);

  const Certificate& certificate() const { return certificate_; }
  const std::string& pin() const { return pin_; }

  // kInvalidArgument when the request does not parse, its own signature does not verify, or its key is neither
  // ECDSA P-256 nor Ed25519, or when the grant is not valid; kFailedPrecondition when the authority has expired.
  Result<Certificate> issue(ByteSpan csr_der, const Grant& grant, WallTime now) const;

 private:
  CertificateAuthority(PrivateKey key, Certificate certificate);
  PrivateKey key_;
  Certificate certificate_;
  std::string pin_;
};

// The name of the federation whose authority this is; empty where the certificate states none.
std::string federation_of(const Certificate& authority);

// The serial of the certificate that a token is used for: a hash over the token's hash and the request's key. Without
// the token nobody can choose or foresee it. So a record of the serial shows which key the token served.
// kInvalidArgument for a request that issue() refuses.
Result<Serial> serial_of(const Digest& token_hash, ByteSpan csr_der);

}  // namespace fluvial::identity
