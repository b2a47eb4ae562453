#include "core/net/tls_stream.h"

#include <openssl/bio.h>
#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <cstring>
#include <utility>

#include "core/net/await_tuple.h"
#include "core/net/block_pool.h"
#include "core/net/hooks.h"
#include "core/net/record_cipher.h"

namespace fluvial::net {
namespace {

constexpr std::size_t kRecordOverheadBytes = 64;    // TLS 1.3: 5 of header, 1 of type, 16 of tag
constexpr std::size_t kOutReserveBytes = 4 * 1024;  // for what OpenSSL writes by itself: alerts, key updates
constexpr std::uint64_t kDataPerKeyUpdate = 1 << 20;
constexpr std::size_t kQuantumBytes = 1 << 20;  // then other coroutines get their turn

}  // namespace

// A BIO over the stream's two blocks. Memory BIOs would copy every byte once more.
struct BlockBio {
  static int write(BIO* bio, const char* bytes, int size) {
    auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    const std::size_t count = std::min(static_cast<std::size_t>(size), stream.out_block().size() - stream.out_size_);
    if (count == 0) {
      BIO_set_retry_write(bio);
      return -1;
    }
    std::memcpy(stream.out_block_.data() + stream.out_size_, bytes, count);
    stream.out_size_ += count;
    return static_cast<int>(count);
  }

  static int read(BIO* bio, char* bytes, int size) {
    auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    BIO_clear_retry_flags(bio);
    if (stream.updates_too_much_) return -1;
    if (stream.in_.empty()) {
      if (stream.end_of_input_) return 0;
      BIO_set_retry_read(bio);
      return -1;
    }
    const std::size_t count = std::min(static_cast<std::size_t>(size), stream.in_.size());
    std::memcpy(bytes, stream.in_.data(), count);
    stream.in_ = stream.in_.subspan(count);
    return static_cast<int>(count);
  }

  static long control(BIO* bio, int command, long, void*) {
    const auto& stream = *static_cast<TlsStream*>(BIO_get_data(bio));
    if (command == BIO_CTRL_FLUSH) return 1;
    if (command == BIO_CTRL_EOF) return stream.end_of_input_ && stream.in_.empty() ? 1 : 0;
    return 0;
  }

  static const BIO_METHOD* method() {
    static BIO_METHOD* const method = [] {
      BIO_METHOD* made = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "fluvial blocks");
      BIO_meth_set_write(made, write);
      BIO_meth_set_read(made, read);
      BIO_meth_set_ctrl(made, control);
      return made;
    }();
    return method;
  }
};

// Counts the peer's key updates: each costs us new keys, and brings nothing.
struct KeyUpdates {
  static void look(int is_written, int, int content_type, const void* bytes, std::size_t size, SSL*, void* argument) {
    if (is_written != 0 || content_type != SSL3_RT_HANDSHAKE || size == 0) return;
    if (*static_cast<const unsigned char*>(bytes) != SSL3_MT_KEY_UPDATE) return;
    auto& stream = *static_cast<TlsStream*>(argument);
    const std::uint64_t allowed = stream.key_updates_max_ + stream.plaintext_in_ / kDataPerKeyUpdate;
    if (++stream.key_updates_ > allowed) stream.updates_too_much_ = true;
  }
};

TlsStream::TlsStream(Socket socket, identity::SslPtr ssl, std::string remote)
    : socket_(std::move(socket)), ssl_(std::move(ssl)), remote_(std::move(remote)) {
  BIO* const bio = BIO_new(BlockBio::method());
  FLUVIAL_CHECK(bio != nullptr, "out of memory for a BIO");
  BIO_set_data(bio, this);
  BIO_set_init(bio, 1);
  SSL_set_bio(ssl_.get(), bio, bio);
  SSL_set_msg_callback(ssl_.get(), &KeyUpdates::look);
  SSL_set_msg_callback_arg(ssl_.get(), this);
  SSL_set_mode(ssl_.get(), SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER | SSL_MODE_RELEASE_BUFFERS);
  boost::system::error_code ignored;  // the socket may be gone already; the first read will say so
  socket_.non_blocking(true, ignored);
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
}

TlsStream::~TlsStream() {
  drop_in_block();
  if (!out_block_.empty()) BlockPool::shared().release(std::move(out_block_));
}

