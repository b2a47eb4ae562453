#include "core/identity/names.h"

#include <algorithm>
#include <charconv>

#include "core/base/name_rule.h"

namespace fluvial::identity {
namespace {

constexpr int kRegionSegmentsMax = 8;
constexpr std::string_view kSeveral = "-*";
constexpr std::size_t kOwnDigits = 12;  // of a serial, 48 bits: no two members of a token get the same name
constexpr std::string_view kScheme = "fluvial://";

// For messages: a text from a peer or a person, short and printable.
std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, 80)) out += (c >= 0x20 && c < 0x7f) ? c : '?';
  return out + (text.size() > 80 ? "...\"" : "\"");
}

// Everything up to the next '/', which is consumed; the rest when there is none.
std::string_view next_part(std::string_view& rest) {
  const std::size_t slash = rest.find('/');
  const std::string_view part = rest.substr(0, slash);
  rest = slash == std::string_view::npos ? std::string_view() : rest.substr(slash + 1);
  return part;
}

}  // namespace

Status check_node_name(std::string_view name) {
  if (is_plain_name(name)) return {};
  return Error{
      Code::kInvalidArgument,
      "name " + quoted(name) + " is not 1 to 63 characters of a-z 0-9 . _ - that start with a letter or digit"};
}

bool names_several(std::string_view token_name) { return token_name.ends_with(kSeveral); }

Status check_token_name(std::string_view name) {
  if (!names_several(name)) return check_node_name(name);
  name.remove_suffix(kSeveral.size());
  FLUVIAL_TRY(check_node_name(name));
  if (name.size() + 1 + kOwnDigits <= kNameCharsMax) return {};
  return Error{Code::kInvalidArgument,
               "name " + quoted(name) + " has more than 50 characters: each of several members " + "gets 13 more"};
}

bool is_for(std::string_view token_name, std::string_view member_name) {
  if (!names_several(token_name)) return token_name == member_name;
  token_name.remove_suffix(1);  // the dash stays
  return member_name.size() == token_name.size() + kOwnDigits && member_name.starts_with(token_name);
}

std::string member_name(std::string_view token_name, std::string_view serial_hex) {
  if (!names_several(token_name)) return std::string(token_name);
  token_name.remove_suffix(1);
  return std::string(token_name) +
         std::string(serial_hex.substr(serial_hex.size() - std::min(serial_hex.size(), kOwnDigits)));
}

Status check_region(std::string_view region) {
  if (region.empty()) return {};
  bool good = region.back() != '/';
  int segments = 0;
  for (std::string_view rest = region; good && !rest.empty();) {
    good = is_plain_name(next_part(rest)) && ++segments <= kRegionSegmentsMax;
  }
  if (good) return {};
  return Error{Code::kInvalidArgument,
               "region " + quoted(region) + " is not 1 to 8 names (a-z 0-9 . _ -) joined by '/', such as eu/west"};
}

Result<Role> role_from_name(std::string_view name) {
  for (const Role role : {Role::kCoordinator, Role::kAggregator, Role::kSite, Role::kOperator}) {
    if (name == role_name(role)) return role;
  }
  return Error{Code::kInvalidArgument, "role " + quoted(name) + " is not coordinator, aggregator, site or operator"};
}

std::string member_uri(const Member& member) {
  return std::string(kScheme) + std::string(role_name(member.role)) + "/" + std::to_string(member.node.value()) + "/" +
         member.name;
}

Result<Member> member_from_uri(std::string_view uri) {
  const Error refused{Code::kInvalidArgument, quoted(uri) + " is not fluvial://ROLE/NODE/NAME"};
  if (!uri.starts_with(kScheme)) return refused;
  std::string_view rest = uri.substr(kScheme.size());
  const auto role = role_from_name(next_part(rest));
  const std::string_view digits = next_part(rest);
  NodeId::rep node = 0;
  const auto [end, failure] = std::from_chars(digits.data(), digits.data() + digits.size(), node);
  if (!role.ok() || failure != std::errc() || end != digits.data() + digits.size() || node == 0 ||
      !is_plain_name(rest)) {
    return refused;
  }
  Member member{*role, NodeId(node), std::string(rest)};
  if (member_uri(member) != uri) return refused;  // such as a node with leading zeros
  return member;
}

std::string describe(const Member& member) {
  return std::string(role_name(member.role)) + " " + std::to_string(member.node.value()) + " (" + member.name + ")";
}

}  // namespace fluvial::identity
