#include "tests/integration/gate.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>

#include "core/base/check.h"

namespace fluvial::integration {
namespace {

constexpr std::size_t kBlockBytes = 64 << 10;
constexpr std::size_t kKeptBytesMax = 1 << 20;  // of one way of a connection; then its sender is held back
constexpr std::uint64_t kWritesPerSecond = 50;  // at a limited rate

std::size_t index_of(Way way) { return way == Way::kUp ? 0 : 1; }
Way way_of(std::size_t index) { return index == 0 ? Way::kUp : Way::kDown; }

sockaddr_in loopback(std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

local::UniqueFd new_socket() { return local::UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)); }

void prepare(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
}

bool would_block() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

TcpGate::TcpGate() : listener_(new_socket()), wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  sockaddr_in address = loopback(0);
  socklen_t size = sizeof address;
  const bool listens = ::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                       ::listen(listener_.get(), 64) == 0 &&
                       ::getsockname(listener_.get(), reinterpret_cast<sockaddr*>(&address), &size) == 0;
  FLUVIAL_CHECK(listens && wake_.valid(), "a port on the loopback can be had");
  port_ = ntohs(address.sin_port);
  thread_ = std::thread([this] { run(); });
}

TcpGate::~TcpGate() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake();
  thread_.join();
}

void TcpGate::wake() const {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);
}

// ---- what it is told ----------------------------------------------------------------------------------------------

void TcpGate::set_target(std::uint16_t port) {
  const std::lock_guard lock(mutex_);
  target_ = port;
}

std::uint16_t TcpGate::target() const {
  const std::lock_guard lock(mutex_);
  return target_;
}

void TcpGate::set(Way way, const Traffic& traffic) {
  {
    const std::lock_guard lock(mutex_);
    ways_[index_of(way)].traffic = traffic;
  }
  wake();
}

void TcpGate::set(const Traffic& traffic) {
  set(Way::kUp, traffic);
  set(Way::kDown, traffic);
}

void TcpGate::refuse(bool refuses) {
  const std::lock_guard lock(mutex_);
  refuses_ = refuses;
}

void TcpGate::arm(Way way, Action action, std::uint64_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    WayState& state = ways_[index_of(way)];
    state.armed = Armed{action, state.forwarded + bytes};
  }
  wake();
}

void TcpGate::cut_after(Way way, std::uint64_t bytes) { arm(way, Action::kCut, bytes); }
void TcpGate::hold_after(Way way, std::uint64_t bytes) { arm(way, Action::kHold, bytes); }
void TcpGate::corrupt_after(Way way, std::uint64_t bytes) { arm(way, Action::kCorrupt, bytes); }

void TcpGate::cut_all(Way way) {
  {
    const std::lock_guard lock(mutex_);
    for (Connection& connection : connections_) cut(connection, way);
  }
  wake();
}

void TcpGate::wait_done(Way way) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !ways_[index_of(way)].armed; });
}

std::uint64_t TcpGate::forwarded(Way way) const {
  const std::lock_guard lock(mutex_);
  return ways_[index_of(way)].forwarded;
}

// ---- the thread ---------------------------------------------------------------------------------------------------

void TcpGate::run() {
  std::vector<pollfd> fds;
  for (;;) {
    int timeout_ms = -1;
    {
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      timeout_ms = interests(fds, std::chrono::steady_clock::now());
    }
    ::poll(fds.data(), fds.size(), timeout_ms);
    std::uint64_t drained = 0;
    (void)!::read(wake_.get(), &drained, sizeof drained);
    const std::lock_guard lock(mutex_);
    step(fds);
  }
}

// Two entries a connection, its child and its parent, after the two of our own. Nothing that is not awaited is polled:
// an end that may not be passed on yet would be reported again and again.
int TcpGate::interests(std::vector<pollfd>& fds, Instant now) {
  fds = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
  Instant next = Instant::max();
  for (Connection& connection : connections_) {
    std::array<short, 2> events{};  // of the child, of the parent
    if (connection.cut) {
      events[*connection.cut == Way::kUp ? 1 : 0] = POLLIN;
    } else {
      for (std::size_t i = 0; i < 2; ++i) {
        const Pipe& pipe = connection.pipes[i];
        if (!pipe.ended && pipe.waiting_bytes < kKeptBytesMax) events[i] |= POLLIN;
        const std::optional<Instant> at = may_write(pipe, ways_[i]);
        if (!at) continue;
        if (*at <= now) events[1 - i] |= POLLOUT;
        if (*at > now) next = std::min(next, *at);
      }
    }
    const std::array<int, 2> ends = {connection.child.get(), connection.parent.get()};
    for (std::size_t i = 0; i < 2; ++i) fds.push_back({events[i] == 0 ? -1 : ends[i], events[i], 0});
  }
  if (next == Instant::max()) return -1;
  return static_cast<int>(std::chrono::ceil<std::chrono::milliseconds>(next - now).count());
}

// None: not before something changes.
std::optional<TcpGate::Instant> TcpGate::may_write(const Pipe& pipe, const WayState& state) {
  if (!state.traffic.forwards || pipe.end_forwarded) return std::nullopt;
  if (!pipe.waiting.empty()) return std::max(pipe.waiting.front().due, state.may_write);
  if (pipe.ended) return Instant::min();
  return std::nullopt;
}

