// Shared by the codecs, beside their public header. Internal to kernels/.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/codec.h"
#include "kernels/cpu/loops.h"
#include "kernels/pieces.h"

namespace fluvial::kernels {

Status check_spec(const CodecSpec& spec);

Status check_layout(const ChunkLayout& layout);  // chunk_values is 1 to kChunkValuesMax
Status check_chunk(const ChunkLayout& layout, std::size_t chunk_index, std::size_t value_count);

// The argument checks of every fold(), prepare() and encode_chunk().
Status check_fold(const Codec& codec, const VectorSchema& schema, std::span<const float> update,
                  std::span<const float> residual, ByteSpan state, std::span<const float> out);
Status check_prepare(const Codec& codec, const VectorSchema& schema, std::span<const float> vector,
                     const PassInput& input, ByteSpan state, ByteSpan workspace);
Status check_survey(const Codec& codec, const VectorSchema& schema, std::span<const float> vector, ByteSpan workspace);
Status check_survey_chunk(const Codec& codec, const VectorSchema& schema, std::size_t chunk_index,
                          std::span<const float> chunk, ByteSpan workspace);
Status check_encode(const Codec& codec, const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                    ByteSpan out);

// weight * 2^scale_bits, exact. kInvalidArgument when the weight is not one.
Result<double> term_factor(std::uint32_t weight, int scale_bits);

Error not_screened();  // kDataLoss: a term beyond 2^62

}  // namespace fluvial::kernels
