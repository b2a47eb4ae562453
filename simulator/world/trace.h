// A record of events, as a running 128-bit hash over (time, host, what, numbers, bytes) and, only when wanted, in
// words. Two runs of one seed have the same hash, or something in them is not from the seed.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/bytes.h"
#include "simulator/world/host.h"
#include "simulator/world/scheduler.h"

namespace fluvial::simulator {

class Trace {
 public:
  // lines_max 0: no words are made.
  Trace(const Scheduler& scheduler, std::size_t lines_max) : scheduler_(&scheduler), lines_max_(lines_max) {}

  // `what` names the event; it should be a literal.
  void event(HostId host, std::string_view what, std::uint64_t a = 0, std::uint64_t b = 0) {
    hash_event(host, what, a, b);
    if (lines_max_ != 0) line(host, what, "");
  }
  // The same with words that are made only when wanted: a callable that returns a string.
  template <typename Words>
  void event(HostId host, std::string_view what, std::uint64_t a, std::uint64_t b, Words&& words) {
    hash_event(host, what, a, b);
    if (lines_max_ != 0) line(host, what, std::forward<Words>(words)());
  }
  void bytes(ByteSpan bytes);  // into the hash

  bool wants_words() const { return lines_max_ != 0; }
  void name(HostId host, std::string name);  // for the lines
  std::string hash() const;                  // 32 hex digits
  const std::deque<std::string>& lines() const { return lines_; }

 private:
  void hash_event(HostId host, std::string_view what, std::uint64_t a, std::uint64_t b);
  void mix(std::uint64_t word);
  void line(HostId host, std::string_view what, const std::string& words);

  const Scheduler* scheduler_;
  std::size_t lines_max_;
  std::array<std::uint64_t, 2> state_ = {0x9e3779b97f4a7c15ULL, 0xc2b2ae3d27d4eb4fULL};
  std::deque<std::string> lines_;
  std::vector<std::string> names_;
};

}  // namespace fluvial::simulator
