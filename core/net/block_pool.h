// Large blocks for socket reads and writes, borrowed only while there is data: an idle session holds none.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "core/base/bytes.h"

namespace fluvial::net {

inline constexpr std::size_t kBlockBytes = 256 * 1024;

// Thread safe. Keeps up to kKept blocks for reuse; beyond that they go back to the system.
class BlockPool {
 public:
  static BlockPool& shared();  // a cache without behaviour: nothing to substitute in a test

  Buffer acquire();
  void release(Buffer block);

 private:
  static constexpr std::size_t kKept = 32;
  std::mutex mutex_;
  std::vector<Buffer> free_;
};

}  // namespace fluvial::net
