// The way out of a member's network, from its settings and from the variables that other programs read as well.
#pragma once

#include <string>

#include "core/config/reader.h"

namespace fluvial::cli {

struct ProxyChoice {
  std::string url;  // may hold a password; empty: none
  std::string no_proxy;
};

// What the settings say; where `proxy` is empty https_proxy or HTTPS_PROXY, which are not meant for this machine
// itself: its loopback addresses are left out. Where `no_proxy` is empty no_proxy or NO_PROXY.
ProxyChoice choose_proxy(const std::string& proxy, const std::string& no_proxy, const config::Environment& environment);

}  // namespace fluvial::cli
