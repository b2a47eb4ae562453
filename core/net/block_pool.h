// Blocks for socket reads and writes, borrowed only while there is data: an idle session holds none. They are large,
// for few system calls, until many are borrowed, and then small: each session that waits, for its peer or for memory,
// keeps one with what it has read or not sent yet, and a parent has many.
#pragma once

#include <cstddef>
#include <mutex>
#include <vector>

#include "core/base/bytes.h"

namespace fluvial::net {

inline constexpr std::size_t kLargeBlockBytes = 256 * 1024;
inline constexpr std::size_t kSmallBlockBytes = 38 * 1024;  // two of TLS's records, and what OpenSSL writes by itself

// Thread safe. Keeps blocks for reuse: the large ones, of which there are at most kLargeMost, and so many small ones;
// beyond that they go back to the system.
class BlockPool {
 public:
  static constexpr std::size_t kLargeMost = 8;
  static constexpr std::size_t kSmallKept = 32;

  static BlockPool& shared();  // a cache without behaviour: nothing to substitute in a test

  Buffer acquire();
  void release(Buffer block);  // that acquire() gave

 private:
  std::mutex mutex_;
  std::size_t large_ = 0;  // borrowed or free
  std::vector<Buffer> free_large_;
  std::vector<Buffer> free_small_;
};

}  // namespace fluvial::net
