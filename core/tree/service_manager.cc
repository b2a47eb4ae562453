#include "core/tree/service_manager.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>

namespace fluvial::tree {
namespace {

constexpr std::uint64_t kWatchdogUsecMax = std::uint64_t{1} << 50;  // 35 years: twice that is still a Duration

std::optional<std::uint64_t> number_of(const std::optional<std::string>& text) {
  if (!text) return std::nullopt;
  std::uint64_t value = 0;
  const char* const end = text->data() + text->size();
  const auto parsed = std::from_chars(text->data(), end, value);
  if (parsed.ec != std::errc() || parsed.ptr != end) return std::nullopt;
  return value;
}

bool is_address(const std::string& name) {
  return name.size() > 1 && (name[0] == '/' || name[0] == '@') && name.size() < sizeof(sockaddr_un::sun_path);
}

}  // namespace

ServiceManager::ServiceManager(const config::Environment& environment) {
  const std::string name = environment("NOTIFY_SOCKET").value_or("");
  if (!is_address(name)) return;
  socket_ = name;
  const auto watchdog_usec = number_of(environment("WATCHDOG_USEC"));
  const std::optional<std::string> of = environment("WATCHDOG_PID");  // inherited from a parent it is not for us
  if (!watchdog_usec || *watchdog_usec < 2 || *watchdog_usec > kWatchdogUsecMax) return;
  if (of && number_of(of) != static_cast<std::uint64_t>(::getpid())) return;
  heartbeat_ = std::chrono::microseconds(*watchdog_usec / 2);
}

void ServiceManager::tell(std::string_view lines) const {
  if (socket_.empty()) return;
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::copy(socket_.begin(), socket_.end(), address.sun_path);
  if (address.sun_path[0] == '@') address.sun_path[0] = '\0';
  // An abstract name is as long as it is said to be; a path ends with a zero.
  const std::size_t size = offsetof(sockaddr_un, sun_path) + socket_.size() + (socket_[0] == '@' ? 0 : 1);
  const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return;
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): what the socket API takes
  const auto* const to = reinterpret_cast<const sockaddr*>(&address);
  (void)!::sendto(fd, lines.data(), lines.size(), MSG_NOSIGNAL, to, static_cast<socklen_t>(size));  // its own affair
  ::close(fd);
}

}  // namespace fluvial::tree
