// The reference's own reading of sparse chunks and of lists of indices (docs/formats/codecs-sparse.md), and its own
// version of the codecs that send them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/base/bytes.h"

namespace fluvial::kernels::reference {

// `count` indices below value_count with `bits` low bits each. Nothing for bytes that are not exactly that.
std::optional<std::vector<std::size_t>> read_indices(ByteSpan bytes, std::size_t count, std::size_t bits,
                                                     std::size_t value_count);

// topk and dgc; randk. Nothing for bytes that are not such a chunk.
std::optional<std::vector<double>> decode_topk(ByteSpan bytes, std::size_t value_count);
std::optional<std::vector<double>> decode_randk(ByteSpan bytes, std::size_t value_count);

// The coordinates that randk draws for a chunk, one a stratum, and the size of each stratum.
struct Drawn {
  std::vector<std::size_t> indices;
  std::vector<std::size_t> sizes;
};
Drawn draw_strata(std::uint64_t seed, std::size_t count, std::size_t value_count);
std::uint64_t strata_seed(std::uint64_t run, std::uint64_t round, std::uint64_t first_value);

}  // namespace fluvial::kernels::reference
