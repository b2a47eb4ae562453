// Names of members and regions, and the URI that ties a certificate to a member. Pure text: no OpenSSL.
#pragma once

#include <string>
#include <string_view>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::identity {

// 1 to 63 characters: a lower-case letter or digit, then lower-case letters, digits, '.', '_' or '-'.
Status check_node_name(std::string_view name);

// A token names one member, or with "PREFIX-*" as many as it has uses. Each of these gets a name of its own from its
// certificate's serial, so the same token and key always make the same member. The prefix has at most 50
// characters.
Status check_token_name(std::string_view name);
bool names_several(std::string_view token_name);
bool is_for(std::string_view token_name, std::string_view member_name);
std::string member_name(std::string_view token_name, std::string_view serial_hex);

// Where a member stands, from the widest to the narrowest: 1 to 8 node names joined by '/', such as "eu/west/paris".
// The empty region is valid: it means "anywhere".
Status check_region(std::string_view region);

Result<Role> role_from_name(std::string_view name);  // the inverse of role_name()

struct Member {
  Role role = Role::kSite;
  NodeId node;
  std::string name;
  bool operator==(const Member&) const = default;
};

std::string member_uri(const Member& member);          // "fluvial://site/7/hospital-a"
Result<Member> member_from_uri(std::string_view uri);  // strict: the exact text member_uri() makes, node > 0
std::string describe(const Member& member);            // "site 7 (hospital-a)", for messages

}  // namespace fluvial::identity
