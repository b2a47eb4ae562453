// Checks a chain of certificates that came in a message or from a file, as a handshake would.
#pragma once

#include <chrono>
#include <vector>

#include "core/base/clock.h"
#include "core/identity/certificate.h"

namespace fluvial::identity {

// For how long a member's certificate may have ended; it is then checked as it stood at its end. Zero: not at all.
struct Ended {
  std::chrono::seconds at_most{0};
};

// Who the chain's first certificate is for. `chain`: the member's own, then those between it and an authority, at most
// 4; `authorities`: who is trusted. kUnauthenticated when a handshake would refuse it: no path to one of the
// authorities, a date, a name, a usage that is not its role's.
Result<PeerIdentity> verify_chain(const std::vector<Certificate>& chain, const std::vector<Certificate>& authorities,
                                  WallTime now, Ended ended);

// The one of `authorities` that the chain leads to, whatever its dates. kUnauthenticated when it is none.
Result<Certificate> root_of(const std::vector<Certificate>& chain, const std::vector<Certificate>& authorities);

}  // namespace fluvial::identity
