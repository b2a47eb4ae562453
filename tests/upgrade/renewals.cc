// What a session says of certificates that renew themselves.
#include "core/wire/mapping.h"
#include "tests/upgrade/session.h"

namespace fluvial::upgrade {

using v1::Envelope;

void renewals(Session& session, const BeforeRenewals& before) {
  Envelope request = before.lease_request;
  request.mutable_lease_request()->set_trust(2);
  *request.mutable_lease_request()->mutable_denials() = before.denials;
  session.child(request);
  Envelope granted = before.lease_grant;
  *granted.mutable_lease_grant()->mutable_denials() = before.denials;
  granted.mutable_lease_grant()->set_certificate_s(86'400);
  granted.mutable_lease_grant()->set_trust(3);
  session.parent(granted);

  Envelope asked;
  v1::RenewRequest& renew = *asked.mutable_renew_request();
  renew.set_csr_der("a request, DER");
  renew.set_certificate_pem("the certificate that has ended, PEM");
  renew.set_trust(2);
  session.child(asked);
  Envelope answered;
  v1::RenewReply& renewed = *answered.mutable_renew_reply();
  renewed.set_certificate_pem("a certificate, PEM");
  renewed.set_ca_pem("two authorities', PEM");
  renewed.set_trust(3);
  session.parent(answered);
  Envelope refused;
  refused.mutable_renew_reply()->set_code(wire::code_to_proto(Code::kPermissionDenied));
  refused.mutable_renew_reply()->set_message("hospital-a was revoked");
  session.parent(refused);
  Envelope enrolled;
  enrolled.mutable_enrol_reply()->set_ca_pem("two authorities', PEM");
  enrolled.mutable_enrol_reply()->set_trust(3);
  session.parent(enrolled);

  Envelope shown = before.hello;
  shown.mutable_hello()->set_takes_renewed(true);
  shown.mutable_hello()->set_takes_models_ahead(true);
  session.child(shown);
  Envelope let_in = before.welcome;
  let_in.mutable_welcome()->set_takes_renewed(true);
  session.parent(let_in);
  Envelope ahead;
  v1::ModelRef& model = *ahead.mutable_model_ahead()->mutable_model();
  model.set_run(3);
  model.set_version(8);
  model.set_sha256(std::string(32, 't'));
  model.set_bytes(24);
  session.parent(ahead);
  Envelope own;
  own.mutable_renewed()->set_certificate_pem("a certificate, PEM");
  session.child(own);
  session.parent(own);
}

}  // namespace fluvial::upgrade
