#include "tests/integration/netns.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "core/base/check.h"

namespace fluvial::integration {
namespace {

constexpr std::uint32_t kNetwork = 0x0A530000;  // 10.83.0.0
constexpr std::uint32_t kMask = 0xFFFF0000;
constexpr std::size_t kNodesMax = 250;
constexpr std::size_t kPacketBytesMax = 2048;  // of a device with the usual MTU of 1500
constexpr std::size_t kBatchPackets = 64;
constexpr auto kQueueMax = std::chrono::milliseconds(200);  // at a wire's rate; what comes then is dropped
constexpr const char* kEnter = "/usr/bin/nsenter";

Error no_network(const char* what) {
  return {Code::kFailedPrecondition, fmt::format("{}: {}", what, ::strerror(errno))};  // NOLINT(concurrency-mt-unsafe)
}

ifreq request(const char* device) {
  ifreq request{};
  std::strncpy(request.ifr_name, device, IFNAMSIZ - 1);
  return request;
}

ifreq with_address(ifreq request, std::uint32_t address) {
  sockaddr_in at{};
  at.sin_family = AF_INET;
  at.sin_addr.s_addr = htonl(address);
  std::memcpy(&request.ifr_addr, &at, sizeof at);
  return request;
}

Status bring_up(int socket, const char* device) {
  ifreq flags = request(device);
  if (::ioctl(socket, SIOCGIFFLAGS, &flags) != 0) return no_network("cannot read a device's flags");
  flags.ifr_flags = static_cast<short>(flags.ifr_flags | IFF_UP | IFF_RUNNING);
  if (::ioctl(socket, SIOCSIFFLAGS, &flags) != 0) return no_network("cannot bring a device up");
  return {};
}

struct Namespace {
  local::UniqueFd net;
  local::UniqueFd tun;
};

// On a thread of its own, which ends in the namespace that it made.
Result<Namespace> make_namespace(std::uint32_t address) {
  if (::unshare(CLONE_NEWNET) != 0) return no_network("cannot make a network namespace");
  Namespace made;
  made.net = local::UniqueFd(::open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC));
  if (!made.net.valid()) return no_network("cannot open the network namespace");
  made.tun = local::UniqueFd(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!made.tun.valid()) return no_network("cannot open /dev/net/tun");
  ifreq device = request("wire");
  device.ifr_flags = IFF_TUN | IFF_NO_PI;
  if (::ioctl(made.tun.get(), TUNSETIFF, &device) != 0) return no_network("cannot make a TUN device");
  const local::UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  const ifreq own = with_address(device, address);
  const ifreq mask = with_address(device, kMask);
  if (::ioctl(socket.get(), SIOCSIFADDR, &own) != 0) return no_network("cannot set a device's address");
  if (::ioctl(socket.get(), SIOCSIFNETMASK, &mask) != 0) return no_network("cannot set a device's network");
  FLUVIAL_TRY(bring_up(socket.get(), "lo"));
  FLUVIAL_TRY(bring_up(socket.get(), "wire"));
  return made;
}

// 0: not for us (IPv6, multicast).
std::size_t node_of(const std::vector<char>& packet) {
  std::uint32_t to = 0;
  if (packet.size() < 20 || (packet[0] & 0xF0) != 0x40) return 0;
  std::memcpy(&to, packet.data() + 16, sizeof to);
  to = ntohl(to);
  return (to & kMask) == kNetwork ? to - kNetwork : 0;
}

}  // namespace

Result<std::unique_ptr<VirtualNetwork>> VirtualNetwork::create() {
  if (::access(kEnter, X_OK) != 0) return no_network(kEnter);
  std::unique_ptr<VirtualNetwork> network(new VirtualNetwork());
  FLUVIAL_TRY(network->add("nowhere"));  // whoever may not make one hears it here
  return network;
}

VirtualNetwork::VirtualNetwork() : wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  FLUVIAL_CHECK(wake_.valid(), "an event descriptor can be had");
  thread_ = std::thread([this] { run(); });
}

VirtualNetwork::~VirtualNetwork() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

void VirtualNetwork::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

