// Work that falls into independent pieces: how many of them run side by side is decided by whoever passes this in, one
// thread in a simulation, a pool in a process. Blocking.
#pragma once

#include <cstddef>
#include <functional>

#include "core/base/result.h"

namespace fluvial {

class Parallel {
 public:
  virtual ~Parallel() = default;
  // Calls f(0) ... f(count - 1), each at most once, and returns when all calls have. The first error is returned;
  // pieces that had not begun by then are left out.
  virtual Status for_each(std::size_t count, const std::function<Status(std::size_t)>& f) = 0;
  // How many pieces may run at a time: for whoever keeps a buffer for each.
  virtual std::size_t width() const { return 1; }
};

class Serial final : public Parallel {
 public:
  Status for_each(std::size_t count, const std::function<Status(std::size_t)>& f) override {
    for (std::size_t i = 0; i < count; ++i) FLUVIAL_TRY(f(i));
    return {};
  }
};

}  // namespace fluvial
