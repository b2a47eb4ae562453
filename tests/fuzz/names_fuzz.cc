// Names of members, tokens and regions, the names in certificates, addresses, and what a proxy is and answers: each
// reader against one of its own here, and what is accepted is written and read again as the same.
#include <arpa/inet.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <span>
#include <string>

#include "core/config/settings.h"
#include "core/identity/names.h"
#include "core/net/address.h"
#include "core/net/connector.h"
#include "core/net/proxy.h"
#include "tests/fuzz/errors.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {
namespace {

constexpr const char* kLettersAndDigits = "abcdefghijklmnopqrstuvwxyz0123456789";

// As names.h and docs/design/identity.md describe them.
bool is_name(const std::string& text) {
  return !text.empty() && text.size() <= 63 && text.find_first_of(kLettersAndDigits) == 0 &&
         text.find_first_not_of(std::string(kLettersAndDigits) + "._-") == std::string::npos;
}
bool is_region(const std::string& text) {
  if (text.empty()) return true;
  std::size_t begin = 0;
  for (int parts = 1;; ++parts) {
    const std::size_t slash = text.find('/', begin);
    if (parts > 8 || !is_name(text.substr(begin, slash - begin))) return false;
    if (slash == std::string::npos) return true;
    begin = slash + 1;
  }
}

void read_names(const std::string& text) {
  const Status node = identity::check_node_name(text);
  check_error(node);
  FLUVIAL_CHECK(node.ok() == is_name(text), "a name is accepted or refused otherwise than it is described");
  const Status region = identity::check_region(text);
  check_error(region);
  FLUVIAL_CHECK(region.ok() == is_region(text), "a region is accepted or refused otherwise than it is described");
  const Status token = identity::check_token_name(text);
  check_error(token);
  const bool several = text.ends_with("-*");
  const std::string prefix = several ? text.substr(0, text.size() - 2) : text;
  FLUVIAL_CHECK(token.ok() == (is_name(prefix) && (!several || prefix.size() <= 50)),
                "a token's name is accepted or refused otherwise than it is described");
  if (!token.ok()) return;
  const std::string member = identity::member_name(text, "0123456789abcdef0123456789abcdef");
  FLUVIAL_CHECK(is_name(member) && identity::is_for(text, member), "a token does not name its own member");
  FLUVIAL_CHECK(several || member == text, "a token for one names another");
  FLUVIAL_CHECK(!identity::is_for(text, member + "0"), "a token names somebody else");
}

void read_role(const std::string& text) {
  const Result<Role> role = identity::role_from_name(text);
  check_error(role);
  FLUVIAL_CHECK(!role.ok() || role_name(*role) == text, "a role has one name");
}

void read_uri(const std::string& text) {
  const Result<identity::Member> member = identity::member_from_uri(text);
  check_error(member);
  char role[16] = {}, node[11] = {}, name[64] = {};
  int size = 0;
  const int parts = std::sscanf(text.c_str(), "fluvial://%15[a-z]/%10[0-9]/%63[a-z0-9._-]%n", role, node, name, &size);
  const bool fits = parts == 3 && static_cast<std::size_t>(size) == text.size() && is_name(name) && node[0] != '0' &&
                    std::strtoull(node, nullptr, 10) <= 0xffff'ffff && identity::role_from_name(role).ok();
  FLUVIAL_CHECK(member.ok() == fits, "a URI is accepted or refused otherwise than it is described");
  if (!member.ok()) return;
  FLUVIAL_CHECK(identity::member_uri(*member) == text, "a member has one URI");
  FLUVIAL_CHECK(role_name(member->role) == role && member->name == name && std::to_string(member->node.value()) == node,
                "a URI is read as another member");
  FLUVIAL_CHECK(is_printable(identity::describe(*member)), "a member is described in one line");
}

// "host:port" or "[v6]:port".
template <typename Parse, typename Format>
void read_address(const std::string& text, Parse parse, Format format) {
  const auto address = parse(text);
  check_error(address);
  if (!address.ok()) return;
  FLUVIAL_CHECK(!address->host.empty(), "an address without a host");
  const std::string written = format(*address);
  const auto again = parse(written);
  FLUVIAL_CHECK(again.ok() && again->host == address->host && again->port == address->port,
                "an address is read again as another");
  const std::string digits = text.substr(text.rfind(':') + 1);
  FLUVIAL_CHECK(std::strtoull(digits.c_str(), nullptr, 10) == address->port, "a port that does not stand there");
}

// Who are one stranger, by the system's own reader of addresses.
void read_remote(const std::string& text) {
  const net::AddressKey key = net::address_key(text);
  in_addr v4{};
  in6_addr v6{};
  const bool in_brackets = text.starts_with("[") && text.find("]:") != std::string::npos;
  const std::string host = in_brackets ? text.substr(1, text.find("]:") - 1) : text.substr(0, text.rfind(':'));
  if (host.find('%') != std::string::npos || host.find('\0') != std::string::npos) return;  // a zone is the machine's
  if (!in_brackets && text.find(':') != std::string::npos && ::inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    FLUVIAL_CHECK(!key.is_v6 && key.bits == ntohl(v4.s_addr), "an IPv4 address is taken for another");
  }
  if (in_brackets && ::inet_pton(AF_INET6, host.c_str(), &v6) == 1 && key.is_v6) {
    std::uint64_t first = 0;
    for (int i = 0; i < 8; ++i) first = first << 8 | v6.s6_addr[i];
    FLUVIAL_CHECK(key.bits == first, "an IPv6 address is taken for another");
  }
}

// ---- proxies: their URL, who is reached without one, and their answer

std::size_t lines_of(const std::string& text) {
  std::size_t lines = 0;
  for (std::size_t at = text.find('\n'); at != std::string::npos; at = text.find('\n', at + 1)) ++lines;
  return lines;
}

void read_proxy(const std::string& text) {
  const net::HostPort peer{"fl.example.org", 7400};
  const auto proxy = net::parse_proxy(text);
  check_error(proxy);
  if (proxy.ok()) {
    FLUVIAL_CHECK(!proxy->address.host.empty() && proxy->address.port > 0, "a proxy at no address");
    const std::string asked = net::tunnel_request(*proxy, peer);
    FLUVIAL_CHECK(is_printable(proxy->authorization) && lines_of(asked) == (proxy->authorization.empty() ? 4U : 5U),
                  "a proxy's URL writes a line of its own into the request");
  } else {
    static const std::string kMessage = net::parse_proxy("http://").error().message;
    FLUVIAL_CHECK(proxy.error().message == kMessage, "an error tells of a URL that may hold a password");
  }
  const auto rules = net::ProxyRules::make("http://proxy.example:3128", text);
  check_error(rules);
  if (!rules.ok()) return;
  for (const char* host : {"fl.example.org", "10.1.2.3", "::1", ""}) (void)rules->of({host, 7400});
  if (text == "*") FLUVIAL_CHECK(rules->of(peer) == nullptr, "everybody is reached without the proxy");
}

void read_proxy_answer(const std::string& text) {
  const net::Proxy proxy{{"proxy.example", 3128}, ""};
  const Status opened = net::judge_answer(text, proxy, {"fl.example.org", 7400});
  check_error(opened);
  const std::string line = text.substr(0, text.find("\r\n"));
  const auto digit = [&](std::size_t i) { return i < line.size() && line[i] >= '0' && line[i] <= '9'; };
  const bool is_http = line.starts_with("HTTP/1.0 ") || line.starts_with("HTTP/1.1 ");
  const bool is_good =
      is_http && line.substr(9, 1) == "2" && digit(10) && digit(11) && (line.size() == 12 || line[12] == ' ');
  FLUVIAL_CHECK(opened.ok() == is_good, "a tunnel that the proxy has not opened, or none where it has");
}

void run(ByteSpan bytes) {
  Input input(bytes);
  const std::uint8_t reader = input.byte();
  const std::string text(as_text(input.rest()));
  switch (reader % 6) {
    case 0: return read_names(text);
    case 1: return read_uri(text);
    case 2: return read_role(text), read_remote(text);
    case 4: return read_proxy(text);
    case 5: return read_proxy_answer(text);
    default:
      read_address(text, net::parse_host_port, [](const net::HostPort& address) { return net::to_string(address); });
      read_address(text, config::parse_host_port,
                   [](const auto& address) { return config::format_host_port(address); });
  }
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
