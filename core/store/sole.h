// Whether anybody else could notice that a file is overwritten.
#pragma once

#include "core/store/file_system.h"

namespace fluvial::store {

// A File that can tell. Those that cannot are not it.
class KnowsOthers {
 public:
  virtual ~KnowsOthers() = default;
  // No other File and no other process has it open or mapped, and it has one name. False also when that is unknown.
  virtual bool is_sole() = 0;
};

inline bool is_sole(File& file) {
  auto* const knows = dynamic_cast<KnowsOthers*>(&file);
  return knows != nullptr && knows->is_sole();
}

}  // namespace fluvial::store
