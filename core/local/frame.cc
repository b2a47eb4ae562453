#include "core/local/frame.h"

#include <fmt/format.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <span>

#include "core/base/bytes.h"
#include "core/local/socket.h"

namespace fluvial::local {
namespace {

// Room for more descriptors than are accepted, so that they can be counted and closed.
constexpr std::size_t kFdsRoom = 8;

bool would_block(int error) { return error == EAGAIN || error == EWOULDBLOCK; }

Status keep_fds(msghdr& message, Frame& frame) {
  std::size_t count = frame.fd.valid() ? 1 : 0;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t here = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < here; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      UniqueFd owned(fd);  // closed at once if it is one too many
      if (count++ < kFdsMax) frame.fd = std::move(owned);
    }
  }
  if (count > kFdsMax || (message.msg_flags & MSG_CTRUNC) != 0) {
    return Error{Code::kInvalidArgument, fmt::format("more than {} descriptor with a message", kFdsMax)};
  }
  return {};
}

}  // namespace

// kPartial: nothing for now. kComplete: some bytes came. kEnd: the peer closed.
Result<FrameReader::State> FrameReader::receive(int socket, std::byte* into, std::size_t bytes) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int) * kFdsRoom)> control;
  iovec part{.iov_base = into, .iov_len = bytes};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t count = 0;
  do {
    count = ::recvmsg(socket, &message, MSG_CMSG_CLOEXEC);
  } while (count < 0 && errno == EINTR);
  if (count < 0) {
    if (would_block(errno)) return State::kPartial;
    if (errno == ECONNRESET) return State::kEnd;
    return system_error(Code::kUnavailable, "reading");
  }
  FLUVIAL_TRY(keep_fds(message, frame_));
  if (count == 0) return State::kEnd;
  received_ += static_cast<std::size_t>(count);
  return State::kComplete;
}

Result<FrameReader::State> FrameReader::read(int socket) {
  for (;;) {
    const bool in_length = received_ < length_.size();
    const std::size_t body_received = in_length ? 0 : received_ - length_.size();
    if (!in_length && body_received == frame_.body.size()) return State::kComplete;
    std::byte* const into =
        in_length ? length_.data() + received_ : std::as_writable_bytes(std::span(frame_.body)).data() + body_received;
    const std::size_t bytes = in_length ? length_.size() - received_ : frame_.body.size() - body_received;
    FLUVIAL_ASSIGN(const State state, receive(socket, into, bytes));
    if (state == State::kEnd && started()) {
      return Error{Code::kUnavailable, "broke off in the middle of a message"};
    }
    if (state != State::kComplete) return state;
    if (in_length && received_ == length_.size()) {
      const std::uint32_t length = load_le<std::uint32_t>(length_.data());
      if (length == 0 || length > body_bytes_max_) {
        return Error{Code::kInvalidArgument,
                     fmt::format("a message of {} bytes; expected 1 to {}", length, body_bytes_max_)};
      }
      frame_.body.resize(length);
    }
  }
}

Frame FrameReader::take() {
  received_ = 0;
  return std::exchange(frame_, {});
}

FrameWriter::FrameWriter(std::string_view body, std::shared_ptr<const SharedModel> model) : model_(std::move(model)) {
  std::array<std::byte, 4> length;
  store_le<std::uint32_t>(length.data(), static_cast<std::uint32_t>(body.size()));
  bytes_.reserve(length.size() + body.size());
  bytes_.append(as_text(length)).append(body);
}

Result<bool> FrameWriter::write(int socket) {
  alignas(cmsghdr) std::array<std::byte, CMSG_SPACE(sizeof(int))> control{};
  while (sent_ < bytes_.size()) {
    iovec part{.iov_base = bytes_.data() + sent_, .iov_len = bytes_.size() - sent_};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    if (model_ && sent_ == 0) {  // with the first byte
      message.msg_control = control.data();
      message.msg_controllen = control.size();
      cmsghdr* const rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(sizeof(int));
      const int fd = model_->fd();
      std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
    }
    const ssize_t count = ::sendmsg(socket, &message, MSG_NOSIGNAL);
    if (count < 0) {
      if (errno == EINTR) continue;
      if (would_block(errno)) return false;
      return system_error(Code::kUnavailable, "writing");
    }
    sent_ += static_cast<std::size_t>(count);
  }
  return true;
}

}  // namespace fluvial::local
