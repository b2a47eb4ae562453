// The memory that payloads on their way in may take, all sessions of a listener together: a session that finds it used
// up stops reading, and its peer is held back by TCP.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace fluvial::net {

// Thread safe.
class PayloadGate : public std::enable_shared_from_this<PayloadGate> {
 public:
  explicit PayloadGate(std::size_t bytes_max) : bytes_max_(bytes_max) {}

  // A ticket that gives the bytes back when it is dropped; one payload passes whatever its size when no other is there.
  // None: `again` is called, once and from any thread, when it is worth another try.
  std::shared_ptr<void> try_take(std::size_t bytes, std::function<void()> again);
  std::size_t bytes_used() const;

 private:
  void give_back(std::size_t bytes);

  const std::size_t bytes_max_;
  mutable std::mutex mutex_;
  std::size_t used_ = 0;
  std::vector<std::function<void()>> waiting_;
};

}  // namespace fluvial::net
