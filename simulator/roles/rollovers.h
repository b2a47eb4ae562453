// From one certificate authority to the next: what a person does, whose certificate whom a handshake takes, and who
// must not be shut out by it. Everything is on only in worlds that roll over.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "coordinator/service/authorities.h"
#include "core/identity/authority.h"
#include "core/identity/credentials.h"
#include "simulator/world/world.h"

namespace fluvial::simulator {

class Cast;

class Rollovers {
 public:
  explicit Rollovers(Cast& cast);

  bool on() const { return on_; }
  const std::shared_ptr<const identity::CertificateAuthority>& authority() const { return authority_; }  // that issues

  // ---- the coordinator's
  std::shared_ptr<coordinator::AuthorityFolder> folder(store::FileSystem& files);
  struct Wish {
    bool undo = false;
    bool force = false;
  };
  Wish draw(const coordinator::AuthorityView& view);
  void attempts(const Wish& wish) { forced_ = wish.force; }
  // What the journal has of them, at each start and after each step, and what is done with it.
  void journal_says(const std::vector<store::AuthorityRow>& rows,
                    std::shared_ptr<const identity::CertificateAuthority> authority);
  void let_past(const identity::PeerIdentity& peer) const;        // the coordinator's handshake
  const std::set<HostId>& stranded() const { return stranded_; }  // need a token

  // ---- handshakes
  void showed(HostId host, const identity::Credentials& credentials);  // from now on
  // Whether the handshake at `host` takes this certificate, whatever its dates. kUnauthenticated.
  Status accepts(HostId host, const identity::PeerIdentity& peer) const;
  std::function<void(SessionId)> enrolment();  // told of connections to that port
  bool is_at_enrolment(SessionId session) const { return at_enrolment_.contains(session); }
  bool finds_enrolment(HostId member) const;  // by the authorities that it trusts

 private:
  using Certificates = std::vector<identity::Certificate>;
  Certificates trusted_at(HostId host) const;
  bool leads_to(const identity::PeerIdentity& peer, const Certificates& authorities) const;
  bool may_force(const coordinator::AuthorityView& view) const;
  void issues_now(const identity::Certificate& root);
  void no_more_trusted(const Certificates& trusted);
  bool must_get_in(const identity::PeerIdentity& peer) const;

  Cast& cast_;
  World& world_;
  const bool on_;
  Rng rng_;
  std::shared_ptr<const identity::CertificateAuthority> authority_;
  std::size_t made_ = 0;                        // authorities after the first one
  std::map<std::string, Certificates> chains_;  // by serial
  Certificates gone_;
  std::string issuing_;  // its pin
  bool forced_ = false;  // the last step that was attempted
  bool issue_forced_ = false;
  std::set<HostId> stranded_;
  std::set<SessionId> at_enrolment_;
};

}  // namespace fluvial::simulator
