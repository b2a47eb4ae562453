// Signatures by members' keys: what one member states so that others can pass it on and not change it.
//
// Signed is the kind's name, a zero byte and the statement, so that a signature of one kind says nothing of another.
// ECDSA P-256 over SHA-256 as r and s of 32 bytes each (RFC 7518, section 3.4), or Ed25519 (RFC 8032): 64 bytes both.
#pragma once

#include <memory>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/base/signature.h"
#include "core/identity/key.h"

namespace fluvial::identity {

// A handle on an immutable public key; copies share it. Thread safe. One that is made by default verifies nothing.
class PublicKey {
 public:
  PublicKey() = default;
  explicit PublicKey(std::shared_ptr<evp_pkey_st> key);

  // A DER SubjectPublicKeyInfo. kDataLoss unless it is one, whole, of ECDSA P-256 or Ed25519.
  static Result<PublicKey> from_der(ByteSpan der);
  static PublicKey of(const PrivateKey& key);

  Buffer der() const;                       // empty for none
  const Digest& id() const { return id_; }  // SHA-256 of der(); zeros for none
  explicit operator bool() const { return key_ != nullptr; }
  bool operator==(const PublicKey& other) const { return id_ == other.id_; }

  // kUnauthenticated unless the signature is by this key's owner, of a statement of this kind.
  Status verify(std::string_view kind, ByteSpan statement, const Signature& signature) const;

 private:
  std::shared_ptr<evp_pkey_st> key_;
  Digest id_{};
};

Result<Signature> sign(const PrivateKey& key, std::string_view kind, ByteSpan statement);

}  // namespace fluvial::identity