void TcpGate::step(const std::vector<pollfd>& fds) {
  const Instant now = std::chrono::steady_clock::now();
  std::size_t at = 2;
  for (auto connection = connections_.begin(); connection != connections_.end();) {
    if (at >= fds.size()) break;  // newer than what was polled
    const std::array<short, 2> came = {fds[at].revents, fds[at + 1].revents};
    at += 2;
    bool over = false;
    if (connection->cut) {
      over = came[*connection->cut == Way::kUp ? 1 : 0] != 0 && is_drained(*connection);
    } else {
      for (std::size_t i = 0; i < 2 && !connection->cut; ++i) {
        if (came[i] != 0) read(connection->pipes[i], now + ways_[i].traffic.delay);
        const std::optional<Instant> due = may_write(connection->pipes[i], ways_[i]);
        if (due && *due <= now) write(*connection, way_of(i), now);
      }
      over = connection->pipes[0].end_forwarded && connection->pipes[1].end_forwarded;
    }
    connection = over ? connections_.erase(connection) : std::next(connection);
  }
  if ((fds[1].revents & POLLIN) != 0) accept_one();
}

void TcpGate::accept_one() {
  local::UniqueFd child(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!child.valid() || refuses_ || target_ == 0) return;
  local::UniqueFd parent = new_socket();
  const sockaddr_in address = loopback(target_);
  if (::connect(parent.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return;
  prepare(child.get());
  prepare(parent.get());
  Connection& connection = connections_.emplace_back();
  connection.pipes = {Pipe{.from = child.get(), .to = parent.get()}, Pipe{.from = parent.get(), .to = child.get()}};
  connection.child = std::move(child);
  connection.parent = std::move(parent);
}

void TcpGate::read(Pipe& pipe, Instant due) {
  if (pipe.ended || pipe.waiting_bytes >= kKeptBytesMax) return;
  std::vector<char> bytes(kBlockBytes);
  const ssize_t count = ::recv(pipe.from, bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (count < 0 && would_block()) return;
  if (count <= 0) {
    pipe.ended = true;
    return;
  }
  bytes.resize(static_cast<std::size_t>(count));
  pipe.waiting_bytes += bytes.size();
  pipe.waiting.push_back({due, std::move(bytes), 0});
}

void TcpGate::write(Connection& connection, Way way, Instant now) {
  WayState& state = ways_[index_of(way)];
  Pipe& pipe = connection.pipes[index_of(way)];
  if (pipe.waiting.empty()) {
    ::shutdown(pipe.to, SHUT_WR);
    pipe.end_forwarded = true;
    return;
  }
  if (state.armed && state.armed->at == state.forwarded && state.armed->action != Action::kCorrupt) {
    return strike(connection, way);
  }
  Piece& piece = pipe.waiting.front();
  const std::size_t size = allowed(piece.bytes.size() - piece.written, state);
  char* const first = piece.bytes.data() + piece.written;
  const bool corrupts = state.armed && state.armed->at == state.forwarded;
  if (corrupts) *first ^= 1;
  const ssize_t sent = ::send(pipe.to, first, size, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (corrupts && sent <= 0) *first ^= 1;
  if (sent <= 0) {
    if (!would_block()) pipe.ended = pipe.end_forwarded = true;  // nobody takes it
    return;
  }
  const auto count = static_cast<std::size_t>(sent);
  state.forwarded += count;
  piece.written += count;
  pipe.waiting_bytes -= count;
  if (piece.written == piece.bytes.size()) pipe.waiting.pop_front();
  if (const std::uint64_t rate = state.traffic.rate_bytes_per_s; rate > 0) {
    state.may_write = std::max(now, state.may_write) + std::chrono::nanoseconds(count * 1'000'000'000 / rate);
  }
  if (state.armed && (corrupts || (state.armed->at == state.forwarded && state.armed->action != Action::kCorrupt))) {
    strike(connection, way);
  }
}

// Up to the byte for which something is under arms, and no further than slices and rate allow at once.
std::size_t TcpGate::allowed(std::size_t size, const WayState& state) {
  if (state.traffic.slice_bytes_max > 0) size = std::min(size, 1 + rng_.below(state.traffic.slice_bytes_max));
  if (const std::uint64_t rate = state.traffic.rate_bytes_per_s; rate > 0) {
    size = std::min<std::size_t>(size, std::max<std::uint64_t>(1, rate / kWritesPerSecond));
  }
  if (state.armed && state.armed->at > state.forwarded) {
    size = std::min<std::size_t>(size, state.armed->at - state.forwarded);
  }
  return size;
}

void TcpGate::strike(Connection& connection, Way way) {
  WayState& state = ways_[index_of(way)];
  if (state.armed->action == Action::kCut) cut(connection, way);
  if (state.armed->action == Action::kHold) state.traffic.forwards = false;
  state.armed.reset();
  changed_.notify_all();
}

// The receiver reads everything to its end, and closes; only then does the sender hear of it. So what was received is
// no matter of chance.
void TcpGate::cut(Connection& connection, Way way) {
  connection.cut = way;
  ::shutdown(connection.pipes[index_of(way)].to, SHUT_WR);
}

bool TcpGate::is_drained(Connection& connection) {
  std::array<char, kBlockBytes> ignored{};
  const int receiver = connection.pipes[index_of(*connection.cut)].to;
  const ssize_t count = ::recv(receiver, ignored.data(), ignored.size(), MSG_DONTWAIT);
  return count == 0 || (count < 0 && !would_block());
}

}  // namespace fluvial::integration
