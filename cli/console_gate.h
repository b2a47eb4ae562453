// Who may ask what through `fluvial console`'s port. A port on the loopback is open to every process, user and web page
// of this machine, so each request shows that it comes from the browser that the one-time address was opened in.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/net/http.h"

namespace fluvial::cli {

struct ConsoleAccess {
  std::uint16_t port = 0;
  std::string key;      // of the one-time address; empty once it has been used
  std::string session;  // the cookie's value
  bool read_only = false;
};

enum class ConsoleStep {
  kForward,   // to the coordinator
  kEnter,     // with the key: it is used up, and this browser gets the cookie
  kDescribe,  // what this console may do: the forwarder's own to say
  kRefuse,
};

struct ConsoleVerdict {
  ConsoleStep step = ConsoleStep::kRefuse;
  int status = 403;
  std::string reason;  // of a refusal: what is wrong, and what to do
};

// Pure. In this order: Host, Origin, then either the key or the cookie, then what may be asked at all.
ConsoleVerdict judge(const ConsoleAccess& access, const net::HttpRequest& request);

inline constexpr const char* kConsoleHeader = "x-fluvial-console";  // of a request that changes something
std::string console_cookie_name(std::uint16_t port);                // browsers keep cookies by host, not by port
std::string console_address(const ConsoleAccess& access);           // the one-time one

// The access and what it answers itself; what it lets through is for the coordinator. Not thread safe.
class ConsoleGate {
 public:
  explicit ConsoleGate(ConsoleAccess access) : access_(std::move(access)) {}
  std::optional<net::HttpResponse> operator()(const net::HttpRequest& request);

 private:
  ConsoleAccess access_;
};

}  // namespace fluvial::cli
