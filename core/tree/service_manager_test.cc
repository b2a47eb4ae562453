#include "core/tree/service_manager.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cstddef>
#include <map>

namespace fluvial::tree {
namespace {

config::Environment with(std::map<std::string, std::string> values) {
  return [values = std::move(values)](const std::string& name) -> std::optional<std::string> {
    const auto found = values.find(name);
    if (found == values.end()) return std::nullopt;
    return found->second;
  };
}

// What a service manager holds: a datagram socket under a path or an abstract name.
class Listener {
 public:
  explicit Listener(const std::string& name) : name_(name), fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path, sizeof address.sun_path - 1);
    std::size_t size = sizeof address;
    if (name[0] == '@') {
      address.sun_path[0] = '\0';
      size = offsetof(sockaddr_un, sun_path) + name.size();
    }
    EXPECT_EQ(::bind(fd_, reinterpret_cast<const sockaddr*>(&address), static_cast<socklen_t>(size)), 0) << name;
  }
  ~Listener() {
    ::close(fd_);
    ::unlink(name_.c_str());
  }
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  std::string heard() {  // empty: nothing
    std::array<char, 256> text{};
    const ssize_t size = ::recv(fd_, text.data(), text.size(), 0);
    return size < 0 ? "" : std::string(text.data(), static_cast<std::size_t>(size));
  }
  // Datagrams until its queue is full, as for a manager that hangs.
  void fill(const ServiceManager& manager) const {
    for (int i = 0; i < 10'000; ++i) manager.tell("STATUS=and another");
  }

 private:
  std::string name_;
  int fd_;
};

std::string of_this_process(const std::string& prefix) {
  return prefix + "fluvial-notify-" + std::to_string(::getpid()) + "-" +
         ::testing::UnitTest::GetInstance()->current_test_info()->name();
}

TEST(ServiceManager, HearsItUnderAPath) {
  Listener listener(of_this_process("/tmp/"));
  const ServiceManager manager(with({{"NOTIFY_SOCKET", of_this_process("/tmp/")}}));
  manager.tell("READY=1\nSTATUS=ready");
  EXPECT_EQ(listener.heard(), "READY=1\nSTATUS=ready");
  manager.tell("STOPPING=1");
  EXPECT_EQ(listener.heard(), "STOPPING=1");
  EXPECT_EQ(listener.heard(), "");
  EXPECT_FALSE(manager.heartbeat().has_value());
}

TEST(ServiceManager, HearsItUnderAnAbstractName) {
  Listener listener(of_this_process("@"));
  ServiceManager(with({{"NOTIFY_SOCKET", of_this_process("@")}})).tell("WATCHDOG=1");
  EXPECT_EQ(listener.heard(), "WATCHDOG=1");
}

TEST(ServiceManager, MayHangOrBeAway) {
  const auto environment = with({{"NOTIFY_SOCKET", of_this_process("@")}});
  const ServiceManager manager(environment);
  manager.tell("READY=1");  // nobody listens there yet
  Listener listener(of_this_process("@"));
  listener.fill(manager);
  EXPECT_EQ(listener.heard(), "STATUS=and another");
}

TEST(ServiceManager, IsNoneWithoutASocketThatCanBe) {
  const std::string too_long(200, 'x');
  for (const std::string& name : {std::string(), std::string("@"), std::string("relative"), "/" + too_long}) {
    const ServiceManager manager(with({{"NOTIFY_SOCKET", name}, {"WATCHDOG_USEC", "1000000"}}));
    EXPECT_FALSE(manager.heartbeat().has_value()) << name;
    manager.tell("READY=1");
  }
}

TEST(ServiceManager, IsToldInHalfItsPatience) {
  const std::string self = std::to_string(::getpid());
  const auto heartbeat = [](std::map<std::string, std::string> values) {
    values["NOTIFY_SOCKET"] = "@nobody";
    return ServiceManager(with(std::move(values))).heartbeat();
  };
  EXPECT_EQ(heartbeat({{"WATCHDOG_USEC", "120000000"}, {"WATCHDOG_PID", self}}), Duration(std::chrono::seconds(60)));
  EXPECT_EQ(heartbeat({{"WATCHDOG_USEC", "120000000"}}), Duration(std::chrono::seconds(60)));
  EXPECT_EQ(heartbeat({{"WATCHDOG_USEC", "120000000"}, {"WATCHDOG_PID", "1" + self}}), std::nullopt);
  EXPECT_EQ(heartbeat({{"WATCHDOG_USEC", "120000000"}, {"WATCHDOG_PID", ""}}), std::nullopt);
  for (const char* bad : {"", "0", "1", "-5", "10s", "99999999999999999999", "18446744073709551615"}) {
    EXPECT_EQ(heartbeat({{"WATCHDOG_USEC", bad}, {"WATCHDOG_PID", self}}), std::nullopt) << bad;
  }
}

}  // namespace
}  // namespace fluvial::tree
