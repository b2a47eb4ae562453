// In which form a model's bytes travel, where that is not the bytes themselves.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/round/record.h"

namespace fluvial::round {

struct ModelForm {
  std::string codec;               // canonical
  std::uint64_t chunk_values = 0;  // coordinates a chunk
  std::uint64_t bytes = 0;         // of all that is sent
  std::optional<ModelRef> base;    // it is the difference from that one; none: the model itself
  bool operator==(const ModelForm&) const = default;
};

}  // namespace fluvial::round
