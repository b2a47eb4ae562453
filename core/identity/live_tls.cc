#include "core/identity/live_tls.h"

#include <utility>

namespace fluvial::identity {

std::shared_ptr<LiveTls> live(std::shared_ptr<const TlsContext> first) {
  return std::make_shared<LiveTls>(std::move(first));
}

}  // namespace fluvial::identity
