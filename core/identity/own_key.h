// A member's key before it has a certificate.
#pragma once

#include <string>

#include "core/identity/key.h"

namespace fluvial::identity {

// key.pem in `folder` (made with mode 0700 when absent): the existing key, or a new one, durable when this returns. So
// an enrolment that is tried again is the same member's. Two processes at once get the same key.
Result<PrivateKey> load_or_make_key(const std::string& folder);

}  // namespace fluvial::identity
