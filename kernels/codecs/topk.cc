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

// Calls visit(index within the chunk) for what is selected, by looking at every value.
template <typename Visit>
void for_each_selected(const EncodePlan& plan, std::uint64_t first_value, std::span<const float> chunk,
                       const cpu::Loops& loops, Visit visit) {
  std::array<std::uint32_t, kPieceValues> selected;
  for (std::size_t first = 0; first < chunk.size(); first += kPieceValues) {
    const std::span<const float> piece = chunk.subspan(first, std::min(kPieceValues, chunk.size() - first));
    const std::size_t found = loops.select(piece.data(), piece.size(), plan.threshold_bits, selected.data());
    for (std::size_t i = 0; i < found; ++i) {
      const std::size_t index = first + selected[i];
      if (ops::magnitude_bits(chunk[index]) == plan.threshold_bits && first_value + index >= plan.ties_end) continue;
      visit(index);
    }
  }
}

}  // namespace

double TopkCodec::ratio(std::uint64_t) const { return spec().ratio; }

std::size_t TopkCodec::encoded_bytes_max(std::size_t value_count) const {
  // Every index takes a bit when all values are sent, and a value less is four bytes less.
  return kHeaderBytes + value_count * sizeof(float) + (value_count + 7) / 8 + 1;
}

std::size_t TopkCodec::workspace_bytes(const VectorSchema& schema) const {
  return selection_workspace_bytes(schema.layout, entries_wanted(spec().ratio, schema.layout.value_count));
}

Result<EncodePlan> TopkCodec::prepare(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                                      const PassInput& input, MutableByteSpan state, MutableByteSpan workspace) const {
  FLUVIAL_TRY(check_prepare(*this, schema, vector, input, state, workspace));
  const SelectOptions options{.k = entries_wanted(ratio(key.round), vector.size()), .sampled = spec().sampled};
  FLUVIAL_ASSIGN(const Selection selection,
                 select_entries(schema.layout, vector, options, workspace, loops(), sparse_loops()));
  return EncodePlan{.layout = schema.layout,
                    .key = key,
                    .pass = input.pass,
                    .values = vector,
                    .threshold_bits = selection.threshold.bits,
                    .ties_end = selection.threshold.ties_end,
                    .chunk_ends = selection.chunk_ends,
                    .sent_indices = selection.indices,
                    .sent_values = selection.values};
}

Result<std::size_t> TopkCodec::encode_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                            std::span<const float> chunk, MutableByteSpan out) const {
  FLUVIAL_TRY(check_encode(*this, plan, chunk_index, chunk, out));
  if (plan.chunk_ends.empty()) return encode_scanning(plan, chunk_index, chunk, out);
  const std::size_t first = plan.chunk_ends[chunk_index];
  const std::size_t count = plan.chunk_ends[chunk_index + 1] - first;
  const unsigned bits = rice_bits(count, chunk.size());
  put_header(out.data(), count, bits);
  std::byte* values = out.data() + kHeaderBytes;
  if (count > 0) std::memcpy(values, plan.sent_values.data() + first, count * sizeof(float));
  IndexWriter writer(values + count * sizeof(float), count, bits);
  for (const std::uint32_t index : plan.sent_indices.subspan(first, count)) writer.put(index);
  return kHeaderBytes + count * sizeof(float) + writer.finish();
}

Result<std::size_t> TopkCodec::encode_scanning(const EncodePlan& plan, std::size_t chunk_index,
                                               std::span<const float> chunk, MutableByteSpan out) const {
  const std::uint64_t first_value = plan.layout.first_value(chunk_index);
  std::size_t count = 0;
  for_each_selected(plan, first_value, chunk, loops(), [&](std::size_t) { ++count; });
  const unsigned bits = rice_bits(count, chunk.size());
  put_header(out.data(), count, bits);
  std::byte* values = out.data() + kHeaderBytes;
  IndexWriter writer(values + count * sizeof(float), count, bits);
  for_each_selected(plan, first_value, chunk, loops(), [&](std::size_t index) {
    std::memcpy(values, &chunk[index], sizeof(float));
    values += sizeof(float);
    writer.put(static_cast<std::uint32_t>(index));
  });
  return kHeaderBytes + count * sizeof(float) + writer.finish();
}

Result<std::size_t> TopkCodec::encode_residual_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                                     std::span<const float> chunk, MutableByteSpan out,
                                                     std::span<float> residual) const {
  FLUVIAL_CHECK(residual.size() == chunk.size(), "a residual of another length");
  FLUVIAL_ASSIGN(const std::size_t size, encode_chunk(plan, chunk_index, chunk, out));
  if (plan.chunk_ends.empty()) {
    FLUVIAL_TRY(residual_chunk(chunk, ByteSpan(out).first(size), residual));
    return size;
  }
  if (residual.data() != chunk.data()) sparse_loops().copy(chunk.data(), chunk.size(), residual.data());
  const std::size_t first = plan.chunk_ends[chunk_index];
  const std::size_t count = plan.chunk_ends[chunk_index + 1] - first;
  for (const std::uint32_t index : plan.sent_indices.subspan(first, count)) residual[index] = 0.0F;
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

std::unique_ptr<Codec> make(const CodecSpec& spec, cpu::Target target) {
  return std::make_unique<TopkCodec>(spec, target);
}

}  // namespace

const CodecEntry kTopkEntry = {CodecKind::kTopk, "topk", kOptions, check_ratio, make};

}  // namespace fluvial::kernels
