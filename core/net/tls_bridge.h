// Joins a TLS connection to a plain socket of this process, so that what reads and writes HTTP on a socket needs no
// word of TLS.
#pragma once

#include <boost/asio/local/stream_protocol.hpp>
#include <memory>

#include "core/base/clock.h"
#include "core/base/result.h"
#include "core/net/awaitable.h"
#include "core/net/tls_stream.h"

namespace fluvial::net {

class TlsBridge : public std::enable_shared_from_this<TlsBridge> {
 public:
  using Plain = asio::local::stream_protocol::socket;

  // `stream` has shaken hands.
  static Result<std::shared_ptr<TlsBridge>> make(std::unique_ptr<TlsStream> stream);

  Plain take_plain() { return std::move(plain_); }  // once; on the stream's executor
  // Carries bytes both ways until the plain socket or the connection ends; then both are closed. Once, on the stream's
  // executor. A peer that takes nothing for `write_deadline` is gone.
  static Awaitable<void> carry(std::shared_ptr<TlsBridge> self, Duration write_deadline);
  void cut();  // thread safe: at once, whatever is on its way

 private:
  TlsBridge(std::unique_ptr<TlsStream> stream, Plain plain, Plain inner)
      : stream_(std::move(stream)), plain_(std::move(plain)), inner_(std::move(inner)) {}
  static Awaitable<void> carry_in(std::shared_ptr<TlsBridge> self);
  static Awaitable<void> carry_out(std::shared_ptr<TlsBridge> self, Duration write_deadline);
  void close();

  std::unique_ptr<TlsStream> stream_;
  Plain plain_;
  Plain inner_;  // the other end of plain_
};

}  // namespace fluvial::net
