#include "core/tree/lease_statement.h"

#include <chrono>

#include "core/wire/mapping.h"

namespace fluvial::tree {
namespace {

constexpr std::string_view kLeaseKind = "fluvial lease 1";

// Empty: not known.
std::string key_to_proto(const Digest& key) { return key == Digest{} ? std::string() : wire::digest_to_proto(key); }
Result<Digest> key_from_proto(const std::string& bytes) {
  return bytes.empty() ? Result<Digest>(Digest{}) : wire::digest_from_proto(bytes);
}

}  // namespace

Result<v1::Signed> sign_lease(const identity::PrivateKey& coordinator, const round::LeaseTerms& terms,
                              WallTime granted) {
  v1::LeaseStatement statement;
  statement.set_node(terms.node.value());
  statement.set_key_sha256(key_to_proto(terms.key));
  statement.set_epoch(terms.epoch.value());
  statement.set_parent(terms.parent.value());
  statement.set_parent_key_sha256(key_to_proto(terms.parent_key));
  statement.set_history(terms.history.value());
  statement.set_granted_ms(std::chrono::duration_cast<std::chrono::milliseconds>(granted.time_since_epoch()).count());
  v1::Signed lease;
  lease.set_body(statement.SerializeAsString());
  FLUVIAL_ASSIGN(const Signature signature, identity::sign(coordinator, kLeaseKind, as_byte_span(lease.body())));
  lease.set_signature(wire::signature_to_proto(signature));
  return lease;
}

Result<round::LeaseTerms> read_lease(const identity::PublicKey& coordinator, const v1::Signed& lease) {
  if (lease.body().size() > kLeaseBytesMax) return Error{Code::kInvalidArgument, "a lease of too many bytes"};
  FLUVIAL_ASSIGN(const Signature signature, wire::signature_from_proto(lease.signature()));
  FLUVIAL_TRY(coordinator.verify(kLeaseKind, as_byte_span(lease.body()), signature));
  v1::LeaseStatement statement;
  if (!statement.ParseFromString(lease.body())) return Error{Code::kInvalidArgument, "no lease"};
  round::LeaseTerms terms;
  terms.node = NodeId(statement.node());
  FLUVIAL_ASSIGN(terms.key, key_from_proto(statement.key_sha256()));
  terms.epoch = Epoch(statement.epoch());
  terms.parent = NodeId(statement.parent());
  FLUVIAL_ASSIGN(terms.parent_key, key_from_proto(statement.parent_key_sha256()));
  terms.history = round::HistoryId(statement.history());
  return terms;
}

round::Party party_of(const identity::PeerIdentity& peer) { return {peer.role, peer.node, peer.name, peer.key.id()}; }

}  // namespace fluvial::tree
