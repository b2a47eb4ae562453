// Messages on a Unix stream socket: a length (u32, little-endian), that many bytes, and the descriptors that travel
// with them. Serves blocking and non-blocking sockets alike, and does not interpret the bytes.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/local/fd.h"
#include "core/local/shared_model.h"

namespace fluvial::local {

inline constexpr std::size_t kFdsMax = 1;  // descriptors a message

struct Frame {
  std::string body;
  UniqueFd fd;  // when one came along
};

class FrameReader {
 public:
  explicit FrameReader(std::size_t body_bytes_max) : body_bytes_max_(body_bytes_max) {}

  enum class State {
    kComplete,  // take() it
    kPartial,   // no more to read for now
    kEnd,       // the peer closed between two messages
  };
  // Never reads past the current message, so a descriptor belongs to the message with which it arrives.
  // kInvalidArgument: too long, or more descriptors than kFdsMax. kUnavailable: the peer broke off.
  Result<State> read(int socket);
  Frame take();
  bool started() const { return received_ > 0; }

 private:
  Result<State> receive(int socket, std::byte* into, std::size_t bytes);

  std::size_t body_bytes_max_;
  std::array<std::byte, 4> length_{};
  std::size_t received_ = 0;  // of the length and the body together
  Frame frame_;
};

// One message on its way out, with the model whose descriptor accompanies it.
class FrameWriter {
 public:
  explicit FrameWriter(std::string_view body, std::shared_ptr<const SharedModel> model = nullptr);

  // True when all is written, false when the socket takes no more for now. kUnavailable: the peer is gone.
  Result<bool> write(int socket);

 private:
  std::string bytes_;
  std::size_t sent_ = 0;
  std::shared_ptr<const SharedModel> model_;
};

}  // namespace fluvial::local
