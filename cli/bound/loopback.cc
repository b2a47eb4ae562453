#include "cli/bound/loopback.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <limits>
#include <thread>
#include <vector>

#include "cli/bound/stopwatch.h"

namespace fluvial::cli::bound {
namespace {

constexpr std::size_t kBlockBytes = std::size_t{256} << 10;  // what a session hands to the kernel at once
constexpr std::size_t kBlocks = 256;                         // 64 MiB a turn
constexpr int kTrips = 2'000;

class Descriptor {
 public:
  explicit Descriptor(int descriptor = -1) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(other.descriptor_) { other.descriptor_ = -1; }
  Descriptor& operator=(Descriptor&&) = delete;
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }

 private:
  int descriptor_;
};

struct Connection {
  Descriptor near;
  Descriptor far;
};

Error refused(const char* what) {
  return {Code::kUnavailable, std::string("no connection over the loopback: ") + what};
}

Result<Connection> connect_to_self() {
  const Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  auto* raw = reinterpret_cast<sockaddr*>(&address);  // NOLINT
  socklen_t length = sizeof address;
  if (::bind(listener.get(), raw, length) != 0 || ::listen(listener.get(), 1) != 0 ||
      ::getsockname(listener.get(), raw, &length) != 0) {
    return refused("listening");
  }
  Descriptor near(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (::connect(near.get(), raw, length) != 0) return refused("connecting");
  Descriptor far(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (far.get() < 0) return refused("accepting");
  const int on = 1;
  for (const int descriptor : {near.get(), far.get()})
    ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return Connection{std::move(near), std::move(far)};
}

bool give(int descriptor, const char* bytes, std::size_t count) {
  while (count > 0) {
    const ssize_t sent = ::send(descriptor, bytes, count, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes += sent;
    count -= static_cast<std::size_t>(sent);
  }
  return true;
}

bool take(int descriptor, char* bytes, std::size_t room, std::size_t count) {
  while (count > 0) {
    const ssize_t got = ::recv(descriptor, bytes, std::min(room, count), 0);
    if (got <= 0) return false;
    count -= static_cast<std::size_t>(got);
  }
  return true;
}

// The far end of both probes: receives what a turn sends, answers with a byte.
void answer(int descriptor, std::atomic<bool>& good) {
  std::vector<char> block(kBlockBytes);
  for (int trip = 0; trip < kTrips; ++trip) {
    if (!take(descriptor, block.data(), 1, 1) || !give(descriptor, block.data(), 1)) good = false;
  }
  for (int turn = 0; turn < kTurns; ++turn) {
    if (!take(descriptor, block.data(), block.size(), kBlocks * kBlockBytes) || !give(descriptor, block.data(), 1))
      good = false;
  }
}

}  // namespace

Result<LoopbackCosts> probe_loopback() {
  FLUVIAL_ASSIGN(const Connection connection, connect_to_self());
  std::atomic<bool> good = true;
  std::thread far(answer, connection.far.get(), std::ref(good));
  std::vector<char> block(kBlockBytes, 'x');
  LoopbackCosts costs{.alpha_s = std::numeric_limits<double>::infinity()};
  char byte = 0;
  for (int trip = 0; trip < kTrips; ++trip) {
    const double began = seconds_on(Clock::kWall);
    if (!give(connection.near.get(), &byte, 1) || !take(connection.near.get(), &byte, 1, 1)) good = false;
    costs.alpha_s = std::min(costs.alpha_s, (seconds_on(Clock::kWall) - began) / 2);
  }
  costs.cpu_s_byte = best_seconds(Clock::kProcess, [&] {
    for (std::size_t i = 0; i < kBlocks; ++i) {
      if (!give(connection.near.get(), block.data(), block.size())) good = false;
    }
    if (!take(connection.near.get(), &byte, 1, 1)) good = false;
  });
  costs.cpu_s_byte /= static_cast<double>(kBlocks * kBlockBytes);
  ::shutdown(connection.near.get(), SHUT_RDWR);
  far.join();
  if (!good) return refused("it broke");
  return costs;
}

}  // namespace fluvial::cli::bound
