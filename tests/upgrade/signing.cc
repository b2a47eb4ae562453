#include "tests/upgrade/signing.h"

#include "core/base/check.h"
#include "core/digest/sha256.h"
#include "core/identity/seeded_key.h"
#include "core/tree/denials.h"
#include "core/tree/lease_statement.h"
#include "core/wire/mapping.h"

namespace fluvial::upgrade {

identity::PrivateKey recorded_key(std::string_view member) {
  Result<identity::PrivateKey> key = identity::seeded_key(sha256(as_byte_span("key of " + std::string(member))));
  FLUVIAL_CHECK(key.ok(), "32 bytes are a key");
  return std::move(*key);
}

identity::PublicKey recorded_public_key(std::string_view member) {
  return identity::PublicKey::of(recorded_key(member));
}

Signature sign_as(std::string_view member, std::string_view kind, const std::string& body) {
  const Result<Signature> signature = identity::sign(recorded_key(member), kind, as_byte_span(body));
  FLUVIAL_CHECK(signature.ok(), "a key signs");
  return *signature;
}

v1::Signed signed_by_coordinator(std::string_view kind, const std::string& body) {
  v1::Signed statement;
  statement.set_body(body);
  statement.set_signature(wire::signature_to_proto(sign_as(kCoordinator, kind, body)));
  return statement;
}

v1::Signed signed_lease(const round::LeaseTerms& terms) {
  const WallTime granted(std::chrono::milliseconds(1'790'000'000'000));
  Result<v1::Signed> lease = tree::sign_lease(recorded_key(kCoordinator), terms, granted);
  FLUVIAL_CHECK(lease.ok(), "a key signs");
  return std::move(*lease);
}

v1::Denials signed_denials(std::uint64_t number) {
  identity::DenyEntries entries;
  entries.nodes = {NodeId(9)};
  entries.keys = {recorded_public_key("hospital-c").id()};
  entries.refused_serials = {"0a1b2c"};
  Result<v1::Denials> denials = tree::signed_denials(entries, kRecordedHistory, number, recorded_key(kCoordinator));
  FLUVIAL_CHECK(denials.ok(), "a key signs");
  return std::move(*denials);
}

}  // namespace fluvial::upgrade
