#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/post.hpp>
#include <limits>
#include <utility>
#include <vector>

#include "core/net/session_impl.h"
#include "core/wire/mapping.h"

namespace fluvial::net {
namespace {

constexpr std::size_t kPieceBytes = 256 * 1024;  // of a payload, between two looks at the gate
constexpr std::uint32_t kStrangerKeyUpdates = 4;
constexpr std::size_t kStrangerDiscardBytes = 256 * 1024;
constexpr std::size_t kDiscardBytesMax = std::numeric_limits<std::size_t>::max();

// What was read piece by piece, at the beginning of a buffer of `size` bytes. Each piece goes when it is copied.
Buffer joined(std::vector<Buffer> pieces, std::size_t size) {
  if (pieces.size() == 1 && pieces.front().size() == size) return std::move(pieces.front());
  Buffer whole(size);
  std::size_t at = 0;
  for (Buffer& piece : pieces) {
    std::ranges::copy(piece.span(), whole.data() + at);
    at += piece.size();
    piece = Buffer();
  }
  return whole;
}

}  // namespace

Awaitable<void> SessionImpl::read_frames(std::shared_ptr<SessionImpl> self) {
  while (!self->closing_) {
    const Status read = co_await self->read_frame();
    self->frame_progress_.reset();
    if (self->stream_->wants_flush()) self->work_.notify_all();
    if (read.ok() || self->closing_) continue;
    if (self->stream_->is_damaged()) self->hooks_->refused(reason::kDamaged, self->remote(), read.error().message);
    if (self->stream_->updates_too_much()) {
      self->hooks_->refused(reason::kKeyUpdates, self->remote(), read.error().message);
    }
    self->begin_close(read.error(), false);
  }
  if (self->draining_)
    co_await self->stream_->discard_input(self->admitted_ ? kDiscardBytesMax : kStrangerDiscardBytes);
  self->cut();
}

Awaitable<Status> SessionImpl::read_frame() {
  const std::uint32_t updates = settings_.key_updates_max;
  stream_->set_key_updates_max(admitted_ ? updates : std::min(updates, kStrangerKeyUpdates));
  FLUVIAL_CO_ASSIGN(const wire::FramePrefix prefix, co_await read_prefix());
  FLUVIAL_CO_ASSIGN(v1::Envelope header, co_await read_header(prefix.header_bytes));
  frame_progress_->payload_bytes = prefix.payload_bytes;
  if (prefix.payload_bytes == 0) frame_progress_.reset();  // it is all here: waiting is no fault of the peer
  if (take_session_message(header)) {
    if (prefix.payload_bytes == 0) co_return Status{};
    co_return violation(reason::kBadHeader, {Code::kDataLoss, "a session message with a payload"});
  }
  co_await wait_for_receiver(prefix.payload_bytes > 0);
  FLUVIAL_CO_TRY(is_over());
  std::shared_ptr<void> held;
  FLUVIAL_CO_ASSIGN(Buffer payload, co_await read_payload(prefix.payload_bytes, &held));
  if (closing_) co_return Status{};
  frames_in_.fetch_add(1, std::memory_order_relaxed);
  payload_in_.fetch_add(payload.size(), std::memory_order_relaxed);
  arrived_.emplace(Frame{std::move(header), std::move(payload), std::move(held)});
  arrival_.notify_all();
  co_return Status{};
}

Awaitable<Result<wire::FramePrefix>> SessionImpl::read_prefix() {
  std::array<std::byte, wire::kPrefixBytes> bytes;
  const MutableByteSpan whole(bytes);
  FLUVIAL_CO_ASSIGN(const std::size_t count, co_await stream_->read_some(whole));
  frame_progress_.emplace().restart_window(stream_->plaintext_in());
  FLUVIAL_CO_TRY(co_await stream_->read_exactly(whole.subspan(count)));
  wire::PrefixFault fault = wire::PrefixFault::kNone;
  auto prefix = wire::decode_prefix(bytes, limits_, &fault);
  if (prefix.ok()) {
    FLUVIAL_CO_TRY(check_stranger(*prefix));
    co_return *prefix;
  }
  switch (fault) {
    case wire::PrefixFault::kOversizeHeader: co_return violation(reason::kOversizeHeader, prefix.error());
    case wire::PrefixFault::kOversizePayload: co_return violation(reason::kOversizePayload, prefix.error());
    default: co_return violation(reason::kNotAFrame, prefix.error());
  }
}

Awaitable<Result<v1::Envelope>> SessionImpl::read_header(std::size_t size) {
  Buffer bytes(size);
  FLUVIAL_CO_TRY(co_await stream_->read_exactly(bytes.span()));
  frame_progress_->header_done = true;
  auto header = wire::parse_header(bytes.span());
  if (!header.ok()) co_return violation(reason::kBadHeader, header.error());
  co_return std::move(*header);
}

// One frame waits for the receiver at most, and a payload is read only into the hands of one: what more the peer sends
// stays in the kernel's buffers and holds the peer back.
Awaitable<void> SessionImpl::wait_for_receiver(bool for_payload) {
  reading_paused_ = true;
  while (!closing_ && !write_error_ && (arrived_ || (for_payload && !receiving_))) co_await demand_.wait();
  reading_paused_ = false;
}

Status SessionImpl::is_over() const {
  if (write_error_) return *write_error_;
  return closing_ ? Status{close_reason()} : Status{};
}

// Whoever is not admitted yet may say a little, and bring nothing.
Status SessionImpl::check_stranger(const wire::FramePrefix& prefix) {
  if (admitted_.load(std::memory_order_acquire)) return {};
  const std::uint64_t bytes = stream_->plaintext_in() + prefix.header_bytes;
  if (prefix.payload_bytes == 0 && bytes <= settings_.stranger_bytes_max) return {};
  return violation(reason::kBeforeAdmission,
                   {Code::kResourceExhausted, prefix.payload_bytes > 0
                                                  ? std::string("a payload before the peer is admitted")
                                                  : fmt::format("{} bytes before the peer is admitted; {} are taken",
                                                                bytes, settings_.stranger_bytes_max)});
}

// The memory is taken and counted as it is filled: a payload that was announced and does not come costs nobody
// anything, and all that are on their way together take no more than the gate grants, however many they are. Buffers of
// the whole length would be pages that were touched before, not empty ones. Where the gate gives the rest ahead, what
// has come is copied, and the rest is read into its place; else all of it is copied in the end, and is there twice.
Awaitable<Result<Buffer>> SessionImpl::read_payload(std::size_t size, std::shared_ptr<void>* held) {
  if (size == 0) co_return Buffer();
  const auto ticket = co_await begin_payload(size);
  FLUVIAL_CO_TRY(is_over());
  if (frame_progress_) frame_progress_->payload = ticket;
  std::vector<Buffer> pieces;
  for (std::size_t left = size; left > 0;) {
    const std::size_t piece = ticket == nullptr ? left : std::min(left, kPieceBytes);
    if (ticket != nullptr) {
      FLUVIAL_CO_TRY(co_await wait_for_memory(ticket.get(), piece));
    }
    if (frame_progress_ && left == size) frame_progress_->restart_window(stream_->plaintext_in());
    FLUVIAL_CO_TRY(co_await stream_->read_exactly(pieces.emplace_back(piece).span()));
    left -= piece;
    if (ticket == nullptr || left == 0 || !ticket->try_take_rest()) continue;
    Buffer whole = joined(std::exchange(pieces, {}), size);
    FLUVIAL_CO_TRY(co_await stream_->read_exactly(whole.span().last(left)));
    pieces.push_back(std::move(whole));
    left = 0;
  }
  if (ticket != nullptr) ticket->arrived();
  *held = ticket;
  co_return joined(std::move(pieces), size);
}

PayloadGate::Again SessionImpl::wake_reader() {
  return [weak = weak_from_this(), executor = executor_] {
    asio::post(executor, [weak] {
      if (const auto self = weak.lock()) {
        self->memory_freed_ = true;
        self->demand_.notify_all();
      }
    });
  };
}

// Nothing when no gate is set, or the session ends meanwhile.
Awaitable<std::shared_ptr<PayloadGate::Ticket>> SessionImpl::begin_payload(std::size_t size) {
  std::shared_ptr<PayloadGate::Ticket> ticket;
  if (settings_.payload_gate == nullptr) co_return ticket;
  const std::uint64_t member = peer_ ? peer_->node.value() : 0;
  reading_paused_ = true;
  while (is_over().ok()) {
    memory_freed_ = false;
    ticket = settings_.payload_gate->try_begin(member, size, wake_reader());
    if (ticket != nullptr) break;
    while (!memory_freed_ && is_over().ok()) co_await demand_.wait();
  }
  reading_paused_ = false;
  co_return ticket;
}

Awaitable<Status> SessionImpl::wait_for_memory(PayloadGate::Ticket* ticket, std::size_t bytes) {
  memory_freed_ = true;
  while (is_over().ok()) {
    if (std::exchange(memory_freed_, false) && ticket->try_take(bytes, wake_reader())) break;
    reading_paused_ = true;
    if (!memory_freed_) co_await demand_.wait();
    if (frame_progress_) frame_progress_->restart_window(stream_->plaintext_in());
  }
  reading_paused_ = false;
  co_return is_over();
}

bool SessionImpl::take_session_message(const v1::Envelope& header) {
  switch (header.body_case()) {
    case v1::Envelope::kPing:
      pong_due_ = PongDue{
          header.ping().token(),
          probe_ ? probe_->now() : TimePoint()};  // only the newest is answered: pings alone cannot fill the outbox
      work_.notify_all();
      return true;
    case v1::Envelope::kPong: take_answer(header.pong()); return true;
    case v1::Envelope::kGoodbye: {
      const v1::Goodbye& goodbye = header.goodbye();
      Error why = goodbye.code() == 0
                      ? Error{Code::kUnavailable, "the peer leaves: " + wire::printable(goodbye.message())}
                      : wire::error_from_proto(goodbye.code(), goodbye.message());
      why.message = remote() + ": " + why.message;
      begin_close(std::move(why), false);
      return true;
    }
    default: return false;
  }
}

void SessionImpl::take_answer(const v1::Pong& pong) {
  if (probe_ && probe_->answered(pong) && measures_clock_ && probe_->is_settling()) ping();
}

Error SessionImpl::violation(std::string_view label, Error error) {
  error.message = remote() + ": " + error.message;
  hooks_->refused(label, remote(), error.message);
  begin_close(error, true);
  return error;
}

}  // namespace fluvial::net
