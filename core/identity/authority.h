// The federation's certificate authority, kept by the coordinator.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/identity/certificate.h"
#include "core/identity/credentials.h"
#include "core/identity/issuer.h"
#include "core/identity/key.h"
#include "core/identity/live.h"

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

// May a certificate state it as a DNS name?
bool is_host_name(std::string_view name);

// Immutable after it is made; thread safe. No certificate that it issues outlives its own.
class CertificateAuthority {
 public:
  // Opens `folder`/ca-key.pem and ca.pem, or makes them on first start (and the folder, mode 0700). A start that was
  // cut short between the two files goes on with the key it wrote, so the pin never changes. `federation` is a node
  // name; an existing authority keeps the one it was made with.
  static Result<CertificateAuthority> create_or_open(const std::string& folder, const std::string& federation,
                                                     WallTime now);
  // Members trust `authorities`: the issuer's own when there are none. `before`: who issued until this one did.
  static CertificateAuthority of(Issuer issuer, std::vector<Certificate> authorities = {}, std::uint64_t trust = 0,
                                 std::shared_ptr<const CertificateAuthority> before = nullptr);
  static Result<CertificateAuthority> create_in_memory(const std::string& federation, WallTime now,
                                                       std::chrono::seconds validity = kAuthorityValidity);

  const Certificate& certificate() const { return certificate_; }   // what issues
  const std::string& pin() const { return pin_; }                   // of the authority that new tokens name
  const Digest& key_id() const { return key_id_; }                  // SHA-256 of the issuing key, SubjectPublicKeyInfo
  const std::vector<Certificate>& chain() const { return chain_; }  // from certificate() to the authority it is below
  WallTime end() const { return end_; }                             // when it can issue no more
  const std::vector<Certificate>& authorities() const { return authorities_; }  // whom members trust
  std::uint64_t trust() const { return trust_; }                                // the number of that list

  // Null unless members still trust one that issued before: whoever has a token of its time, or has not heard of this
  // one, knows the enrolment port by it.
  const std::shared_ptr<const CertificateAuthority>& before() const { return before_; }

  // kInvalidArgument when the request does not parse, its own signature does not verify, or its key is neither
  // ECDSA P-256 nor Ed25519, or when the grant is not valid; kFailedPrecondition when the authority has expired.
  Result<Certificate> issue(ByteSpan csr_der, const Grant& grant, WallTime now) const;
  // As a member keeps it: the certificate, then what goes between it and an authority.
  Result<std::vector<Certificate>> issue_chain(ByteSpan csr_der, const Grant& grant, WallTime now) const;

 private:
  CertificateAuthority(Issuer issuer, std::vector<Certificate> authorities, std::uint64_t trust,
                       std::shared_ptr<const CertificateAuthority> before);
  PrivateKey key_;
  Certificate certificate_;
  std::vector<Certificate> chain_;  // to the root
  WallTime end_;
  std::string pin_;
  Digest key_id_;
  std::vector<Certificate> authorities_;
  std::uint64_t trust_ = 0;
  std::shared_ptr<const CertificateAuthority> before_;
};

// It changes while the coordinator runs: ask current() for each use.
using LiveAuthority = Live<CertificateAuthority>;

// The name of the federation whose authority this is; empty where the certificate states none.
std::string federation_of(const Certificate& authority);
// As whoever issued a member's certificate names it; a root above that may be a company's.
std::string federation_of(const Credentials& credentials);

// The key that a request is for, once its own signature has verified. kInvalidArgument as issue().
Result<PublicKey> key_of_csr(ByteSpan csr_der);

// The serial of the certificate that a token is used for: a hash over the token's hash and the request's key. Without
// the token nobody can choose or foresee it. So a record of the serial shows which key the token served.
// kInvalidArgument for a request that issue() refuses.
Result<Serial> serial_of(const Digest& token_hash, ByteSpan csr_der);

}  // namespace fluvial::identity
