// What must be done piece by piece in order (a digest, a file) after work that many threads do in any order: each piece
// as soon as it and all before it are there, by whichever thread is there, while it is still in that thread's cache.
// Nobody waits for anybody.
#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <vector>

#include "core/base/result.h"

namespace fluvial {

// Thread safe. `follow` is called for 0, 1, 2, ... in this order, never from two threads at a time; not again after it
// failed.
class InTurn {
 public:
  InTurn(std::size_t count, std::function<Status(std::size_t)> follow);

  // Piece `index` is there: once for each. Returns how following failed, to the one caller in whose call it did. After
  // the last piece's call has returned, everything has been followed.
  Status done(std::size_t index);

 private:
  const std::function<Status(std::size_t)> follow_;
  std::mutex mutex_;
  std::vector<bool> done_;
  std::size_t next_ = 0;
  bool follows_ = false;  // somebody is at it, or it failed
};

}  // namespace fluvial
