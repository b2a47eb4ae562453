// Inside: a connection of the blocking HTTP client, plain or in TLS, over a descriptor with poll(): the command line
// has nothing else to do while it waits.
#pragma once

#include <sys/socket.h>

#include <boost/asio/buffer.hpp>
#include <boost/system/error_code.hpp>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/identity/tls.h"
#include "core/net/awaitable.h"

namespace fluvial::net {

// What Beast calls a SyncStream, with a deadline over what is done until another is set.
class ClientStream {
 public:
  using ErrorCode = boost::system::error_code;
  using TimePoint = std::chrono::steady_clock::time_point;

  // `fd` is non-blocking, and closed in the end.
  ClientStream(int fd, TimePoint deadline) : fd_(fd), deadline_(deadline) {}
  ClientStream(const ClientStream&) = delete;
  ClientStream& operator=(const ClientStream&) = delete;
  ~ClientStream();

  void set_deadline(TimePoint deadline) { deadline_ = deadline; }
  // Before anything is read or written. The server must be a coordinator; `where` is for messages.
  Status shake_hands(const identity::TlsContext& tls, const std::string& where);
  // Why a read or write failed, where it was TLS that did: such as a certificate that the server refuses.
  const std::optional<Error>& fault() const { return fault_; }

  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers, ErrorCode& error) {
    const asio::mutable_buffer to = *asio::buffer_sequence_begin(buffers);
    return read({static_cast<std::byte*>(to.data()), to.size()}, error);
  }
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers, ErrorCode& error) {
    for (auto at = asio::buffer_sequence_begin(buffers); at != asio::buffer_sequence_end(buffers); ++at) {
      const asio::const_buffer from = *at;
      if (from.size() != 0) return write({static_cast<const std::byte*>(from.data()), from.size()}, error);
    }
    error = {};
    return 0;
  }
  // Beast asks for these too; nothing here calls them.
  template <typename Buffers>
  std::size_t read_some(const Buffers& buffers);
  template <typename Buffers>
  std::size_t write_some(const Buffers& buffers);

  static ErrorCode wait_for(int fd, short events, TimePoint deadline);

 private:
  template <typename Call>
  std::size_t transfer(short events, ErrorCode& error, Call call, ErrorCode at_zero);
  template <typename Call>
  std::size_t transfer_tls(ErrorCode& error, const Call& call);
  std::size_t read(MutableByteSpan to, ErrorCode& error);
  std::size_t write(ByteSpan from, ErrorCode& error);

  const int fd_;
  TimePoint deadline_;
  identity::SslPtr ssl_;  // none: plain
  std::string where_;
  std::optional<Error> fault_;
};

}  // namespace fluvial::net
