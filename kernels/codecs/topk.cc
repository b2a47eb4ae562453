#include "kernels/codecs/topk.h"

#include <algorithm>
#include <cstring>

#include "core/base/format.h"
#include "kernels/codecs/options.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

constexpr std::uint8_t kVersion = 2;
constexpr std::size_t kHeaderBytes = 8;

void put_header(std::byte* out, std::size_t count, unsigned bits) {
  store_le<std::uint8_t>(out, kVersion);
  store_le<std::uint8_t>(out + 1, static_cast<std::uint8_t>(bits));
  store_le<std::uint16_t>(out + 2, 0);
  store_le<std::uint32_t>(out + 4, static_cast<std::uint32_t>(count));
}

bool is_selected(const EncodePlan& plan, std::uint32_t magnitude, std::uint64_t coordinate) {
  return magnitude > plan.threshold_bits || (magnitude == plan.threshold_bits && coordinate < plan.ties_end);
}

// Calls visit(index within the chunk, value) for each selected value, by looking at every value.
template <typename Visit>
void scan(const EncodePlan& plan, std::uint64_t first_value, std::span<const float> chunk, const cpu::Loops& loops,
          Visit visit) {
  std::array<std::uint32_t, kPieceValues> found;
  for (std::size_t first = 0; first < chunk.size(); first += kPieceValues) {
    const std::span<const float> piece = chunk.subspan(first, std::min(kPieceValues, chunk.size() - first));
    const std::size_t count = loops.select(piece.data(), piece.size(), plan.threshold_bits, found.data());
    for (std::size_t i = 0; i < count; ++i) {
      const std::size_t index = first + found[i];
      if (is_selected(plan, ops::magnitude_bits(chunk[index]), first_value + index)) {
        visit(static_cast<std::uint32_t>(index), chunk[index]);
      }
    }
  }
}

// The same, among the gathered values.
template <typename Visit>
void for_each_gathered(const EncodePlan& plan, std::size_t chunk_index, Visit visit) {
  const std::uint64_t first_value = plan.layout.first_value(chunk_index);
  const std::size_t first_piece = chunk_index * pieces_of_chunk(plan.layout.size(0));
  for (std::size_t piece = 0; piece < pieces_of_chunk(plan.layout.size(chunk_index)); ++piece) {
    const auto [first, count] = plan.pieces[first_piece + piece];
    for (std::size_t entry = first; entry < std::size_t{first} + count; ++entry) {
      const std::uint32_t index = plan.gathered_indices[entry];
      const float value = plan.gathered_values[entry];
      if (is_selected(plan, ops::magnitude_bits(value), first_value + index)) visit(index, value);
    }
  }
}

template <typename Visit>
void for_each_selected(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                       const cpu::Loops& loops, Visit visit) {
  if (plan.pieces.empty()) {
    scan(plan, plan.layout.first_value(chunk_index), chunk, loops, visit);
  } else {
    for_each_gathered(plan, chunk_index, visit);
  }
}

}  // namespace

double TopkCodec::ratio(std::uint64_t) const { return spec().ratio; }

std::size_t TopkCodec::encoded_bytes_max(std::size_t value_count) const {
  // If all values are sent every index takes one bit; each value that is left out saves four bytes.
  return kHeaderBytes + value_count * sizeof(float) + (value_count + 7) / 8 + 1;
}

std::size_t TopkCodec::workspace_bytes(const VectorSchema& schema) const {
  return Survey::workspace_bytes(schema.layout, entries_wanted(spec().ratio, schema.layout.value_count));
}

SelectOptions TopkCodec::options(std::uint64_t round, std::uint64_t value_count) const {
  return {.k = entries_wanted(ratio(round), value_count), .sampled = spec().sampled};
}

Status TopkCodec::survey(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                         MutableByteSpan workspace) const {
  FLUVIAL_TRY(check_survey(*this, schema, vector, workspace));
  Survey(schema.layout, options(key.round, vector.size()), workspace, loops(), sparse_loops()).begin(vector);
  return {};
}

Status TopkCodec::survey_chunk(const VectorSchema& schema, const StreamKey& key, std::size_t chunk_index,
                               std::span<const float> chunk, MutableByteSpan workspace) const {
  FLUVIAL_TRY(check_survey_chunk(*this, schema, chunk_index, chunk, workspace));
  const SelectOptions with = options(key.round, schema.layout.value_count);
  Survey(schema.layout, with, workspace, loops(), sparse_loops()).gather(chunk_index, chunk);
  return {};
}

