#include "core/net/proxy.h"

#include <fmt/format.h>
#include <openssl/evp.h>

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/system/error_code.hpp>
#include <cctype>
#include <charconv>
#include <optional>
#include <utility>

#include "core/base/bytes.h"

namespace fluvial::net {
namespace {

constexpr std::string_view kScheme = "http://";
constexpr std::uint16_t kDefaultPort = 80;
constexpr std::size_t kUrlCharsMax = 2048;
constexpr std::size_t kShownCharsMax = 120;

Error wrong_url() {
  return {Code::kInvalidArgument,
          "the proxy's URL is not http://HOST:PORT or http://USER:PASSWORD@HOST:PORT (it is not shown: it may hold a "
          "password)"};
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

// Of the proxy's own words: printable and short.
std::string shown(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, kShownCharsMax)) out += (c >= 0x20 && c < 0x7f) ? c : '?';
  return text.size() > kShownCharsMax ? out + "..." : out;
}

std::optional<std::string> without_percents(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      out += text[i];
      continue;
    }
    const auto byte = from_hex(text.substr(i + 1, 2));
    if (!byte.ok() || byte->size() != 1) return std::nullopt;
    out += static_cast<char>(byte->data()[0]);
    i += 2;
  }
  return out;
}

std::string base64(std::string_view text) {
  std::string out(4 * ((text.size() + 2) / 3) + 1, '\0');  // OpenSSL ends it with a zero
  const int size = EVP_EncodeBlock(reinterpret_cast<unsigned char*>(out.data()),
                                   reinterpret_cast<const unsigned char*>(text.data()), static_cast<int>(text.size()));
  out.resize(static_cast<std::size_t>(size));
  return out;
}

// "user:password@" before the host.
std::optional<std::string> authorization_from(std::string_view credentials) {
  const auto plain = without_percents(credentials);
  const auto is_control = [](unsigned char c) { return c < 0x20 || c == 0x7f; };
  if (!plain || std::ranges::any_of(*plain, is_control)) return std::nullopt;
  return "Basic " + base64(plain->find(':') == std::string::npos ? *plain + ":" : *plain);
}

std::optional<std::vector<unsigned char>> address_bytes(std::string_view text) {
  if (text.size() > 2 && text.front() == '[' && text.back() == ']') text = text.substr(1, text.size() - 2);
  boost::system::error_code error;
  const auto address = boost::asio::ip::make_address(std::string(text), error);
  if (error) return std::nullopt;
  if (address.is_v4()) {
    const auto bytes = address.to_v4().to_bytes();
    return std::vector<unsigned char>(bytes.begin(), bytes.end());
  }
  const auto bytes = address.to_v6().to_bytes();
  return std::vector<unsigned char>(bytes.begin(), bytes.end());
}

bool is_within(const std::vector<unsigned char>& address, const std::vector<unsigned char>& network, unsigned bits) {
  if (address.size() != network.size()) return false;
  for (std::size_t i = 0; i < network.size() && bits > 0; ++i) {
    const unsigned count = std::min(bits, 8U);
    const auto mask = static_cast<unsigned char>(0xff << (8 - count));
    if ((address[i] & mask) != (network[i] & mask)) return false;
    bits -= count;
  }
  return true;
}

struct StatusLine {
  int code = 0;
  std::string_view text;  // "407 Proxy Authentication Required"
};

std::optional<StatusLine> parse_status_line(std::string_view header) {
  const std::string_view line = header.substr(0, header.find("\r\n"));
  if (line.size() < 12 || !line.starts_with("HTTP/1.") || (line[7] != '0' && line[7] != '1') || line[8] != ' ') {
    return std::nullopt;
  }
  StatusLine status{0, line.substr(9)};
  const auto [end, error] = std::from_chars(status.text.data(), status.text.data() + 3, status.code);
  if (error != std::errc() || end != status.text.data() + 3 || status.code < 100) return std::nullopt;
  if (status.text.size() > 3 && status.text[3] != ' ') return std::nullopt;
  return status;
}

}  // namespace

Result<Proxy> parse_proxy(std::string_view url) {
  if (url.size() > kUrlCharsMax) return wrong_url();
  if (const std::size_t scheme = url.find("://"); scheme != std::string_view::npos) {
    if (lower(url.substr(0, scheme + 3)) != kScheme) return wrong_url();
    url.remove_prefix(scheme + 3);
  }
  if (url.ends_with('/')) url.remove_suffix(1);
  Proxy proxy;
  if (const std::size_t at = url.rfind('@'); at != std::string_view::npos) {
    const auto authorization = authorization_from(url.substr(0, at));
    if (!authorization) return wrong_url();
    proxy.authorization = *authorization;
    url.remove_prefix(at + 1);
  }
  const bool strange = std::ranges::any_of(url, [](char c) { return c <= 0x20 || c >= 0x7f || c == '/' || c == '?'; });
  if (strange) return wrong_url();
  const std::size_t colon = url.rfind(':');
  const bool has_port = colon != std::string_view::npos && url.find(']', colon) == std::string_view::npos;
  const auto address = parse_host_port(has_port ? std::string(url) : fmt::format("{}:{}", url, kDefaultPort));
  if (!address.ok() || address->port == 0) return wrong_url();
  proxy.address = *address;
  return proxy;
}

