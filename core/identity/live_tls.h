// The TLS context of new sessions, which changes with the certificate and with whom it trusts. A session that is open
// goes on as it began.
#pragma once

#include <memory>

#include "core/identity/live.h"
#include "core/identity/tls.h"

namespace fluvial::identity {

class LiveTls final : public Live<TlsContext> {
 public:
  using Live::Live;
};

std::shared_ptr<LiveTls> live(std::shared_ptr<const TlsContext> first);

}  // namespace fluvial::identity
