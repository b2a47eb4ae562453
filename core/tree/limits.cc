#include "core/tree/limits.h"

#include <sys/resource.h>

namespace fluvial::tree {
namespace {

std::uint64_t number(rlim_t limit) { return limit == RLIM_INFINITY ? kUnlimited : limit; }

std::string text(std::uint64_t limit) { return limit == kUnlimited ? "null" : std::to_string(limit); }

}  // namespace

Limits own_limits() {
  struct rlimit files{};
  struct rlimit locked{};
  ::getrlimit(RLIMIT_NOFILE, &files);
  ::getrlimit(RLIMIT_MEMLOCK, &locked);
  return {number(files.rlim_cur), number(files.rlim_max), number(locked.rlim_cur)};
}

std::string to_json(const Limits& limits) {
  return R"({"open_files": )" + text(limits.open_files_soft) + R"(, "open_files_hard": )" +
         text(limits.open_files_hard) + R"(, "locked_bytes": )" + text(limits.locked_bytes) + "}";
}

}  // namespace fluvial::tree