void TlsStream::drop_in_block() {
  if (!in_block_.empty()) BlockPool::shared().release(std::exchange(in_block_, Buffer()));
  in_ = {};
}

Status TlsStream::io_error(const boost::system::error_code& code) const {
  if (code == asio::error::operation_aborted || code == asio::error::bad_descriptor) {
    return Error{Code::kCancelled, remote_ + ": the connection was closed on this side"};
  }
  return Error{Code::kUnavailable, remote_ + ": " + code.message()};
}

Awaitable<Status> TlsStream::fill() {
  if (end_of_input_) co_return Status{};
  if (quantum_ >= kQuantumBytes) {
    quantum_ = 0;
    co_await asio::post(asio::use_awaitable);
  }
  for (;;) {
    if (in_block_.empty()) in_block_ = BlockPool::shared().acquire();
    boost::system::error_code error;
    const std::size_t count = socket_.read_some(asio::buffer(in_block_.data(), in_block_.size()), error);
    if (!error) {
      in_ = ByteSpan(in_block_.data(), count);
      quantum_ += count;
      bytes_in_.fetch_add(count, std::memory_order_relaxed);
      co_return Status{};
    }
    drop_in_block();
    if (error == asio::error::eof) {
      end_of_input_ = true;
      co_return Status{};
    }
    if (error != asio::error::would_block && error != asio::error::try_again) co_return io_error(error);
    waits_to_read_ = true;
    const auto [wait_error] = co_await socket_.async_wait(Socket::wait_read, kAwaitTuple);
    waits_to_read_ = false;
    if (wait_error) co_return io_error(wait_error);
  }
}

// Takes the block away first: what OpenSSL writes meanwhile goes into a fresh one, and is sent after this one.
Awaitable<Status> TlsStream::send_out() {
  Buffer block = std::exchange(out_block_, Buffer());
  ByteSpan rest(block.data(), std::exchange(out_size_, 0));
  Status result;
  while (!rest.empty()) {
    boost::system::error_code error;
    const std::size_t count = socket_.write_some(asio::buffer(rest.data(), rest.size()), error);
    if (!error) {
      rest = rest.subspan(count);
      quantum_ += count;
      bytes_out_.fetch_add(count, std::memory_order_relaxed);
      continue;
    }
    if (error != asio::error::would_block && error != asio::error::try_again) {
      result = io_error(error);
      break;
    }
    waits_to_write_ = true;
    const auto [wait_error] = co_await socket_.async_wait(Socket::wait_write, kAwaitTuple);
    waits_to_write_ = false;
    if (wait_error) {
      result = io_error(wait_error);
      break;
    }
  }
  if (!block.empty()) BlockPool::shared().release(std::move(block));
  if (result.ok() && quantum_ >= kQuantumBytes) {
    quantum_ = 0;
    co_await asio::post(asio::use_awaitable);
  }
  co_return result;
}

Awaitable<Status> TlsStream::flush() {
  while (out_size_ > 0) FLUVIAL_CO_TRY(co_await send_out());
  co_return Status{};
}

bool TlsStream::is_server() const { return SSL_is_server(ssl_.get()) != 0; }

Awaitable<std::optional<TlsFault>> TlsStream::handshake(std::function<void()> moved) {
  for (;;) {
    ERR_clear_error();
    const int result = SSL_do_handshake(ssl_.get());
    const int state = SSL_get_error(ssl_.get(), result);
    std::optional<TlsFault> fault;
    if (state != SSL_ERROR_NONE && state != SSL_ERROR_WANT_READ && state != SSL_ERROR_WANT_WRITE) {
      fault = explain_tls_failure(ssl_.get(), remote_);
    }
    if (moved && out_size_ > 0) moved();  // it had something to answer
    const Status flushed = co_await flush();
    if (fault || state == SSL_ERROR_NONE) co_return fault;
    const Status filled = flushed.ok() && state == SSL_ERROR_WANT_READ ? co_await fill() : flushed;
    if (!filled.ok()) co_return TlsFault{reason::kClosedEarly, filled.error()};
  }
}

