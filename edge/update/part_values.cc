#include "edge/update/part_values.h"

#include <algorithm>
#include <cstring>

#include "edge/reduce/reduce.h"

namespace fluvial::edge {
namespace {

std::span<const float> as_floats(ByteSpan bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};  // NOLINT: a mapping or a Buffer
}

Buffer assembled(const round::Schema& schema, const std::vector<Shard>& shards) {
  Buffer model(static_cast<std::size_t>(schema.model_bytes()));
  for (const Shard& shard : shards) {
    for (const round::ByteRange& range : shard.ranges.ranges()) {
      std::memcpy(model.data() + range.first_byte, shard.model.data() + range.first_byte, range.bytes);
    }
  }
  return model;
}

}  // namespace

PartValues PartValues::of(const round::Schema& schema, const UpdatePart& part) {
  PartValues values;
  if (schema.all_averaged()) {
    if (part.shards.empty()) values.pieces_.push_back({0, as_floats(part.model)});
    for (const Shard& shard : part.shards) {
      for (const round::ByteRange& range : shard.ranges.ranges()) {
        values.pieces_.push_back(
            {range.first_byte / sizeof(float), as_floats(shard.model.subspan(range.first_byte, range.bytes))});
      }
    }
    std::ranges::sort(values.pieces_, {}, &Piece::first_value);
    return values;
  }
  values.cut_ = Buffer(static_cast<std::size_t>(schema.value_count()) * sizeof(float));
  values.integers_.resize(static_cast<std::size_t>(schema.integer_count()));
  const std::span<float> into(reinterpret_cast<float*>(values.cut_.data()),
                              values.cut_.size() / sizeof(float));  // NOLINT
  if (part.shards.empty()) {
    round::split_model(schema, part.model, into, values.integers_);
  } else {
    round::split_model(schema, assembled(schema, part.shards).span(), into, values.integers_);
  }
  values.pieces_.push_back({0, into});
  return values;
}

std::span<const float> PartValues::read(std::uint64_t first, std::size_t count, std::vector<float>& scratch) const {
  if (count == 0) return {};
  auto piece = std::ranges::upper_bound(pieces_, first, {}, &Piece::first_value);
  FLUVIAL_CHECK(piece != pieces_.begin(), "values before the first piece");
  --piece;
  const std::uint64_t offset = first - piece->first_value;
  if (offset + count <= piece->values.size()) return piece->values.subspan(offset, count);
  scratch.resize(count);
  for (std::size_t done = 0; done < count; ++piece) {
    FLUVIAL_CHECK(piece != pieces_.end() && piece->first_value <= first + done, "pieces without a gap");
    const std::span<const float> from = piece->values.subspan(first + done - piece->first_value);
    const std::size_t some = std::min(count - done, from.size());
    std::copy_n(from.begin(), some, scratch.begin() + static_cast<std::ptrdiff_t>(done));
    done += some;
  }
  return scratch;
}

Status mean_of_chunk(const std::vector<PartValues>& values, const std::vector<UpdatePart>& parts,
                     const kernels::ChunkLayout& layout, std::size_t index, Algorithm reduction, std::span<float> out) {
  std::vector<std::vector<float>> scratch(parts.size());
  std::vector<std::span<const float>> vectors;
  std::vector<std::uint32_t> weights;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    vectors.push_back(values[k].read(layout.first_value(index), out.size(), scratch[k]));
    weights.push_back(parts[k].weight);
  }
  return reduce_mean(reduction, vectors, weights, out);
}

}  // namespace fluvial::edge
