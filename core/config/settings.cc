#include "core/config/settings.h"

#include <arpa/inet.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <span>

#include "core/config/declaration.h"

namespace fluvial::config {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

constexpr Unit kByteUnits[] = {
    {"", 1},      {"B", 1},        {"kB", 1e3},        {"MB", 1e6},           {"GB", 1e9},
    {"TB", 1e12}, {"KiB", 1024.0}, {"MiB", 1048576.0}, {"GiB", 1073741824.0}, {"TiB", 1099511627776.0},
};
constexpr Unit kMillisecondUnits[] = {{"", 1}, {"ms", 1}, {"s", 1e3}, {"m", 6e4}, {"h", 3.6e6}, {"d", 8.64e7}};
constexpr Unit kSecondUnits[] = {{"", 1}, {"ms", 1e-3}, {"s", 1}, {"m", 60}, {"h", 3600}, {"d", 86400}};

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

// A number and a unit. Whole numbers are exact up to 2^64; with a unit the product must be whole and below 2^53.
Result<std::uint64_t> parse_quantity(std::string_view text, std::span<const Unit> units, std::string_view expected) {
  const Error bad{Code::kInvalidArgument, "expected " + std::string(expected)};
  text = trim(text);
  std::uint64_t whole = 0;
  const char* end = text.data() + text.size();
  const auto [after_whole, whole_error] = std::from_chars(text.data(), end, whole);
  if (whole_error == std::errc{} && after_whole == end) return whole;
  if (text.empty() || text.front() < '0' || text.front() > '9') return bad;  // no sign, no "inf"
  double number = 0;
  const auto [after, error] = std::from_chars(text.data(), end, number, std::chars_format::fixed);
  if (error != std::errc{}) return bad;
  const std::string_view name = trim(std::string_view(after, static_cast<std::size_t>(end - after)));
  for (const Unit& unit : units) {
    if (unit.name != name) continue;
    const double value = number * unit.factor;
    const double nearest = std::round(value);
    if (!(value < 0x1p53) || std::abs(value - nearest) > 1e-6 * std::max(1.0, value)) return bad;
    return static_cast<std::uint64_t>(nearest);
  }
  return bad;
}

bool is_host(std::string_view host) {
  if (host.empty() || host.size() > 253) return false;
  for (const char c : host) {
    const bool fine =
        (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '-' || c == '_';
    if (!fine) return false;
  }
  return true;
}

bool is_ipv6(std::string_view host) {
  if (host.size() < 2 || host.find(':') == std::string_view::npos) return false;
  return host.find_first_not_of("0123456789abcdefABCDEF:.%") == std::string_view::npos;
}

// "cuda", "cuda:12"; emulated ones for tests
bool is_device_name(std::string_view name) {
  const std::string_view kind = name.substr(0, name.find(':'));
  if (kind != "cuda" && kind != "emulated") return false;
  if (kind == name) return true;
  const std::string_view index = name.substr(kind.size() + 1);
  return !index.empty() && index.size() <= 4 && index.find_first_not_of("0123456789") == std::string_view::npos;
}

template <typename Settings>
Status check_each(const Settings& settings) {
  Settings copy = settings;
  for (const Setting<Settings>& setting : declaration<Settings>()) {
    const std::string value = setting.get(settings);
    if (value.empty() && setting.required) return Error{Code::kInvalidArgument, setting.key + " is missing"};
    if (value.empty()) continue;
    const Status status = setting.set(copy, value);
    if (!status.ok()) {
      return Error{Code::kInvalidArgument, setting.key + " = '" + value + "': " + status.error().message};
    }
  }
  if (const auto problem = find_conflict(settings)) {
    return Error{Code::kInvalidArgument, problem->key + " = '" + problem->value + "': expected " + problem->expected};
  }
  return {};
}

}  // namespace

std::chrono::seconds CoordinatorSettings::certificate_validity() const {
  if (certificate_days != 0) return std::chrono::days(certificate_days);
  return std::chrono::seconds(certificate_validity_s);
}

Status check_settings(const CoordinatorSettings& settings) { return check_each(settings); }
Status check_settings(const AggregatorSettings& settings) { return check_each(settings); }
Status check_settings(const EdgeSettings& settings) { return check_each(settings); }

Result<std::uint64_t> parse_bytes(std::string_view text) {
  return parse_quantity(text, kByteUnits, "a size such as 268435456, 256MiB or 1.5GB");
}
Result<std::uint64_t> parse_milliseconds(std::string_view text) {
  return parse_quantity(text, kMillisecondUnits, "a duration such as 500ms, 30s, 10m or 2h, or a number of ms");
}
Result<std::uint64_t> parse_seconds(std::string_view text) {
  return parse_quantity(text, kSecondUnits, "a duration such as 30s, 10m, 2h or 7d, or a number of s");
}

Result<std::vector<std::string>> parse_gpus(std::string_view text) {
  const Error bad{Code::kInvalidArgument, "expected auto, none, or devices such as cuda:0 or cuda:0,cuda:1, each once"};
  std::vector<std::string> names;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string name(trim(text.substr(begin, comma - begin)));
    begin = comma + 1;
    if (!is_device_name(name) || std::ranges::find(names, name) != names.end()) return bad;
    names.push_back(name);
  }
  return names;
}

Result<HostPort> parse_host_port(std::string_view text) {
  const Error bad{Code::kInvalidArgument, "expected host:port"};
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return bad;
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  HostPort address;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), address.port);
  if (error != std::errc{} || end != digits.data() + digits.size()) {
    return Error{Code::kInvalidArgument, "expected host:port with a port from 0 to 65535"};
  }
  if (host.empty()) {
    address.host = "0.0.0.0";
    return address;
  }
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (!is_ipv6(host)) return bad;
  } else if (!is_host(host)) {
    return bad;
  }
  address.host = host;
  return address;
}

bool is_bare_host(std::string_view text) {
  const std::string host(text);  // with a zero at its end
  in6_addr address{};            // large enough for either
  if (host.find(':') != std::string::npos) return ::inet_pton(AF_INET6, host.c_str(), &address) == 1;
  const bool is_number = host.find_first_not_of("0123456789.") == std::string::npos;
  if (is_number) return ::inet_pton(AF_INET, host.c_str(), &address) == 1;
  return is_host(host) && !host.starts_with('.') && !host.ends_with('.') && host.find("..") == std::string::npos;
}

std::string format_host_port(const HostPort& address) {
  const bool brackets = address.host.find(':') != std::string::npos;
  return (brackets ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace fluvial::config
