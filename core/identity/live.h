// Something immutable that is replaced as a whole while others use it.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

namespace fluvial::identity {

// Thread safe. Who has taken current() keeps it; ask again for each new use.
template <typename T>
class Live {
 public:
  explicit Live(std::shared_ptr<const T> first) : current_(std::move(first)) {}
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  std::shared_ptr<const T> current() const {
    const std::lock_guard lock(mutex_);
    return current_;
  }
  void replace(std::shared_ptr<const T> next) {  // never null
    const std::lock_guard lock(mutex_);
    std::swap(current_, next);
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const T> current_;
};

}  // namespace fluvial::identity
