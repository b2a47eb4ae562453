#include "core/local/device_memory.h"

#include "core/base/bytes.h"

namespace fluvial::local {

std::string to_string(const DeviceUuid& uuid) {
  std::string text = to_hex(uuid);
  for (const std::size_t position : {8, 13, 18, 23}) text.insert(position, "-");
  return "GPU-" + text;
}

}  // namespace fluvial::local
