// What the coordinator orders, signed: openings, commits, outcomes and the ends of runs. Thread safe; each call signs,
// which takes a fraction of a millisecond: on the pool.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/identity/key.h"
#include "core/identity/signature.h"
#include "core/round/history.h"
#include "core/round/record.h"
#include "core/store/rows.h"
#include "core/wire/statements.h"

namespace fluvial::coordinator {

class OrderSigner {
 public:
  // No key: it signs nothing, and every order is null.
  OrderSigner(std::optional<identity::PrivateKey> key, Epoch epoch) : key_(std::move(key)), epoch_(epoch) {}

  // Before anything is signed.
  void in_history(round::HistoryId history) { history_ = history; }
  // Of the audit log, at the moment of a commit: goes into the commit's statement.
  void with_audit_head(std::function<std::string()> head) { audit_head_ = std::move(head); }

  identity::PublicKey key() const { return key_ ? identity::PublicKey::of(*key_) : identity::PublicKey(); }

  bool signs() const { return key_.has_value(); }

  wire::Order opening(const wire::Opening& opening, const std::vector<round::Participant>& participants) const;
  wire::Order commit(const round::CommitRecord& record, bool last, const Digest& master,
                     const std::optional<Digest>& tree = {}) const;
  std::map<SiteId, wire::Order> outcomes(const round::CommitRecord& record) const;  // of every participant
  wire::Order run_state(const v1::RunState& state) const;
  void sign(std::vector<v1::Envelope>* answers) const;  // to an OutcomeQuery

 private:
  wire::Order sign(std::string_view kind, std::string body) const;

  std::optional<identity::PrivateKey> key_;
  Epoch epoch_;
  round::HistoryId history_;
  std::function<std::string()> audit_head_;
};

// As the journal keeps it. None: not signed.
std::optional<store::SignedOrder> kept(const wire::Order& order);

}  // namespace fluvial::coordinator
