#include "core/net/tls_bridge.h"

#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/local/connect_pair.hpp>
#include <boost/asio/write.hpp>
#include <utility>
#include <vector>

#include "core/net/await_tuple.h"
#include "core/net/deadline.h"
#include "core/net/task_group.h"

namespace fluvial::net {
namespace {

constexpr std::size_t kCarriedBytes = 32 * 1024;
constexpr Duration kGoodbyeDeadline = std::chrono::seconds(1);

Awaitable<Status> write_through(TlsStream* stream, ByteSpan bytes) {
  FLUVIAL_CO_TRY(co_await stream->write(bytes));
  co_return co_await stream->flush();
}

}  // namespace

Result<std::shared_ptr<TlsBridge>> TlsBridge::make(std::unique_ptr<TlsStream> stream) {
  Plain plain(stream->executor());
  Plain inner(stream->executor());
  boost::system::error_code error;
  asio::local::connect_pair(plain, inner, error);
  if (error)
    return Error{Code::kResourceExhausted, "no pair of sockets for " + stream->remote() + ": " + error.message()};
  return std::shared_ptr<TlsBridge>(new TlsBridge(std::move(stream), std::move(plain), std::move(inner)));
}

Awaitable<void> TlsBridge::carry_in(std::shared_ptr<TlsBridge> self) {
  std::vector<std::byte> block(kCarriedBytes);
  for (;;) {
    const Result<std::size_t> count = co_await self->stream_->read_some({block.data(), block.size()});
    if (!count.ok()) break;
    const auto [error, written] =
        co_await asio::async_write(self->inner_, asio::buffer(block.data(), *count), kAwaitTuple);
    if (error) break;
  }
  boost::system::error_code ignored;  // it may be closed already
  self->inner_.shutdown(Plain::shutdown_send, ignored);
}

Awaitable<void> TlsBridge::carry_out(std::shared_ptr<TlsBridge> self, Duration write_deadline) {
  std::vector<std::byte> block(kCarriedBytes);
  for (;;) {
    const auto [error, count] =
        co_await self->inner_.async_read_some(asio::buffer(block.data(), block.size()), kAwaitTuple);
    if (error) co_return;
    const Status sent =
        co_await with_deadline(write_through(self->stream_.get(), {block.data(), count}), write_deadline);
    if (!sent.ok()) co_return;  // the connection ends, and whoever writes answers into it hears of that
  }
}

Awaitable<void> TlsBridge::carry(std::shared_ptr<TlsBridge> self, Duration write_deadline) {
  TaskGroup inward(self->stream_->executor());
  inward.spawn(self->stream_->executor(), self->stream_->remote(), carry_in(self));
  co_await carry_out(self, write_deadline);
  const Status said = co_await with_deadline(self->stream_->finish_writing(), kGoodbyeDeadline);
  // Closing with unread bytes would reset the connection, and the client might never read its answer.
  const Status read = co_await with_deadline(inward.join(), kGoodbyeDeadline);
  (void)said, (void)read;  // the connection ends either way
  self->close();
  co_await inward.join();
}

void TlsBridge::close() {
  stream_->close();
  boost::system::error_code ignored;  // closing what is closed is fine
  inner_.close(ignored);
}

void TlsBridge::cut() {
  asio::dispatch(stream_->executor(), [self = shared_from_this()] { self->close(); });
}

}  // namespace fluvial::net
