// A site's process: edge/service as it ships, on a simulated host. Added here are its trainers, the places where it may
// be wrong on purpose, and the reports to the checks. Its store, its codecs and its residual are real.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/store/site_store.h"
#include "edge/service/site_report.h"
#include "simulator/node/node.h"
#include "simulator/roles/cast.h"
#include "simulator/roles/malice.h"
#include "simulator/roles/renewing.h"
#include "simulator/roles/trainers.h"

namespace fluvial::simulator {

class SiteRole final : public Node, private edge::SiteReport {
 public:
  SiteRole(Cast& cast, HostId host);
  ~SiteRole() override;

  void start() override;
  bool waits_for_outcome() const;  // with a parent that could tell it

 private:
  class Tampered;
  Status open();
  void fail();
  net::Awaitable<void> serve(std::shared_ptr<net::Session> session) override;
  bool says(SessionId session, v1::Envelope& message, SharedBytes& payload);

  // ---- what it does
  void model_refused(const round::ModelRef&, const Error& why) override;
  void encoding(const edge::Offer& offer) override;
  void encoded(const store::PendingInfo& info, double) override;
  void not_encoded(const edge::Offer& offer, const Error& why) override;
  void encoding_pass(const edge::Offer&) override;
  void pass_encoded(const store::PendingInfo& info) override;
  void pass_found(const store::PendingInfo& info) override;
  void folding(const edge::Fold& effect) override;
  void folded(const edge::Offer&, const store::Carried&, bool) override { look(); }
  void not_folded(const edge::Offer& offer, const Error& why) override;
  void found(const store::PendingInfo& info) override;
  void feeding(const store::PendingInfo& info) override;
  void resolving(const store::PendingInfo& info, round::Outcome outcome) override;
  void resolved(const edge::Pending&, round::Outcome, bool) override { look(); }
  void history_entering(const round::Lineage& lineage) override;
  void history_entered(const round::Lineage& lineage) override;

  void look();
  void take_in(const edge::Offer& offer, bool lost, const CarriedBounds& bounds);
  void note_dropped(const edge::Offer& offer, const Error& why);
  void check_durable();
  const store::PendingInfo* on_its_way() const;
  std::vector<std::string> tensor_files();
  std::optional<identity::PrivateKey> own_key() const;
  Answer who_is_at(const net::HostPort& address);
  Answer enrolment();
  tree::Renewal* renewal();
  NodeId self() const { return cast_.identity(host()).node; }

  Cast& cast_;
  Malice malice_;
  HostId answered_;  // at the last address that it tried
  SiteTrainers trainers_;
  std::optional<Renewing> renewing_;              // of a certificate that ends
  std::unique_ptr<Tampered> service_;             // once the store is open
  store::SiteStore* store_ = nullptr;             // the service's
  round::Lineage lineage_;                        // of the history that the store is in
  std::optional<store::PendingInfo> submission_;  // the last one
  std::vector<std::string> files_;                // that this process wrote for it
  std::optional<store::PendingInfo> pass_;        // the last one of it, after the first
  std::vector<std::string> pass_files_;
  std::uint32_t sends_pass_ = 0;
  std::vector<std::string> files_before_;
  bool decided_ = false;  // the last one: its files go, and the beginning of a transfer may still wait for its turn
  std::optional<std::uint64_t> faults_before_;  // the training is on its way into the store
};

}  // namespace fluvial::simulator
