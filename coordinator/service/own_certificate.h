// The coordinator's own certificate: made at each start and renewed in the process, always of the one key that it
// keeps, so that what it signed stays its own. Whoever shows it (the members' port, the enrolment port, the operators'
// port) follows.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/identity/authority.h"
#include "core/identity/credentials.h"
#include "core/identity/live_tls.h"
#include "core/net/signal.h"
#include "core/round/renewal.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator {

class OwnCertificate {
 public:
  // `grant`: for whom, for how long and with which names.
  static Result<std::unique_ptr<OwnCertificate>> make(identity::PrivateKey key, identity::Grant grant,
                                                      std::shared_ptr<identity::LiveAuthority> authority, WallTime now);

  const identity::PrivateKey& key() const { return key_; }
  WallTime ends() const { return life_.ends; }
  std::string chain_pem() const { return chain_pem_; }
  const std::shared_ptr<identity::LiveTls>& member() const { return member_; }
  const std::shared_ptr<identity::LiveTls>& enrol() const { return enrol_; }
  const std::shared_ptr<identity::LiveTls>& admin() const { return admin_; }

  // Another certificate by the authority as it stands; new sessions are shown it, and children are told. It takes
  // about a millisecond. When it fails everything stays as it is. On the strand.
  Status renew(WallTime now);

  void on_renewed(std::function<void()> renewed) { renewed_ = std::move(renewed); }
  net::Awaitable<void> run(tree::Runtime& runtime);  // renews it in time, until stop(); on the strand
  void stop();

 private:
  OwnCertificate(identity::PrivateKey key, identity::Grant grant, std::shared_ptr<identity::LiveAuthority> authority)
      : key_(std::move(key)), grant_(std::move(grant)), authority_(std::move(authority)) {}
  Result<identity::Credentials> issue(const identity::CertificateAuthority& authority, WallTime now) const;
  Result<std::vector<identity::Credentials>> enrolment(const identity::CertificateAuthority& authority,
                                                       WallTime now) const;
  Status put(WallTime now);

  identity::PrivateKey key_;
  identity::Grant grant_;
  std::shared_ptr<identity::LiveAuthority> authority_;
  round::CertificateLife life_;
  std::string chain_pem_;
  std::shared_ptr<identity::LiveTls> member_;
  std::shared_ptr<identity::LiveTls> enrol_;
  std::shared_ptr<identity::LiveTls> admin_;
  std::function<void()> renewed_ = [] {};
  std::unique_ptr<net::AsyncSignal> wake_;
  bool stopping_ = false;
};

}  // namespace fluvial::coordinator
