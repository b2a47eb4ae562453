#include "core/net/client_stream.h"

#include <openssl/err.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/error.hpp>
#include <cerrno>

#include "core/identity/certificate.h"
#include "core/identity/errors.h"

namespace fluvial::net {
namespace {

using ErrorCode = boost::system::error_code;
using SteadyClock = std::chrono::steady_clock;

// OpenSSL writes to sockets without MSG_NOSIGNAL: a server that has gone is an error here, and no signal for this
// thread.
class NoBrokenPipe {
 public:
  NoBrokenPipe() {
    sigemptyset(&pipe_);
    sigaddset(&pipe_, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe_, &before_);
  }
  ~NoBrokenPipe() {
    if (sigismember(&before_, SIGPIPE) == 1) return;
    constexpr timespec kAtOnce{};
    while (::sigtimedwait(&pipe_, nullptr, &kAtOnce) < 0 && errno == EINTR) {
    }
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  NoBrokenPipe(const NoBrokenPipe&) = delete;
  NoBrokenPipe& operator=(const NoBrokenPipe&) = delete;

 private:
  sigset_t pipe_{};
  sigset_t before_{};
};

ErrorCode last_error() { return {errno, boost::system::system_category()}; }

}  // namespace

ClientStream::~ClientStream() {
  const NoBrokenPipe guard;
  if (ssl_ && !fault_ && SSL_is_init_finished(ssl_.get()) == 1) SSL_shutdown(ssl_.get());
  ERR_clear_error();
  ::close(fd_);
}

ErrorCode ClientStream::wait_for(int fd, short events, TimePoint deadline) {
  for (;;) {
    int wait_ms = -1;
    if (deadline != SteadyClock::time_point::max()) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - SteadyClock::now()).count();
      if (left <= 0) return asio::error::timed_out;
      wait_ms = static_cast<int>(std::min<std::int64_t>(left, 60'000));
    }
    pollfd waiting{.fd = fd, .events = events, .revents = 0};
    const int ready = ::poll(&waiting, 1, wait_ms);
    if (ready > 0) return {};
    if (ready < 0 && errno != EINTR) return last_error();
  }
}

template <typename Call>
std::size_t ClientStream::transfer(short events, ErrorCode& error, Call call, ErrorCode at_zero) {
  for (;;) {
    const ssize_t count = call();
    if (count >= 0) {
      error = count == 0 ? at_zero : ErrorCode();
      return static_cast<std::size_t>(count);
    }
    if (errno == EINTR) continue;
    error = errno == EAGAIN || errno == EWOULDBLOCK ? wait_for(fd_, events, deadline_) : last_error();
    if (error) return 0;
  }
}

// `call` gives OpenSSL's result and the bytes that were moved.
template <typename Call>
std::size_t ClientStream::transfer_tls(ErrorCode& error, const Call& call) {
  const NoBrokenPipe guard;
  for (;;) {
    ERR_clear_error();
    std::size_t count = 0;
    const int result = call(&count);
    error = {};
    if (result == 1) return count;
    switch (SSL_get_error(ssl_.get(), result)) {
      case SSL_ERROR_WANT_READ: error = wait_for(fd_, POLLIN, deadline_); break;
      case SSL_ERROR_WANT_WRITE: error = wait_for(fd_, POLLOUT, deadline_); break;
      case SSL_ERROR_ZERO_RETURN: error = asio::error::eof; break;
      default: fault_ = identity::handshake_error(ssl_.get(), where_); error = asio::error::connection_aborted;
    }
    if (error) return 0;
  }
}

Status ClientStream::shake_hands(const identity::TlsContext& tls, const std::string& where) {
  where_ = where;
  FLUVIAL_ASSIGN(ssl_, tls.new_session());
  if (SSL_set_fd(ssl_.get(), fd_) != 1) return identity::openssl_error("cannot start TLS with " + where);
  ErrorCode error;
  transfer_tls(error, [this](std::size_t*) { return SSL_do_handshake(ssl_.get()); });
  if (fault_) return *fault_;
  if (error) return Error{Code::kUnavailable, where + ": " + error.message() + " while shaking hands"};
  FLUVIAL_ASSIGN(const identity::PeerIdentity server, identity::peer_identity(ssl_.get()));
  return identity::may_speak_as(server, Role::kCoordinator);
}

std::size_t ClientStream::read(MutableByteSpan to, ErrorCode& error) {
  if (ssl_) {
    return transfer_tls(error,
                        [&](std::size_t* count) { return SSL_read_ex(ssl_.get(), to.data(), to.size(), count); });
  }
  return transfer(POLLIN, error, [&] { return ::recv(fd_, to.data(), to.size(), 0); }, asio::error::eof);
}

std::size_t ClientStream::write(ByteSpan from, ErrorCode& error) {
  if (ssl_) {
    return transfer_tls(error,
                        [&](std::size_t* count) { return SSL_write_ex(ssl_.get(), from.data(), from.size(), count); });
  }
  return transfer(POLLOUT, error, [&] { return ::send(fd_, from.data(), from.size(), MSG_NOSIGNAL); }, ErrorCode());
}

}  // namespace fluvial::net
