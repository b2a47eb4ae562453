// The chunks of a submission that is being encoded: they may be sent before all of them are there. Digest and trailer
// are not in it: a parent counts nothing without them, and who has only this cannot send them.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/bytes.h"
#include "core/store/site_store.h"

namespace fluvial::edge {

// One thread at a time: that of whoever sends. Holds no more bytes than p has; the chunks are those that the
// submission's writer keeps, in the same memory.
class Feed {
 public:
  explicit Feed(store::PendingInfo info);  // its writer's

  // What the beginning of a transfer says. Digest and lengths are not known yet.
  const store::PendingInfo& info() const { return info_; }
  void add(SharedBytes chunk);  // the next one; a parent would take it
  // No further chunks come, and those that are here go: what is sent from now on is the durable submission, if there is
  // ever one.
  void close();
  std::optional<SharedBytes> chunk(std::uint64_t index) const;  // none: not here yet, or no more

 private:
  store::PendingInfo info_;
  std::vector<SharedBytes> chunks_;
  std::uint64_t bytes_ = 0;
  bool closed_ = false;
};

}  // namespace fluvial::edge
