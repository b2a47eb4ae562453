// What a member keeps on its disk to prove who it is.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/identity/certificate.h"
#include "core/identity/key.h"

namespace fluvial::identity {

inline constexpr std::uint64_t kEnrolledBeforeMax = 1'000'000;

struct Credentials {
  PrivateKey key;
  std::vector<Certificate> chain;  // the member's own certificate; enrol_server() adds the authority's
  Certificate authority;           // the only one trusted
  // How often the name was enrolled before, as the coordinator counts. So even a member that begins anew with an empty
  // folder comes after its earlier incarnations.
  std::uint64_t enrolled_before = 0;
};

// Checks that key and certificate belong together, and that the certificate is signed by that authority. The message
// of kDataLoss starts with `where`.
Status check_credentials(const Credentials& credentials, const std::string& where);

// key.pem (0600), cert.pem, ca.pem and enrolled_before in `folder` (made with mode 0700 when absent); the key is
// written first and cert.pem last, so a folder with a cert.pem is complete.
Status save_credentials(const Credentials& credentials, const std::string& folder);

// kNotFound when not enrolled; kDataLoss when key and certificate do not belong together, or the certificate is not
// from that authority, or enrolled_before holds no number; without that file it is 0. An expired certificate loads: the
// caller may be about to renew it. Credentials are durable once loaded, whichever process wrote them.
Result<Credentials> load_credentials(const std::string& folder);

}  // namespace fluvial::identity
