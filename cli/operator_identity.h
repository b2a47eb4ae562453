// A person's own key and certificate for the admin API over the network. A folder with key.pem (0600), cert.pem and
// ca.pem, one for each federation that the person operates. Blocking.
#pragma once

#include <string>

#include "core/base/clock.h"
#include "core/config/reader.h"
#include "core/identity/certificate.h"
#include "core/identity/credentials.h"
#include "core/net/http.h"

namespace fluvial::cli {

// Where the admin API answers: the coordinator's Unix socket, or its port for operators.
struct AdminPlace {
  net::HttpAddress address;
  std::string text;      // a path, or https://host:port
  std::string identity;  // the operator's folder; empty: the socket
  bool is_remote() const { return !identity.empty(); }
};

// Of what a person gives as the admin API's place: another scheme than https, or no port, would be taken for a path.
Status check_admin_place(const std::string& text);
bool is_network_place(const std::string& text);  // https://host:port or host:port, and no path

// Under it each identity has a folder of its own: $XDG_CONFIG_HOME/fluvial, or ~/.config/fluvial. kFailedPrecondition
// where neither variable says where a person's files go.
Result<std::string> identities_folder(const config::Environment& environment);
// `given`, or the only one there is. kNotFound and kFailedPrecondition say what to do.
Result<std::string> find_identity(const std::string& given, const config::Environment& environment);

// How far a certificate's life has gone; pure.
enum class CertificateAge { kYoung, kToRenew, kEnded };
CertificateAge age_of(const identity::Certificate& certificate, WallTime now);

// The coordinator's port for operators, with the identity in `folder`. In the second half of its life the certificate
// is renewed there first; where that fails the old one is used until its end.
Result<AdminPlace> operator_place(const std::string& text, const std::string& folder, WallTime now);

}  // namespace fluvial::cli
