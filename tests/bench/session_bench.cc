// How fast one session moves payload, against raw OpenSSL over memory BIOs on the same machine in the same run. Both
// send frames' worth of 4 MiB over a loopback connection, one thread at each end. The two alternate, and the result is
// the median of the ratios, because the machine's speed drifts.
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/use_future.hpp>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <future>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/identity/testing.h"
#include "core/net/connector.h"
#include "core/net/listener.h"

namespace fluvial::net {
namespace {

constexpr std::size_t kPayloadBytes = 4u << 20;
constexpr std::size_t kBlockBytes = 256 * 1024;

struct Options {
  int repetitions = 9;
  int frames = 128;  // a measurement: 512 MiB
  std::string json;
};

using Tls = std::shared_ptr<const identity::TlsContext>;

double gigabytes_per_s(int frames, std::chrono::steady_clock::duration took) {
  return static_cast<double>(frames) * static_cast<double>(kPayloadBytes) / 1e9 /
         std::chrono::duration<double>(took).count();
}

// ---- one session -------------------------------------------------------------------------------------------------

class Thread {
 public:
  Thread() : work_(context_.get_executor()), thread_([this] { context_.run(); }) {}
  ~Thread() {
    work_.reset();
    thread_.join();
  }
  Executor executor() { return context_.get_executor(); }

 private:
  asio::io_context context_;
  asio::executor_work_guard<asio::io_context::executor_type> work_;
  std::thread thread_;
};

// Answers every `frames` frames with an empty one.
Awaitable<void> take_frames(std::shared_ptr<Session> session, int frames) {
  for (int count = 1;; ++count) {
    const auto frame = co_await session->receive();
    if (!frame.ok()) co_return;
    if (count % frames != 0) continue;
    OutFrame done;
    done.header.mutable_update_chunk();
    const Status sent = co_await session->send(std::move(done));
    if (!sent.ok()) co_return;
  }
}

Awaitable<void> give_frames(std::shared_ptr<Session> session, SharedBytes payload, int frames) {
  for (int i = 0; i < frames; ++i) {
    OutFrame frame;
    frame.header.mutable_update_chunk()->set_index(static_cast<std::uint64_t>(i));
    frame.payload = payload;
    const Status sent = co_await session->send(std::move(frame));
    FLUVIAL_CHECK(sent.ok(), sent.error().message);
  }
  const auto done = co_await session->receive();
  FLUVIAL_CHECK(done.ok(), done.error().message);
}

class SessionPair {
 public:
  SessionPair(const Tls& server, const Tls& client, int frames) : frames_(frames) {
    listener_ = Listener::open(receiver_.executor(), "127.0.0.1", 0, identity::live(server), {}, nullptr).value();
    running_ = asio::co_spawn(receiver_.executor(), listener_->run([frames](std::shared_ptr<Session> session) {
      return take_frames(std::move(session), frames);
    }),
                              asio::use_future);
    asio::co_spawn(sender_.executor(), open(client), asio::use_future).get();
    Buffer payload(kPayloadBytes);
    std::memset(payload.data(), 0x5a, payload.size());
    payload_ = SharedBytes::from(std::move(payload));
  }
  ~SessionPair() {
    session_->close({Code::kCancelled, "done"}, true);
    listener_->stop();
    running_.get();
  }

  double measure() {
    const auto start = std::chrono::steady_clock::now();
    asio::co_spawn(session_->executor(), give_frames(session_, payload_, frames_), asio::use_future).get();
    return gigabytes_per_s(frames_, std::chrono::steady_clock::now() - start);
  }

 private:
  Awaitable<void> open(Tls client) {
    auto session = co_await connect(sender_.executor(), "127.0.0.1", listener_->port(), client, {});
    session_ = std::move(session).value();
  }
  const int frames_;
  Thread receiver_;
  Thread sender_;
  std::shared_ptr<Listener> listener_;
  std::future<void> running_;
  std::shared_ptr<Session> session_;
  SharedBytes payload_;
};

// ---- raw ---------------------------------------------------------------------------------------------------------

// One end: a blocking socket, two memory BIOs, and nothing else.
class RawEnd {
 public:
  RawEnd(int fd, const Tls& tls) : fd_(fd), ssl_(tls->new_session().value()), block_(kBlockBytes) {
    const int on = 1;
    ::setsockopt(fd_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    SSL_set_bio(ssl_.get(), BIO_new(BIO_s_mem()), BIO_new(BIO_s_mem()));
  }
  RawEnd(const RawEnd&) = delete;
  RawEnd& operator=(const RawEnd&) = delete;
  ~RawEnd() { ::close(fd_); }

  void handshake() {
    for (;;) {
      const int result = SSL_do_handshake(ssl_.get());
      send_out();
      if (result == 1) return;
      FLUVIAL_CHECK(SSL_get_error(ssl_.get(), result) == SSL_ERROR_WANT_READ, "the raw handshake failed");
      take_in();
    }
  }
  void write(const std::vector<char>& bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += kBlockBytes) {
      std::size_t written = 0;
      const std::size_t size = std::min(kBlockBytes, bytes.size() - at);
      FLUVIAL_CHECK(SSL_write_ex(ssl_.get(), bytes.data() + at, size, &written) == 1, "the raw write failed");
      send_out();
    }
  }
  void read(MutableByteSpan bytes) {
    while (!bytes.empty()) {
      std::size_t count = 0;
      if (SSL_read_ex(ssl_.get(), bytes.data(), bytes.size(), &count) != 1) take_in();
      bytes = bytes.subspan(count);
    }
  }

