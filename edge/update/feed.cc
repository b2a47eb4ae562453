#include "edge/update/feed.h"

#include <utility>

#include "core/round/probe.h"

namespace fluvial::edge {

Feed::Feed(store::PendingInfo info) : info_(std::move(info)) {
  info_.trailer_bytes = info_.start.integer_count * sizeof(std::int64_t) + round::kProbeBytes;
}

void Feed::add(SharedBytes chunk) {
  if (closed_) return;
  bytes_ += chunk.bytes.size();
  closed_ = bytes_ > info_.start.value_count * sizeof(float);  // its writer does not keep it either
  if (closed_) {
    chunks_.clear();
  } else {
    chunks_.push_back(std::move(chunk));
  }
}

void Feed::close() {
  closed_ = true;
  chunks_.clear();
}

std::optional<SharedBytes> Feed::chunk(std::uint64_t index) const {
  if (index >= chunks_.size()) return std::nullopt;
  return chunks_[index];
}

}  // namespace fluvial::edge