ProxyRules::Exception ProxyRules::exception_from(std::string_view text) {
  Exception exception;
  if (text == "*") {
    exception.everybody = true;
    return exception;
  }
  if (const std::size_t slash = text.find('/'); slash != std::string_view::npos) {
    const auto network = address_bytes(text.substr(0, slash));
    unsigned bits = 0;
    const std::string_view digits = text.substr(slash + 1);
    const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), bits);
    const bool good = network && error == std::errc() && end == digits.data() + digits.size();
    if (good && bits <= network->size() * 8) {
      exception.network = *network;
      exception.bits = bits;
    } else {
      exception.name = text;  // no host is called that
    }
    return exception;
  }
  if (!address_bytes(text)) {
    if (const auto with_port = parse_host_port(text); with_port.ok()) {
      exception.port = with_port->port;
      text = text.substr(0, text.rfind(':'));
    }
  }
  if (const auto address = address_bytes(text)) {
    exception.network = *address;
    exception.bits = static_cast<unsigned>(address->size() * 8);
    return exception;
  }
  while (text.starts_with('*') || text.starts_with('.')) text.remove_prefix(1);
  exception.name = lower(text);
  return exception;
}

bool ProxyRules::matches(const Exception& exception, const HostPort& peer) {
  if (exception.everybody) return true;
  if (exception.port != 0 && exception.port != peer.port) return false;
  if (exception.name.empty()) {
    const auto address = address_bytes(peer.host);
    return address && !exception.network.empty() && is_within(*address, exception.network, exception.bits);
  }
  std::string host = lower(peer.host);
  if (host.ends_with('.')) host.pop_back();
  return host == exception.name || host.ends_with("." + exception.name);
}

Result<ProxyRules> ProxyRules::make(std::string_view url, std::string_view no_proxy) {
  ProxyRules rules;
  FLUVIAL_ASSIGN(rules.proxy_, parse_proxy(url));
  constexpr std::string_view kBetween = ", \t\r\n";
  while (!no_proxy.empty()) {
    const std::string_view entry = no_proxy.substr(0, no_proxy.find_first_of(kBetween));
    no_proxy.remove_prefix(std::min(no_proxy.size(), entry.size() + 1));
    if (!entry.empty()) rules.exceptions_.push_back(exception_from(entry));
  }
  return rules;
}

const Proxy* ProxyRules::of(const HostPort& peer) const {
  const bool direct = std::ranges::any_of(exceptions_, [&](const Exception& each) { return matches(each, peer); });
  return direct ? nullptr : &proxy_;
}

Result<std::shared_ptr<const ProxyRules>> proxy_rules(std::string_view url, std::string_view no_proxy) {
  if (url.empty() || url == "off") return std::shared_ptr<const ProxyRules>();
  FLUVIAL_ASSIGN(ProxyRules rules, ProxyRules::make(url, no_proxy));
  return std::shared_ptr<const ProxyRules>(std::make_shared<ProxyRules>(std::move(rules)));
}

std::string tunnel_request(const Proxy& proxy, const HostPort& peer) {
  const std::string target = to_string(peer);
  std::string request = fmt::format("CONNECT {} HTTP/1.1\r\nHost: {}\r\nUser-Agent: fluvial\r\n", target, target);
  if (!proxy.authorization.empty()) request += "Proxy-Authorization: " + proxy.authorization + "\r\n";
  return request + "\r\n";
}

Status judge_answer(std::string_view header, const Proxy& proxy, const HostPort& peer) {
  const std::string who = fmt::format("proxy {} (for {})", to_string(proxy.address), to_string(peer));
  const auto status = parse_status_line(header);
  if (!status) {
    const std::string_view line = header.substr(0, header.find_first_of("\r\n"));
    return Error{Code::kUnavailable, fmt::format("{}: is no HTTP proxy: it answered \"{}\"", who, shown(line))};
  }
  if (status->code / 100 == 2) return {};
  const std::string said = shown(status->text);
  if (status->code == 407) {
    return Error{Code::kPermissionDenied,
                 proxy.authorization.empty()
                     ? fmt::format("{}: wants credentials ({}): http://USER:PASSWORD@HOST:PORT", who, said)
                     : fmt::format("{}: does not take these credentials ({})", who, said)};
  }
  if (status->code / 100 == 4 && status->code != 408 && status->code != 429) {
    return Error{Code::kPermissionDenied, fmt::format("{}: refuses to connect there ({})", who, said)};
  }
  return Error{Code::kUnavailable, fmt::format("{}: did not connect ({})", who, said)};
}

}  // namespace fluvial::net