// After a read that gave nothing: empty when OpenSSL only wants more bytes. Asks OpenSSL's error queue, so the first
// look at a failure is the only one.
std::optional<Error> TlsStream::read_fault(int result) {
  if (updates_too_much_) {
    ERR_clear_error();
    return Error{Code::kResourceExhausted, remote_ + ": more key updates than its data calls for"};
  }
  switch (SSL_get_error(ssl_.get(), result)) {
    case SSL_ERROR_WANT_READ: return std::nullopt;
    case SSL_ERROR_ZERO_RETURN: return Error{Code::kUnavailable, remote_ + ": the peer closed the connection"};
    case SSL_ERROR_WANT_WRITE:  // only a peer that asks for key after key and takes no answer gets us here
      updates_too_much_ = true;
      return Error{Code::kResourceExhausted, remote_ + ": too many key updates"};
    default: break;
  }
  TlsFault fault = explain_tls_failure(ssl_.get(), remote_);
  damaged_ = fault.reason == reason::kDamaged;
  return std::move(fault.error);
}

Awaitable<Result<std::size_t>> TlsStream::read_some(MutableByteSpan to) {
  for (;;) {
    ERR_clear_error();
    std::size_t count = 0;
    const int result = SSL_read_ex(ssl_.get(), to.data(), to.size(), &count);
    plaintext_in_ += count;
    if (result == 1) co_return count;
    if (const auto fault = read_fault(result)) co_return *fault;
    FLUVIAL_CO_TRY(co_await fill());
  }
}

Awaitable<Status> TlsStream::read_exactly(MutableByteSpan to) {
  while (!to.empty()) {
    ERR_clear_error();
    std::size_t count = 0;
    const int result = SSL_read_ex(ssl_.get(), to.data(), to.size(), &count);
    plaintext_in_ += count;
    to = to.subspan(count);
    if (result == 1) continue;
    if (const auto fault = read_fault(result)) co_return *fault;
    FLUVIAL_CO_TRY(co_await fill());
  }
  co_return Status{};
}

Buffer& TlsStream::out_block() {
  if (out_block_.empty()) out_block_ = BlockPool::shared().acquire();
  return out_block_;
}

std::size_t TlsStream::room_for_plaintext() {
  const std::size_t room = out_block().size() - kOutReserveBytes;
  if (out_size_ >= room) return 0;
  return (room - out_size_) / (kRecordBytes + kRecordOverheadBytes) * kRecordBytes;
}

Awaitable<Status> TlsStream::write(ByteSpan bytes) {
  while (!bytes.empty()) {
    const std::size_t room = room_for_plaintext();
    if (room == 0) {
      FLUVIAL_CO_TRY(co_await send_out());
      continue;
    }
    ERR_clear_error();
    std::size_t count = 0;
    const int result = SSL_write_ex(ssl_.get(), bytes.data(), std::min(bytes.size(), room), &count);
    if (result != 1) {
      const int state = SSL_get_error(ssl_.get(), result);
      if (state != SSL_ERROR_WANT_WRITE) co_return explain_tls_failure(ssl_.get(), remote_).error;
      FLUVIAL_CO_TRY(co_await send_out());
    }
    bytes = bytes.subspan(count);
    under_this_key_ += count;
    if (under_this_key_ >= rekey_bytes_ && SSL_key_update(ssl_.get(), SSL_KEY_UPDATE_NOT_REQUESTED) == 1) {
      under_this_key_ = 0;  // the update goes out before the next record
    }
  }
  co_return Status{};
}

Awaitable<void> TlsStream::finish_writing() {
  ERR_clear_error();
  SSL_shutdown(ssl_.get());
  ERR_clear_error();
  const Status flushed = co_await flush();
  boost::system::error_code ignored;  // the peer may have closed first
  if (flushed.ok()) socket_.shutdown(Socket::shutdown_send, ignored);
}

Awaitable<void> TlsStream::discard_input(std::size_t bytes_max) {
  std::size_t dropped = 0;
  while (!end_of_input_ && dropped < bytes_max) {
    const Status filled = co_await fill();
    if (!filled.ok()) break;
    dropped += in_.size();
  }
  drop_in_block();
}

void TlsStream::close() {
  boost::system::error_code ignored;  // closing what is closed is fine
  socket_.close(ignored);
}

std::string describe(const asio::ip::tcp::endpoint& endpoint) {
  const std::string address = endpoint.address().to_string();
  const std::string port = std::to_string(endpoint.port());
  return endpoint.address().is_v6() ? "[" + address + "]:" + port : address + ":" + port;
}

}  // namespace fluvial::net
