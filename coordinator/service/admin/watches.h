// How many streams one caller watches at once. On the node's strand; a place may be dropped anywhere.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace fluvial::coordinator::admin {

class Watches {
 public:
  static constexpr std::size_t kOfOneMax = 16;

  // A place, for as long as it is held. kResourceExhausted: the caller has too many.
  Result<std::shared_ptr<void>> begin(const std::string& who);

 private:
  std::map<std::string, std::vector<std::weak_ptr<void>>> places_;
};

}  // namespace fluvial::coordinator::admin
