#include "cli/bench_encoded.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/digest/sha256.h"
#include "core/digest/submission_digest.h"
#include "kernels/reference/reference.h"

namespace fluvial::cli {

bool Encoded::is(std::string_view journalled) const {
  return journalled.empty() || journalled == stream || journalled == tree;
}

std::vector<std::byte> bench_trailer(const UpdateStream& stream, std::size_t integer_count) {
  std::vector<std::byte> trailer(integer_count * sizeof(std::int64_t));  // docs/formats/frame.md
  for (std::size_t k = 0; k < integer_count; ++k) {
    store_le<std::uint64_t>(trailer.data() + k * sizeof(std::int64_t),
                            static_cast<std::uint64_t>(bench_integer(stream, k)));
  }
  const float probe = 1;
  const ByteSpan behind = std::as_bytes(std::span(&probe, 1));
  trailer.insert(trailer.end(), behind.begin(), behind.end());
  return trailer;
}

Result<Encoded> encode_all(const kernels::Codec& codec, const kernels::EncodePlan& plan,
                           std::span<const std::byte> trailer) {
  const kernels::ChunkLayout& layout = plan.layout;
  const std::string text = kernels::to_string(codec.spec());
  Buffer bytes(codec.encoded_bytes_max(static_cast<std::size_t>(std::min(layout.chunk_values, layout.value_count))));
  SubmissionDigest stream(DigestKind::kStream, layout.chunk_count());
  SubmissionDigest tree(DigestKind::kTree, layout.chunk_count());
  Encoded out;
  out.decoded.reserve(plan.values.size());
  for (std::size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
    const auto values = layout.of(plan.values, chunk);
    FLUVIAL_ASSIGN(const std::size_t size, codec.encode_chunk(plan, chunk, values, bytes.span()));
    stream.in_order(bytes.span().first(size));
    tree.side_by_side(chunk, bytes.span().first(size));
    const auto decoded = kernels::reference::decode(text, bytes.span().first(size), values.size());
    if (!decoded) return Error{Code::kDataLoss, fmt::format("chunk {} of what is encoded does not decode", chunk)};
    out.decoded.insert(out.decoded.end(), decoded->begin(), decoded->end());
  }
  out.stream = to_hex(stream.finish(trailer));
  out.tree = to_hex(tree.finish(trailer));
  return out;
}

}  // namespace fluvial::cli
