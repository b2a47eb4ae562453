// TLS over a socket, thin: OpenSSL between two blocks of memory, and large non-blocking reads and writes around it.
// Decrypted bytes go from OpenSSL's record straight to where the caller wants them; encrypted ones straight into the
// block that is sent. Blocks are borrowed while there is data.
#pragma once

#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/identity/tls.h"
#include "core/net/awaitable.h"
#include "core/net/tls_errors.h"

namespace fluvial::net {

// Everything runs on the socket's executor, a strand. At most one coroutine reads and one writes at a time.
class TlsStream {
 public:
  using Socket = asio::ip::tcp::socket;

  TlsStream(Socket socket, identity::SslPtr ssl, std::string remote);
  ~TlsStream();
  TlsStream(const TlsStream&) = delete;
  TlsStream& operator=(const TlsStream&) = delete;

  Socket& socket() { return socket_; }
  Executor executor() { return socket_.get_executor(); }
  const std::string& remote() const { return remote_; }
  ssl_st* native() const { return ssl_.get(); }
  bool is_server() const;

  // Both sides of the handshake; on failure the alert has been sent. `moved` is called when the peer has brought it
  // further.
  Awaitable<std::optional<TlsFault>> handshake(std::function<void()> moved = {});

  // At least one byte. kUnavailable when the peer closed; kUnauthenticated when it refused us after all (TLS 1.3).
  Awaitable<Result<std::size_t>> read_some(MutableByteSpan to);
  Awaitable<Status> read_exactly(MutableByteSpan to);

  // Encrypts; sends whenever a block is full. flush() sends the rest.
  Awaitable<Status> write(ByteSpan bytes);
  void set_rekey_bytes(std::uint64_t bytes) { rekey_bytes_ = bytes; }  // new keys after so much; at first never
  Awaitable<Status> flush();
  // OpenSSL has something to say (an answer to a key update): flush soon. Asked by the writer after each wake-up.
  bool wants_flush() const { return out_size_ > 0; }

  // Sends close_notify and ends our direction of the connection.
  Awaitable<void> finish_writing();
  // Reads and drops whatever still comes, so that closing does not reset what we sent; returns at the end or an error,
  // or after that many bytes.
  Awaitable<void> discard_input(std::size_t bytes_max);
  void close();  // cancels both directions

  // Key updates of the peer's beyond one for each MiB of data: the read fails that meets one more.
  void set_key_updates_max(std::uint32_t most) { key_updates_max_ = most; }
  bool updates_too_much() const { return updates_too_much_; }
  bool is_damaged() const { return damaged_; }  // the read that failed met bytes that were changed on their way
  std::uint64_t plaintext_in() const { return plaintext_in_; }
  bool waits_to_read() const { return waits_to_read_; }    // in the socket, for the peer
  bool waits_to_write() const { return waits_to_write_; }  // likewise

  // Thread safe.
  std::uint64_t bytes_in() const { return bytes_in_.load(std::memory_order_relaxed); }
  std::uint64_t bytes_out() const { return bytes_out_.load(std::memory_order_relaxed); }

 private:
  friend struct BlockBio;
  friend struct KeyUpdates;

  Awaitable<Status> fill();  // in_ is used up: more from the socket, or end_of_input_
  Awaitable<Status> send_out();
  Buffer& out_block();
  std::size_t room_for_plaintext();
  std::optional<Error> read_fault(int result);
  Status io_error(const boost::system::error_code& code) const;
  void drop_in_block();

  Socket socket_;
  identity::SslPtr ssl_;
  const std::string remote_;

  Buffer in_block_;
  ByteSpan in_;  // the part of in_block_ that OpenSSL has not taken yet
  bool end_of_input_ = false;
  Buffer out_block_;
  std::size_t out_size_ = 0;

  std::size_t quantum_ = 0;  // bytes moved since we last let others run
  std::uint64_t plaintext_in_ = 0;
  std::uint64_t under_this_key_ = 0;  // plaintext written
  std::uint64_t rekey_bytes_ = std::numeric_limits<std::uint64_t>::max();
  std::uint32_t key_updates_max_ = 32;
  std::uint64_t key_updates_ = 0;
  bool updates_too_much_ = false;
  bool damaged_ = false;
  bool waits_to_read_ = false;
  bool waits_to_write_ = false;
  std::atomic<std::uint64_t> bytes_in_ = 0;
  std::atomic<std::uint64_t> bytes_out_ = 0;
};

std::string describe(const asio::ip::tcp::endpoint& endpoint);  // "192.0.2.7:443", "[2001:db8::7]:443"

}  // namespace fluvial::net
