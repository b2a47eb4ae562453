#include "edge/update/part_values.h"

#include <algorithm>
#include <cstring>

#include "edge/gpu/site_gpus.h"
#include "edge/reduce/reduce.h"

namespace fluvial::edge {
namespace {

const float* floats_at(ByteSpan bytes) {
  return reinterpret_cast<const float*>(bytes.data());  // NOLINT: a mapping or a Buffer
}

std::vector<std::int64_t> integers_of(const round::Schema& schema, ByteSpan model) {
  std::vector<std::int64_t> integers(static_cast<std::size_t>(schema.integer_count()));
  if (!integers.empty()) round::read_integers(schema, model, integers);
  return integers;
}

// A rank's memory with its values from the GPU in it.
Result<Buffer> with_values(const round::Schema& schema, const ShardView& shard) {
  std::vector<float> values(static_cast<std::size_t>(schema.value_count()));
  FLUVIAL_TRY(shard.gpu->read(0, values));
  Buffer model(static_cast<std::size_t>(schema.model_bytes()));
  FLUVIAL_TRY(round::join_model(schema, values, integers_of(schema, shard.model), model.span()));
  return model;
}

Result<Buffer> assembled(const round::Schema& schema, const std::vector<ShardView>& shards) {
  Buffer model(static_cast<std::size_t>(schema.model_bytes()));
  for (const ShardView& shard : shards) {
    Buffer staged;
    if (shard.gpu) {
      FLUVIAL_ASSIGN(staged, with_values(schema, shard));
    }
    const ByteSpan from = shard.gpu ? ByteSpan(staged.span()) : shard.model;
    for (const round::ByteRange& range : shard.ranges.ranges()) {
      std::memcpy(model.data() + range.first_byte, from.data() + range.first_byte, range.bytes);
    }
  }
  return model;
}

}  // namespace

Result<PartValues> PartValues::of(const round::Schema& schema, const PartView& part) {
  const auto count = static_cast<std::size_t>(schema.value_count());
  PartValues values;
  if (part.gpu) {
    FLUVIAL_CHECK(part.gpu->values().size() == count, "a vector on a GPU that does not fit the schema");
    values.pieces_.push_back({.count = count, .gpu = part.gpu});
    values.integers_ = integers_of(schema, part.model);
    return values;
  }
  if (!part.shards.empty()) {
    FLUVIAL_TRY(values.add_shards(schema, part.shards));
    return values;
  }
  if (schema.all_averaged()) {
    values.pieces_.push_back({.count = count, .values = floats_at(part.model)});
    return values;
  }
  values.cut(schema, part.model);
  return values;
}

void PartValues::cut(const round::Schema& schema, ByteSpan model) {
  cut_ = Buffer(static_cast<std::size_t>(schema.value_count()) * sizeof(float));
  integers_.resize(static_cast<std::size_t>(schema.integer_count()));
  const std::span<float> into(reinterpret_cast<float*>(cut_.data()), cut_.size() / sizeof(float));  // NOLINT
  round::split_model(schema, model, into, integers_);
  pieces_.push_back({.count = into.size(), .values = into.data()});
}

Status PartValues::add_shards(const round::Schema& schema, const std::vector<ShardView>& shards) {
  if (!schema.all_averaged()) {
    FLUVIAL_ASSIGN(const Buffer model, assembled(schema, shards));
    cut(schema, model.span());
    return {};
  }
  for (const ShardView& shard : shards) {
    for (const round::ByteRange& range : shard.ranges.ranges()) {
      Piece piece{
          .first_value = range.first_byte / sizeof(float), .count = range.bytes / sizeof(float), .gpu = shard.gpu};
      if (!shard.gpu) piece.values = floats_at(shard.model.subspan(range.first_byte, range.bytes));
      pieces_.push_back(std::move(piece));
    }
  }
  std::ranges::sort(pieces_, {}, &Piece::first_value);
  return {};
}

Result<std::span<const float>> PartValues::read(std::uint64_t first, std::size_t count,
                                                std::vector<float>& scratch) const {
  if (count == 0) return std::span<const float>();
  auto piece = std::ranges::upper_bound(pieces_, first, {}, &Piece::first_value);
  FLUVIAL_CHECK(piece != pieces_.begin(), "values before the first piece");
  --piece;
  const std::uint64_t offset = first - piece->first_value;
  if (!piece->gpu && offset + count <= piece->count) return std::span(piece->values + offset, count);
  scratch.resize(count);
  for (std::size_t done = 0; done < count; ++piece) {
    FLUVIAL_CHECK(piece != pieces_.end() && piece->first_value <= first + done, "pieces without a gap");
    const auto skip = static_cast<std::size_t>(first + done - piece->first_value);
    const std::span<float> into = std::span(scratch).subspan(done, std::min(count - done, piece->count - skip));
    if (piece->gpu) {
      FLUVIAL_TRY(piece->gpu->read(first + done, into));
    } else {
      std::copy_n(piece->values + skip, into.size(), into.begin());
    }
    done += into.size();
  }
  return std::span<const float>(scratch);
}

Result<std::vector<PartValues>> values_of(const round::Schema& schema, const std::vector<PartView>& parts) {
  std::vector<PartValues> values;
  for (const PartView& part : parts) {
    FLUVIAL_ASSIGN(PartValues one, PartValues::of(schema, part));
    values.push_back(std::move(one));
  }
  return values;
}

std::vector<std::int64_t> joined_integers(const std::vector<PartValues>& parts) {
  std::vector<std::int64_t> joined = parts.front().integers();
  for (const PartValues& part : parts) {
    for (std::size_t i = 0; i < joined.size(); ++i) joined[i] = std::max(joined[i], part.integers()[i]);
  }
  return joined;
}

Status mean_of_chunk(const std::vector<PartValues>& values, const std::vector<PartView>& parts,
                     const kernels::ChunkLayout& layout, std::size_t index, Algorithm reduction, std::span<float> out) {
  std::vector<std::vector<float>> scratch(parts.size());
  std::vector<std::span<const float>> vectors;
  std::vector<std::uint32_t> weights;
  for (std::size_t k = 0; k < parts.size(); ++k) {
    FLUVIAL_ASSIGN(const std::span<const float> vector,
                   values[k].read(layout.first_value(index), out.size(), scratch[k]));
    vectors.push_back(vector);
    weights.push_back(parts[k].weight);
  }
  return reduce_mean(reduction, vectors, weights, out);
}

}  // namespace fluvial::edge
