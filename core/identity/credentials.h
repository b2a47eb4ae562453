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
  std::vector<Certificate> chain;        // the member's own certificate, then those between it and an authority
  std::vector<Certificate> authorities;  // that are trusted, and no others; 1 to kAuthoritiesMax
  // How often the name was enrolled before, as the coordinator counts. So even a member that begins anew with an empty
  // folder comes after its earlier incarnations.
  std::uint64_t enrolled_before = 0;
  std::uint64_t trust = 0;  // the number of the list of authorities, as the coordinator counts its changes
};

// Checks that key and certificate belong together, and that the chain leads to one of the authorities, whatever its
// dates. The message of kDataLoss starts with `where`.
Status check_credentials(const Credentials& credentials, const std::string& where);

// key.pem (0600), cert.pem, ca.pem, enrolled_before and trust in `folder` (made with mode 0700 when absent); the key is
// written first, and the others before cert.pem, so a folder with a cert.pem is complete. Credentials of the same key
// that stood there before are replaced so that at each moment what stands there loads: until the new certificate is
// there the old authorities are trusted, too. `trust` is the very last.
Status save_credentials(const Credentials& credentials, const std::string& folder);

// kNotFound when not enrolled; kDataLoss when key and certificate do not belong together, or the certificate leads to
// none of the authorities, or enrolled_before or trust hold no number; without these files they are 0. An expired
// certificate loads: the caller may be about to renew it. Credentials are durable once loaded, whichever process wrote
// them.
Result<Credentials> load_credentials(const std::string& folder);

}  // namespace fluvial::identity