Result<EncodePlan> TopkCodec::prepare(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                                      const PassInput& input, MutableByteSpan state, MutableByteSpan workspace) const {
  FLUVIAL_TRY(check_prepare(*this, schema, vector, input, state, workspace));
  Survey survey(schema.layout, options(key.round, vector.size()), workspace, loops(), sparse_loops());
  if (!input.surveyed) {
    survey.begin(vector);
    for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) survey.gather(i, schema.layout.of(vector, i));
  }
  FLUVIAL_ASSIGN(const Selection selection, survey.finish(vector));
  return EncodePlan{.layout = schema.layout,
                    .key = key,
                    .pass = input.pass,
                    .values = vector,
                    .threshold_bits = selection.threshold.bits,
                    .ties_end = selection.threshold.ties_end,
                    .pieces = selection.pieces,
                    .gathered_indices = selection.indices,
                    .gathered_values = selection.values};
}

Result<std::size_t> TopkCodec::encode_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                            std::span<const float> chunk, MutableByteSpan out) const {
  FLUVIAL_TRY(check_encode(*this, plan, chunk_index, chunk, out));
  std::size_t count = 0;
  for_each_selected(plan, chunk_index, chunk, loops(), [&](std::uint32_t, float) { ++count; });
  const unsigned bits = rice_bits(count, chunk.size());
  put_header(out.data(), count, bits);
  std::byte* values = out.data() + kHeaderBytes;
  IndexWriter writer(values + count * sizeof(float), count, bits);
  for_each_selected(plan, chunk_index, chunk, loops(), [&](std::uint32_t index, float value) {
    std::memcpy(values, &value, sizeof(float));
    values += sizeof(float);
    writer.put(index);
  });
  return kHeaderBytes + count * sizeof(float) + writer.finish();
}

Result<std::size_t> TopkCodec::encode_residual_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                                     std::span<const float> chunk, MutableByteSpan out,
                                                     std::span<float> residual) const {
  FLUVIAL_CHECK(residual.size() == chunk.size(), "a residual of another length");
  FLUVIAL_ASSIGN(const std::size_t size, encode_chunk(plan, chunk_index, chunk, out));
  if (plan.pieces.empty()) {
    FLUVIAL_TRY(residual_chunk(chunk, ByteSpan(out).first(size), residual));
    return size;
  }
  if (residual.data() != chunk.data()) sparse_loops().copy(chunk.data(), chunk.size(), residual.data());
  for_each_gathered(plan, chunk_index, [&](std::uint32_t index, float) { residual[index] = 0.0F; });
  return size;
}

Result<SparseEntries> TopkCodec::parse(ByteSpan bytes, std::size_t value_count) const {
  const auto bad = [&](std::string_view message) {
    return Error{Code::kDataLoss, format_text("{} chunk: {}", name(), message)};
  };
  if (bytes.size() < kHeaderBytes) return bad(format_text("{} bytes, shorter than its header", bytes.size()));
  const auto version = load_le<std::uint8_t>(bytes.data());
  if (version != kVersion || load_le<std::uint16_t>(bytes.data() + 2) != 0) {
    return bad(format_text("version {} or reserved bytes that are not zero, expected version {}", version, kVersion));
  }
  const unsigned bits = load_le<std::uint8_t>(bytes.data() + 1);
  SparseEntries entries;
  entries.count = load_le<std::uint32_t>(bytes.data() + 4);
  if (entries.count > value_count) return bad(format_text("{} entries for {} values", entries.count, value_count));
  const std::size_t value_bytes = entries.count * sizeof(float);
  if (bytes.size() - kHeaderBytes < value_bytes) {
    return bad(format_text("{} bytes, too few for {} entries", bytes.size(), entries.count));
  }
  entries.values = bytes.subspan(kHeaderBytes, value_bytes);
  const ByteSpan indices = bytes.subspan(kHeaderBytes + value_bytes);
  if (const Status checked = check_indices(indices, entries.count, bits, value_count); !checked.ok()) {
    return bad(checked.error().message);
  }
  entries.indices = IndexReader(indices, entries.count, bits);
  return entries;
}

namespace {

struct SelectWords {
  static constexpr std::string_view key = "select", yes = "sampled", no = "exact";
};
constexpr CodecOption kOptions[] = {kRatioOption, choice_option<&CodecSpec::sampled, SelectWords>()};

}  // namespace

const CodecEntry kTopkEntry = {CodecKind::kTopk, "topk", kOptions, check_ratio, make_as<TopkCodec>};

}  // namespace fluvial::kernels
