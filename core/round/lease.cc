#include "core/round/lease.h"

#include <algorithm>

namespace fluvial::round {
namespace {

constexpr std::size_t kKeyDigitsShown = 12;

Error not_for(const std::string& what) {
  return {Code::kPermissionDenied, "the lease is for another " + what + ": come for a lease"};
}

bool is_known(const Digest& key) { return key != Digest{}; }

std::string described(const Party& party) {
  std::string text = std::string(role_name(party.role));
  if (!party.name.empty()) text += " " + party.name;
  if (party.node != NodeId(0)) text += ", node " + std::to_string(party.node.value());
  if (is_known(party.key)) text += ", key " + to_hex(party.key).substr(0, kKeyDigitsShown);
  return text;
}

}  // namespace

Status check_lease(const LeaseTerms& lease, const LeaseTerms& wanted) {
  if (lease.node != wanted.node) return not_for("member");
  if (lease.key != wanted.key) return not_for("key than the member shows");
  if (lease.parent != wanted.parent) return not_for("parent");
  if (is_known(lease.parent_key) && lease.parent_key != wanted.parent_key) return not_for("key of this parent");
  if (lease.epoch == wanted.epoch && lease.history == wanted.history) return {};
  return Error{Code::kStale, "lease " + std::to_string(wanted.epoch.value()) + " is not the one that is shown, " +
                                 std::to_string(lease.epoch.value()) + ": come for a lease"};
}

Status check_party(const Party& expected, const Party& answered) {
  const bool is_named =
      expected.role == Role::kCoordinator || (expected.node == answered.node && expected.name == answered.name);
  const bool has_key = !is_known(expected.key) || expected.key == answered.key;
  if (expected.role == answered.role && is_named && has_key) return {};
  return Error{Code::kUnauthenticated, "the lease names " + described(expected) + "; who answers there is " +
                                           described(answered) + ": it is told nothing"};
}

Status NewestLeases::check(NodeId child, Epoch lease) const {
  const auto found = newest_.find(child);
  if (found == newest_.end() || found->second <= lease) return {};
  return Error{Code::kStale, "lease " + std::to_string(lease.value()) + " of node " + std::to_string(child.value()) +
                                 " is older than one that was shown before: come for a lease"};
}

void NewestLeases::note(NodeId child, Epoch lease) {
  Epoch& newest = newest_[child];
  newest = std::max(newest, lease);
}

}  // namespace fluvial::round
