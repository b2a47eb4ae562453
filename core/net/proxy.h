// HTTP CONNECT proxies, for many sites the only way out: which peers are reached through which, and what one answers.
// Pure text; proxy_tunnel.h speaks to one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/net/connector.h"

namespace fluvial::net {

struct Proxy {
  HostPort address;
  std::string authorization;  // of the Proxy-Authorization header, a secret; empty: none
};

// "http://proxy.example.org:3128", "http://user:password@proxy:3128" (%-encoding undone), the scheme and a trailing /
// optional; port 80 unless given. kInvalidArgument says what was expected and never shows the text: it may hold a
// password.
Result<Proxy> parse_proxy(std::string_view url);

// Immutable; thread safe.
class ProxyRules {
 public:
  // `no_proxy`, separated by commas or blanks: names, which stand for those below them, too; addresses; networks such
  // as 10.0.0.0/8; each but a network with an optional :port; "*": everybody. An entry that is none of these matches
  // nobody, as with other programs that read the same variable.
  static Result<ProxyRules> make(std::string_view url, std::string_view no_proxy);

  const Proxy* of(const HostPort& peer) const;  // none: the peer is dialled directly
  const HostPort& address() const { return proxy_.address; }

 private:
  struct Exception {
    std::string name;                    // lower case; empty: an address, or everybody
    std::vector<unsigned char> network;  // 4 or 16 bytes
    unsigned bits = 0;                   // of it that count
    std::uint16_t port = 0;              // 0: any
    bool everybody = false;
  };
  static Exception exception_from(std::string_view text);
  static bool matches(const Exception& exception, const HostPort& peer);

  Proxy proxy_;
  std::vector<Exception> exceptions_;
};

// Null for an empty URL and for "off".
Result<std::shared_ptr<const ProxyRules>> proxy_rules(std::string_view url, std::string_view no_proxy);

inline constexpr std::size_t kProxyAnswerBytesMax = 16 << 10;

// What to send for a tunnel to `peer`.
std::string tunnel_request(const Proxy& proxy, const HostPort& peer);

// Whether the header of an answer, up to its empty line, opens the tunnel. kPermissionDenied: the proxy wants
// credentials or forbids this peer; kUnavailable: it cannot reach the peer, or is no HTTP proxy. The message holds what
// it said, short and printable.
Status judge_answer(std::string_view header, const Proxy& proxy, const HostPort& peer);

}  // namespace fluvial::net
