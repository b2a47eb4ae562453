#include "kernels/sparse_indices.h"

#include "core/base/format.h"

namespace fluvial::kernels {

Status check_indices(ByteSpan bytes, std::size_t count, std::size_t value_count) {
  constexpr int kShiftMax = 28;  // five bytes hold 35 bits; chunks are far shorter than 2^31
  std::size_t at = 0;
  std::uint64_t next_index = 0;
  for (std::size_t entry = 0; entry < count; ++entry) {
    std::uint64_t gap = 0;
    for (int shift = 0;; shift += 7) {
      if (shift > kShiftMax) return Error{Code::kDataLoss, format_text("index {}: varint longer than 5 bytes", entry)};
      if (at == bytes.size()) {
        return Error{Code::kDataLoss, format_text("index {} of {}: the index bytes end before it", entry, count)};
      }
      const std::uint64_t byte = static_cast<std::uint64_t>(bytes[at++]);
      gap |= (byte & 0x7f) << shift;
      if (byte >= 0x80) continue;
      if (byte == 0 && shift > 0)
        return Error{Code::kDataLoss, format_text("index {}: varint not in its shortest form", entry)};
      break;
    }
    next_index += gap;
    if (next_index >= value_count) {
      return Error{Code::kDataLoss, format_text("index {} is {}, expected below {}", entry, next_index, value_count)};
    }
    ++next_index;
  }
  if (at != bytes.size()) {
    return Error{Code::kDataLoss, format_text("{} bytes after the last of {} indices", bytes.size() - at, count)};
  }
  return {};
}

}  // namespace fluvial::kernels
