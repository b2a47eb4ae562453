// A throw-away federation in memory, with every certificate a test could want to be refused. For tests alone; any
// failure stops the process. Contexts are real: only the keys are made fresh for each TestPki.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "core/identity/authority.h"
#include "core/identity/credentials.h"
#include "core/identity/issuer.h"
#include "core/identity/tls.h"

namespace fluvial::identity {

class TestPki {
 public:
  TestPki();

  const CertificateAuthority& authority() const { return authority_; }
  const std::string& pin() const { return authority_.pin(); }
  Credentials credentials(Role role, NodeId node, const std::string& name) const;
  Credentials expired_credentials(Role role, NodeId node, const std::string& name) const;  // an hour ago
  Credentials foreign_credentials(Role role, NodeId node, const std::string& name) const;  // from another authority

  // What a real federation has.
  std::shared_ptr<const TlsContext> member_server(Role role, NodeId node, const std::string& name) const;
  std::shared_ptr<const TlsContext> member_client(Role role, NodeId node, const std::string& name) const;
  std::shared_ptr<const TlsContext> enrol_server() const;  // coordinator 1, "root"
  std::shared_ptr<const TlsContext> enrol_client() const;  // with the right pin

  // What must be refused.
  std::shared_ptr<const TlsContext> expired_server(Role role, NodeId node, const std::string& name) const;
  std::shared_ptr<const TlsContext> expired_client(Role role, NodeId node, const std::string& name) const;
  std::shared_ptr<const TlsContext> foreign_server(Role role, NodeId node, const std::string& name) const;
  std::shared_ptr<const TlsContext> foreign_client(Role role, NodeId node, const std::string& name) const;  // trusts us
  std::shared_ptr<const TlsContext> anonymous_client() const;   // shows no certificate
  std::shared_ptr<const TlsContext> no_alpn_client() const;     // a good certificate, no ALPN
  std::shared_ptr<const TlsContext> other_alpn_client() const;  // a good certificate, ALPN "http/1.1"
  std::shared_ptr<const TlsContext> tls12_client() const;       // a good certificate, TLS 1.2 at most

 private:
  CertificateAuthority authority_;
  CertificateAuthority foreign_;
};

// What an authority's certificate says. For tests of those that members would not accept, too.
struct AuthoritySpec {
  std::string name = "below";
  std::string basic_constraints = "critical,CA:TRUE,pathlen:0";  // empty: none
  std::string key_usage = "critical,keyCertSign,cRLSign";        // empty: none
  std::chrono::seconds validity = std::chrono::days(365);
};
// A root of somebody's own PKI, and an authority below `above`.
Issuer make_test_root(const std::string& name, const std::string& basic_constraints = "critical,CA:TRUE");
Issuer make_test_authority(const Issuer& above, const AuthoritySpec& spec = {});

}  // namespace fluvial::identity
