// What a member keeps on its disk to prove who it is.
#pragma once

#include <string>
#include <vector>

#include "core/identity/certificate.h"
#include "core/identity/key.h"

namespace fluvial::identity {

struct Credentials {
  PrivateKey key;
  std::vector<Certificate> chain;  // the member's own certificate; enrol_server() adds the authority's
  Certificate authority;           // the only one trusted
};

// Do key and certificate belong together, and is the certificate signed by that authority? kDataLoss starts with
// `where`.
Status check_credentials(const Credentials& credentials, const std::string& where);

// key.pem (0600), cert.pem and ca.pem in `folder` (made with mode 0700 when absent); the key is written first and
// cert.pem last, so a folder with a cert.pem is complete.
Status save_credentials(const Credentials& credentials, const std::string& folder);

// kNotFound when not enrolled; kDataLoss when key and certificate do not belong together, or the certificate is not
// from that authority. An expired certificate loads: the caller may be about to renew it.
Result<Credentials> load_credentials(const std::string& folder);

}  // namespace fluvial::identity
