// Whoever looks after the run: pauses it at times and lets it go on, and mends what only a person can. On the thread of
// the disturber.
#pragma once

#include <chrono>
#include <cstdint>

#include "cli/admin_client.h"
#include "core/base/rng.h"
#include "tests/chaos/disturber.h"

namespace fluvial::chaos {

class Person {
 public:
  Person(cli::AdminClient admin, Disturber& disturber, std::uint64_t run, std::uint64_t seed);

  // Looks every now and then. A run that paused because of a disk is resumed once that works, and the coordinator is
  // started again when that does not help: only then it is known what is on its disk.
  Status step();
  void wants_no_pause() { pauses_ = false; }
  std::uint64_t paused() const { return paused_; }
  std::uint64_t mended() const { return mended_; }

 private:
  using Instant = std::chrono::steady_clock::time_point;
  std::chrono::milliseconds draw(std::chrono::milliseconds least, std::chrono::milliseconds most);
  Status mend(Instant now);
  bool command(const char* what);

  cli::AdminClient admin_;
  Disturber& disturber_;
  std::uint64_t run_;
  Rng rng_;
  bool pauses_ = true;
  bool tried_to_resume_ = false;
  Instant looks_at_;
  Instant changes_at_;  // pauses or resumes
  bool has_paused_ = false;
  std::uint64_t paused_ = 0;
  std::uint64_t mended_ = 0;
};

}  // namespace fluvial::chaos
