#include "coordinator/service/machine_users.h"

#include <grp.h>
#include <pwd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>

namespace fluvial::coordinator {
namespace {

constexpr std::size_t kEntryBytes = 64 * 1024;  // a group may have many members

bool is_number(const std::string& text, std::uint32_t* number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *number);
  return error == std::errc() && end == text.data() + text.size();
}

// getpwnam(3): these mean, too, that there is none of that name. Others may pass.
bool is_unknown(int error) {
  return error == 0 || error == ENOENT || error == ESRCH || error == EBADF || error == EPERM;
}

Error not_found(int error, const std::string& what) {
  if (is_unknown(error)) return {Code::kNotFound, "this machine has no " + what};
  return {Code::kUnavailable, "the name service does not answer for the " + what + ": " + std::strerror(error)};
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
  const int error = ::getpwnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (error != 0 || found == nullptr) return not_found(error, "user '" + name + "'");
  return entry.pw_uid;
}

Result<std::uint32_t> group_id(const std::string& name) {
  std::uint32_t number = 0;
  if (is_number(name, &number)) return number;
  std::string buffer(kEntryBytes, '\0');
  group entry{};
  group* found = nullptr;
  const int error = ::getgrnam_r(name.c_str(), &entry, buffer.data(), buffer.size(), &found);
  if (error != 0 || found == nullptr) return not_found(error, "group '" + name + "'");
  return entry.gr_gid;
}

store::AuditUser own_user() { return {::geteuid(), ::getpid(), user_name(::geteuid())}; }

}  // namespace fluvial::coordinator
