#include "core/tree/denials.h"

#include <algorithm>
#include <string>
#include <utility>

namespace fluvial::tree {
namespace {

constexpr std::string_view kDenialsKind = "fluvial denials 1";

ByteSpan bytes_of(const std::string& text) { return as_byte_span(text); }

Result<identity::DenyEntries> entries_of(const v1::DenialStatement& statement) {
  identity::DenyEntries entries;
  for (const std::uint32_t node : statement.nodes()) entries.nodes.emplace(node);
  for (const std::string& key : statement.keys_sha256()) {
    FLUVIAL_ASSIGN(const Digest id, digest_from_bytes(bytes_of(key)));
    entries.keys.insert(id);
  }
  entries.refused_serials.insert(statement.serials().begin(), statement.serials().end());
  return entries;
}

// Checked: by this key, and readable.
Result<v1::DenialStatement> statement_of(const v1::Denials& denials, const identity::PublicKey& coordinator) {
  const v1::Signed& said = denials.statement();
  if (said.signature().size() != Signature().size()) {
    return Error{Code::kUnauthenticated, "denials without the coordinator's signature"};
  }
  Signature signature;
  std::ranges::copy(bytes_of(said.signature()), signature.begin());
  FLUVIAL_TRY(coordinator.verify(kDenialsKind, bytes_of(said.body()), signature));
  v1::DenialStatement statement;
  if (!statement.ParseFromString(said.body())) return Error{Code::kDataLoss, "denials that do not parse"};
  return statement;
}

}  // namespace

Result<v1::Denials> signed_denials(const identity::DenyEntries& entries, round::HistoryId history, std::uint64_t number,
                                   const identity::PrivateKey& coordinator) {
  v1::DenialStatement statement;
  statement.set_history(history.value());
  statement.set_number(number);
  for (const NodeId node : entries.nodes) statement.add_nodes(node.value());
  for (const Digest& key : entries.keys) statement.add_keys_sha256(std::string(as_text(key)));
  for (const std::string& serial : entries.refused_serials) statement.add_serials(serial);
  v1::Denials denials;
  v1::Signed& said = *denials.mutable_statement();
  statement.SerializeToString(said.mutable_body());
  FLUVIAL_ASSIGN(const Signature signature, identity::sign(coordinator, kDenialsKind, bytes_of(said.body())));
  said.set_signature(std::string(as_text(signature)));
  return denials;
}

Result<Denied> read_denials(const v1::Denials& denials, const identity::PublicKey& coordinator) {
  FLUVIAL_ASSIGN(const v1::DenialStatement statement, statement_of(denials, coordinator));
  FLUVIAL_ASSIGN(identity::DenyEntries who, entries_of(statement));
  return Denied{round::HistoryId(statement.history()), statement.number(), std::move(who)};
}

Status HeardDenials::granted(round::HistoryId history, const identity::PublicKey& coordinator,
                             const v1::Denials* denials) {
  if (denials == nullptr && last_) {
    return Error{Code::kFailedPrecondition,
                 "the coordinator told whom it refuses, and tells it no longer: is an older version in its place?"};
  }
  coordinator_ = coordinator;
  current_ = history;
  granted_ = true;
  if (denials == nullptr) return {};
  const Result<bool> taken = take(*denials, true);
  return taken.ok() ? Status{} : Status{taken.error()};
}

Result<bool> HeardDenials::told(const v1::Denials& denials) { return take(denials, false); }

Result<bool> HeardDenials::take(const v1::Denials& denials, bool of_lease) {
  FLUVIAL_ASSIGN(const v1::DenialStatement statement, statement_of(denials, coordinator_));
  const round::HistoryId history(statement.history());
  if (history != current_) {  // the lease of that history comes first, or has been followed by another
    if (of_lease) return Error{Code::kDataLoss, "denials of another history than the lease"};
    return false;
  }
  if (last_ && history_ == history && statement.number() <= number_) {
    if (of_lease && statement.number() == number_) last_ = denials;  // the same list, perhaps by another key
    return false;
  }
  FLUVIAL_ASSIGN(identity::DenyEntries entries, entries_of(statement));
  nodes_ = entries.nodes;
  deny_->replace(std::move(entries));
  history_ = history;
  number_ = statement.number();
  last_ = denials;
  return true;
}

Status HeardDenials::may_admit() const {
  if (granted_) return {};
  return Error{Code::kStale, "this aggregator has not heard yet whom the coordinator refuses: come again"};
}

}  // namespace fluvial::tree
