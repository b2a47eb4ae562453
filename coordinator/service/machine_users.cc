#include "coordinator/service/machine_users.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <charconv>

namespace fluvial::coordinator {
namespace {

constexpr std::size_t kEntryBytes = 64 * 1024;  // a group may have many members

bool is_number(const std::string& text, std::uint32_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string user_name(std::uint32_t uid) {
  std::string buffer(kEntryBytes, '\0');
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) return "";
  return entry.pw_name;
}

Result<std::uint32_t> user_id(const std::string& name) {
  std::uint32_t number = 0;
  if (is_number(name, &number)) return number;
  std::string buffer(kEntryBytes, '\0');
  passwd entry{};
  passwd* found = nullptr;
  if (::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return Error{Code::kNotFound, "this machine has no user '" + name + "'"};
  }
  return entry.pw_uid;
}

Result<std::uint32_t> group_id(const std::string& name) {
  std::uint32_t number = 0;
  if (is_number(name, &number)) return number;
  std::string buffer(kEntryBytes, '\0');
  group entry{};
  group* found = nullptr;
  if (::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found) != 0 || found == nullptr) {
    return Error{Code::kNotFound, "this machine has no group '" + name + "'"};
  }
  return entry.gr_gid;
}

store::AuditUser own_user() { return {::geteuid(), ::getpid(), user_name(::geteuid())}; }

}  // namespace fluvial::coordinator
