#include "cli/proxy.h"

namespace fluvial::cli {
namespace {

constexpr const char* kThisMachine = "localhost,127.0.0.0/8,::1";

// The lower-case name is the older one and wins, as with curl.
std::string either(const config::Environment& environment, const char* lower, const char* upper) {
  const std::string value = environment(lower).value_or("");
  return value.empty() ? environment(upper).value_or("") : value;
}

}  // namespace

ProxyChoice choose_proxy(const std::string& proxy, const std::string& no_proxy,
                         const config::Environment& environment) {
  ProxyChoice choice{proxy, no_proxy.empty() ? either(environment, "no_proxy", "NO_PROXY") : no_proxy};
  if (!choice.url.empty()) return choice;
  choice.url = either(environment, "https_proxy", "HTTPS_PROXY");
  choice.no_proxy += (choice.no_proxy.empty() ? "" : ",") + std::string(kThisMachine);
  return choice;
}

}  // namespace fluvial::cli
