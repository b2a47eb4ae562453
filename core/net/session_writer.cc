#include <utility>

#include "core/net/session_impl.h"
#include "core/wire/mapping.h"

namespace fluvial::net {

Awaitable<void> SessionImpl::write_frames(std::shared_ptr<SessionImpl> self) {
  Status written;
  while (written.ok() && !self->cut_) {
    if (self->has_work()) {
      written = co_await self->write_next();
    } else if (self->stream_->wants_flush()) {
      written = co_await self->stream_->flush();
    } else if (self->draining_) {
      written = co_await self->say_goodbye();
      break;
    } else if (self->closing_) {
      break;
    } else {
      co_await self->work_.wait();
    }
  }
  self->writer_gone_ = true;
  if (written.ok()) co_return;
  // The reader is about to find the connection broken too, and may find the reason in what the peer still said (in
  // TLS 1.3 that is how a client learns that its certificate was refused): it closes. Unless it is not reading.
  self->write_error_ = written.error();
  self->demand_.notify_all();
  if (self->closing_) self->cut();
}

Awaitable<Status> SessionImpl::write_next() {
  if (pong_due_) {
    const PongDue due = *std::exchange(pong_due_, std::nullopt);
    co_return co_await write_pong(due);
  }
  if (ping_due_) {
    const std::uint64_t token = *std::exchange(ping_due_, std::nullopt);
    co_return co_await write_ping(token);
  }
  const Outgoing next = std::move(outbox_.front());
  outbox_.pop_front();
  FLUVIAL_CO_TRY(co_await write_out(&next));
  if (uncount(next) <= settings_.outbox_bytes_max) outbox_room_.notify_all();
  co_return Status{};
}

Awaitable<Status> SessionImpl::write_out(const Outgoing* out) {
  FLUVIAL_CO_TRY(co_await stream_->write(out->head.span()));
  FLUVIAL_CO_TRY(co_await stream_->write(out->payload.bytes));
  frames_out_.fetch_add(1, std::memory_order_relaxed);
  payload_out_.fetch_add(out->payload.bytes.size(), std::memory_order_relaxed);
  co_return Status{};
}

Awaitable<Status> SessionImpl::write_pong(PongDue due) {
  v1::Envelope message;
  if (probe_) {
    *message.mutable_pong() = probe_->answer(due.token, due.received);
  } else {
    message.mutable_pong()->set_token(due.token);
  }
  co_return co_await write_control(std::move(message));
}

Awaitable<Status> SessionImpl::write_ping(std::uint64_t token) {
  v1::Envelope message;
  message.mutable_ping()->set_token(token);
  if (probe_) probe_->asked(token);
  co_return co_await write_control(std::move(message));
}

Awaitable<Status> SessionImpl::write_control(v1::Envelope header) {
  auto head = wire::encode_head(header, 0, wire::FrameLimits{});  // the session's own: they fit any limit
  FLUVIAL_CHECK(head.ok(), "a session message that does not fit a frame");
  co_return co_await stream_->write(head->span());
}

Awaitable<Status> SessionImpl::say_goodbye() {
  const Error why = close_reason();
  v1::Envelope header;
  v1::Goodbye& goodbye = *header.mutable_goodbye();
  if (why.code != Code::kCancelled) goodbye.set_code(wire::code_to_proto(why.code));
  goodbye.set_message(wire::printable(why.message));
  FLUVIAL_CO_TRY(co_await write_control(std::move(header)));
  co_await stream_->finish_writing();
  co_return Status{};
}

}  // namespace fluvial::net