 private:
  void send_out() {
    std::size_t size = 0;
    while (BIO_read_ex(SSL_get_wbio(ssl_.get()), block_.data(), block_.size(), &size) == 1) {
      for (std::size_t at = 0; at < size;) {
        const ssize_t sent = ::send(fd_, block_.data() + at, size - at, MSG_NOSIGNAL);
        FLUVIAL_CHECK(sent > 0, "the raw send failed");
        at += static_cast<std::size_t>(sent);
      }
    }
  }
  void take_in() {
    const ssize_t count = ::recv(fd_, block_.data(), block_.size(), 0);
    FLUVIAL_CHECK(count > 0, "the raw receive failed");
    std::size_t taken = 0;
    BIO_write_ex(SSL_get_rbio(ssl_.get()), block_.data(), static_cast<std::size_t>(count), &taken);
  }

  int fd_;
  identity::SslPtr ssl_;
  std::vector<char> block_;
};

struct SocketPair {
  int server = -1;
  int client = -1;
};

SocketPair loopback_pair() {
  const int listening = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* any = reinterpret_cast<sockaddr*>(&address);  // NOLINT: POSIX
  SocketPair pair;
  pair.client = ::socket(AF_INET, SOCK_STREAM, 0);
  const bool good = ::bind(listening, any, size) == 0 && ::listen(listening, 1) == 0 &&
                    ::getsockname(listening, any, &size) == 0 && ::connect(pair.client, any, size) == 0;
  FLUVIAL_CHECK(good, "no loopback connection");
  pair.server = ::accept(listening, nullptr, nullptr);
  ::close(listening);
  return pair;
}

class RawPair {
 public:
  RawPair(const Tls& server, const Tls& client, int frames)
      : frames_(frames),
        sockets_(loopback_pair()),
        receiver_(sockets_.server, server),
        sender_(sockets_.client, client) {
    std::thread other([this] { receiver_.handshake(); });
    sender_.handshake();
    other.join();
  }

  double measure() {
    std::vector<char> payload(kPayloadBytes, 0x5a);
    const auto start = std::chrono::steady_clock::now();
    std::thread other([this] { receive_all(); });
    for (int i = 0; i < frames_; ++i) sender_.write(payload);
    other.join();
    return gigabytes_per_s(frames_, std::chrono::steady_clock::now() - start);
  }

 private:
  void receive_all() {
    for (int i = 0; i < frames_; ++i) {
      Buffer taken(kPayloadBytes);  // a frame is received into memory of its own
      receiver_.read(taken.span());
    }
  }
  const int frames_;
  SocketPair sockets_;
  RawEnd receiver_;
  RawEnd sender_;
};

// ---- the run -----------------------------------------------------------------------------------------------------

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; i += 2) {
    const std::string_view name = argv[i];
    const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
    const auto number = [value](int* out) {
      const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), *out);
      return error == std::errc() && end == value.data() + value.size() && *out > 0;
    };
    const bool good = (name == "--json" && !value.empty()) ||
                      (name == "--repetitions" && number(&options.repetitions)) ||
                      (name == "--frames" && number(&options.frames));
    if (!good) {
      std::fprintf(stderr, "usage: session_bench [--repetitions N] [--frames N] [--json FILE]\n");
      std::exit(2);
    }
    if (name == "--json") options.json = value;
  }
  return options;
}

void write_json(const std::string& path, const std::vector<double>& session, const std::vector<double>& raw,
                const std::vector<double>& ratio) {
  const auto list = [](const std::vector<double>& values) {
    std::string text = "[";
    for (std::size_t i = 0; i < values.size(); ++i) text += (i ? ", " : "") + std::to_string(values[i]);
    return text + "]";
  };
  std::ofstream file(path);
  file << "{\"payload_bytes\": " << kPayloadBytes << ", \"session_gigabytes_per_s\": " << list(session)
       << ", \"raw_gigabytes_per_s\": " << list(raw) << ", \"ratio\": " << list(ratio)
       << ", \"median_ratio\": " << median(ratio) << "}\n";
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  const identity::TestPki pki;
  const Tls server = pki.member_server(Role::kCoordinator, NodeId(1), "root");
  const Tls client = pki.member_client(Role::kSite, NodeId(7), "site");
  SessionPair session_pair(server, client, options.frames);
  RawPair raw_pair(server, client, options.frames);
  std::vector<double> session, raw, ratio;
  for (int i = 0; i <= options.repetitions; ++i) {
    const double raw_speed = raw_pair.measure();
    const double session_speed = session_pair.measure();
    if (i == 0) continue;  // warms up
    raw.push_back(raw_speed);
    session.push_back(session_speed);
    ratio.push_back(session_speed / raw_speed);
    std::printf("session %.2f GB/s   raw OpenSSL %.2f GB/s   ratio %.2f\n", session_speed, raw_speed, ratio.back());
  }
  std::printf("median: session %.2f GB/s, raw OpenSSL %.2f GB/s, ratio %.2f\n", median(session), median(raw),
              median(ratio));
  if (!options.json.empty()) write_json(options.json, session, raw, ratio);
  return 0;
}

}  // namespace
}  // namespace fluvial::net

int main(int argc, char** argv) { return fluvial::net::run(argc, argv); }