Result<cli::Place> VirtualNetwork::add(const std::string& place) {
  std::uint32_t address = 0;
  {
    const std::lock_guard lock(mutex_);
    FLUVIAL_CHECK(nodes_.size() < kNodesMax, "a test has few nodes");
    address = kNetwork + static_cast<std::uint32_t>(nodes_.size()) + 1;
  }
  Result<Namespace> made = Error{Code::kInternal, "not asked"};
  std::thread([&] { made = make_namespace(address); }).join();
  if (!made.ok()) return made.error();
  const int net = made->net.get();
  {
    const std::lock_guard lock(mutex_);
    nodes_.push_back({place, std::move(made->net), std::move(made->tun)});
  }
  wake();
  const in_addr text{htonl(address)};
  std::array<char, INET_ADDRSTRLEN> host{};
  ::inet_ntop(AF_INET, &text, host.data(), host.size());
  return cli::Place{.host = host.data(),
                    .launcher = {kEnter, fmt::format("--net=/proc/{}/fd/{}", ::getpid(), net), "--"},
                    .reach = [net](const std::function<void()>& body) {
                      std::thread([&] {
                        FLUVIAL_CHECK(::setns(net, CLONE_NEWNET) == 0, "who made a namespace may enter it");
                        body();
                      }).join();
                    }};
}

void VirtualNetwork::set_wire(const std::string& one, const std::string& other, const Wire& wire) {
  const std::lock_guard lock(mutex_);
  wires_[{one, other}].wire = wire;
  wires_[{other, one}].wire = wire;
}

void VirtualNetwork::set_cut_off(const std::string& place, bool cut_off) {
  const std::lock_guard lock(mutex_);
  cut_off_[place] = cut_off;
}

VirtualNetwork::Counts VirtualNetwork::counts() const {
  const std::lock_guard lock(mutex_);
  return counts_;
}

// ---- the thread ---------------------------------------------------------------------------------------------------

void VirtualNetwork::run() {
  std::vector<pollfd> fds;
  for (;;) {
    timespec until{};
    bool has_due = false;
    fds = {{wake_.get(), POLLIN, 0}};
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      for (const Node& node : nodes_) fds.push_back({node.tun.get(), POLLIN, 0});
      has_due = !on_the_way_.empty();
      if (has_due) {
        const auto left = std::max(on_the_way_.top().due - std::chrono::steady_clock::now(), Instant::duration(0));
        const auto whole = std::chrono::floor<std::chrono::seconds>(left);
        until = {whole.count(), std::chrono::nanoseconds(left - whole).count()};
      }
    }
    ::ppoll(fds.data(), fds.size(), has_due ? &until : nullptr, nullptr);
    std::uint64_t ignored = 0;
    (void)!::read(wake_.get(), &ignored, sizeof ignored);
    const std::lock_guard lock(mutex_);
    const Instant now = std::chrono::steady_clock::now();
    for (std::size_t i = 1; i < fds.size(); ++i) {
      if (fds[i].revents != 0) take_from(i - 1, now);
    }
    deliver(now);
  }
}

void VirtualNetwork::take_from(std::size_t from, Instant now) {
  for (std::size_t i = 0; i < kBatchPackets; ++i) {
    std::vector<char> bytes(kPacketBytesMax);
    const ssize_t count = ::read(nodes_[from].tun.get(), bytes.data(), bytes.size());
    if (count <= 0) return;
    bytes.resize(static_cast<std::size_t>(count));
    route(from, std::move(bytes), now);
  }
}

void VirtualNetwork::route(std::size_t from, std::vector<char> bytes, Instant now) {
  const std::size_t number = node_of(bytes);
  if (number == 0 || number > nodes_.size()) return;
  const std::string& here = nodes_[from].place;
  const std::string& there = nodes_[number - 1].place;
  Instant due = now;
  if (here != there) {
    if (cut_off_[here] || cut_off_[there]) {
      ++counts_.cut_off;
      return;
    }
    WireState& state = wires_[{here, there}];
    if (rng_.uniform() < state.wire.loss) {
      ++counts_.lost;
      return;
    }
    if (state.wire.rate_bytes_per_s > 0) {
      if (state.free_at > now + kQueueMax) return;
      const std::chrono::nanoseconds takes(bytes.size() * 1'000'000'000 / state.wire.rate_bytes_per_s);
      due = state.free_at = std::max(now, state.free_at) + takes;
    }
    due += state.wire.delay;
  }
  ++counts_.carried;
  on_the_way_.push({due, ++packets_, number - 1, std::move(bytes)});
}

void VirtualNetwork::deliver(Instant now) {
  while (!on_the_way_.empty() && on_the_way_.top().due <= now) {
    const Packet& packet = on_the_way_.top();
    // A device that takes nothing drops it, as devices do.
    (void)!::write(nodes_[packet.to].tun.get(), packet.bytes.data(), packet.bytes.size());
    on_the_way_.pop();
  }
}

}  // namespace fluvial::integration
