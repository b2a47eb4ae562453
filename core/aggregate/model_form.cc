#include "core/aggregate/model_form.h"

#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <utility>

#include "core/base/format.h"
#include "kernels/vector.h"

namespace fluvial::aggregate {
namespace {

constexpr std::size_t kLengthBytes = sizeof(std::uint32_t);  // before each chunk

bool is_aligned(const std::byte* data) { return reinterpret_cast<std::uintptr_t>(data) % alignof(float) == 0; }

std::uint64_t others_bytes(const round::Schema& schema) {
  return schema.model_bytes() - schema.value_count() * sizeof(float);
}

// Calls visit(offset in the model, bytes) for each tensor that is averaged, or for each that is not.
template <typename Visit>
void each_tensor(const round::Schema& schema, bool averaged, Visit&& visit) {
  for (std::size_t t = 0; t < schema.tensors().size(); ++t) {
    const round::DType dtype = schema.tensors()[t].dtype;
    if (round::is_averaged(dtype) != averaged) continue;
    visit(schema.tensor_offset_bytes(t), schema.tensor_values(t) * round::dtype_bytes(dtype));
  }
}

// The flat vector of a model: its bytes themselves where they are one, else a copy.
class Flat {
 public:
  Flat(const round::Schema& schema, ByteSpan model) {
    if (schema.all_averaged() && is_aligned(model.data())) {
      values_ = {reinterpret_cast<const float*>(model.data()), schema.value_count()};  // NOLINT: bytes as values
      return;
    }
    copy_ = Values<float>(schema.value_count());
    std::byte* to = std::as_writable_bytes(copy_.span()).data();
    each_tensor(schema, true, [&](std::uint64_t offset, std::uint64_t size) {
      std::memcpy(to, model.data() + offset, size);
      to += size;
    });
    values_ = copy_.span();
  }
  std::span<const float> values() const { return values_; }

 private:
  Values<float> copy_;
  std::span<const float> values_;
};

// The flat vector of a model that is being made: likewise.
class FlatOut {
 public:
  FlatOut(const round::Schema& schema, MutableByteSpan model) : schema_(schema), model_(model) {
    if (schema.all_averaged() && is_aligned(model.data())) {
      values_ = {reinterpret_cast<float*>(model.data()), schema.value_count()};  // NOLINT: bytes as values
      return;
    }
    copy_ = Values<float>(schema.value_count());
    values_ = copy_.span();
  }
  std::span<float> values() { return values_; }
  // `others`: the bytes of the tensors that are not averaged.
  void finish(ByteSpan others) {
    if (!copy_.empty()) {
      const std::byte* from = std::as_bytes(copy_.span()).data();
      each_tensor(schema_, true, [&](std::uint64_t offset, std::uint64_t size) {
        std::memcpy(model_.data() + offset, from, size);
        from += size;
      });
    }
    each_tensor(schema_, false, [&](std::uint64_t offset, std::uint64_t size) {
      std::memcpy(model_.data() + offset, others.data(), size);
      others = others.subspan(size);
    });
  }

 private:
  const round::Schema& schema_;
  MutableByteSpan model_;
  Values<float> copy_;
  std::span<float> values_;
};

// What everybody makes of an encoded chunk: fp32(base + decoded) + 0, or the decoded values themselves.
Status decode_chunk(const kernels::Codec& codec, ByteSpan bytes, std::span<const float> base, std::span<float> out) {
  if (base.empty()) return codec.decode_chunk(bytes, out);
  FLUVIAL_TRY(codec.decode_chunk(bytes, out));
  kernels::add_residual(base, out, out);
  return {};
}

// Of a model itself nothing comes later: a value beyond the codec's range must not be cut to it. bf16 has fp32's.
Status check_held(const kernels::Codec& codec, std::span<const float> given) {
  constexpr float kFp16Beyond = 65520;  // from here on the nearest is infinity
  if (codec.spec().kind != kernels::CodecKind::kFp16) return {};
  FLUVIAL_ASSIGN(const kernels::ScreenReport screened, kernels::screen(given));
  if (screened.max_abs < kFp16Beyond) return {};
  return Error{Code::kInvalidArgument,
               format_text("{} does not hold the value {}", kernels::to_string(codec.spec()), screened.max_abs)};
}

// As a plan's chunk_values may be (core/round/plan_keys.h): smaller ones would be mostly lengths.
constexpr std::uint64_t kPlanChunkMin = 256;
constexpr std::uint64_t kPlanChunkMax = 1 << 20;

Status check_layout(const round::ModelForm& form, const round::Schema& schema) {
  if (form.chunk_values == 0 || form.chunk_values > kernels::kChunkValuesMax) {
    return Error{Code::kInvalidArgument, format_text("a model in chunks of {} values", form.chunk_values)};
  }
  if (form.base && form.base->bytes != schema.model_bytes()) {
    return Error{Code::kInvalidArgument, "a difference from a model of another size"};
  }
  return {};
}

std::uint64_t encoded_bytes_max(const kernels::Codec& codec, const kernels::ChunkLayout& layout) {
  const std::size_t count = layout.chunk_count();
  if (count == 0) return 0;
  return (count - 1) * (kLengthBytes + codec.encoded_bytes_max(layout.size(0))) + kLengthBytes +
         codec.encoded_bytes_max(layout.size(count - 1));
}

// Of the differences. Added in lanes, so that the compiler may use vectors: the same on every machine.
double square_distance(std::span<const float> a, std::span<const float> b) {
  std::array<double, 8> sums = {};
  const auto add = [&](std::size_t lane, std::size_t i) {
    const double apart = static_cast<double>(a[i]) - static_cast<double>(b[i]);
    sums[lane] += apart * apart;
  };
  std::size_t at = 0;
  for (; at + sums.size() <= a.size(); at += sums.size()) {
    for (std::size_t lane = 0; lane < sums.size(); ++lane) add(lane, at + lane);
  }
  for (std::size_t lane = 0; at + lane < a.size(); ++lane) add(lane, at + lane);
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

// The difference that a codec is given, and its plan of the whole vector.
struct Prepared {
  Values<float> difference;
  Buffer workspace;
  kernels::EncodePlan plan;
};

Result<Prepared> prepare(Parallel& parallel, const kernels::Codec& codec, const kernels::ChunkLayout& layout,
                         const kernels::StreamKey& key, std::span<const float> model, std::span<const float> base) {
  Prepared prepared;
  const kernels::VectorSchema vector{.layout = layout, .tensors = {}};
  prepared.workspace = Buffer(codec.workspace_bytes(vector));
  std::span<const float> given = model;
  if (!base.empty()) {
    prepared.difference = Values<float>(model.size());
    given = prepared.difference.span();
  }
  FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
    if (!base.empty()) {
      kernels::pseudo_gradient(layout.of(model, i), layout.of(base, i), {}, layout.of(prepared.difference.span(), i));
    }
    const auto screened = kernels::screen(layout.of(given, i), layout.first_value(i));
    if (!screened.ok()) return Error{Code::kInvalidArgument, screened.error().message};
    return {};
  }));
  FLUVIAL_TRY(codec.survey(vector, given, key, prepared.workspace.span()));
  FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) {
    return codec.survey_chunk(vector, key, i, layout.of(given, i), prepared.workspace.span());
  }));
  FLUVIAL_ASSIGN(prepared.plan, codec.prepare(vector, given, key, {.surveyed = true}, {}, prepared.workspace.span()));
  return prepared;
}

// One after the other, each behind its length; then the other tensors.
Buffer join(const std::vector<Buffer>& chunks, const round::Schema& schema, ByteSpan model) {
  std::uint64_t size = others_bytes(schema);
  for (const Buffer& chunk : chunks) size += kLengthBytes + chunk.size();
  Buffer joined(size);
  std::byte* to = joined.data();
  for (const Buffer& chunk : chunks) {
    store_le(to, static_cast<std::uint32_t>(chunk.size()));
    if (!chunk.empty()) std::memcpy(to + kLengthBytes, chunk.data(), chunk.size());
    to += kLengthBytes + chunk.size();
  }
  each_tensor(schema, false, [&](std::uint64_t offset, std::uint64_t bytes) {
    std::memcpy(to, model.data() + offset, bytes);
    to += bytes;
  });
  return joined;
}

// Cuts what join() made.
Result<std::vector<ByteSpan>> cut(const kernels::ChunkLayout& layout, ByteSpan* encoded) {
  std::vector<ByteSpan> chunks;
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    if (encoded->size() < kLengthBytes) return Error{Code::kDataLoss, "an encoded model that is cut short"};
    const std::size_t size = load_le<std::uint32_t>(encoded->data());
    *encoded = encoded->subspan(kLengthBytes);
    if (encoded->size() < size) return Error{Code::kDataLoss, "an encoded model that is cut short"};
    chunks.push_back(encoded->first(size));
    *encoded = encoded->subspan(size);
  }
  return chunks;
}

}  // namespace

Status check_form(const round::ModelForm& form, const round::Schema& schema) {
  FLUVIAL_TRY(check_layout(form, schema));
  if (form.chunk_values < kPlanChunkMin || form.chunk_values > kPlanChunkMax) {
    return Error{Code::kInvalidArgument, format_text("a model in chunks of {} values", form.chunk_values)};
  }
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, make_down_codec(form.codec, form.base.has_value()));
  const kernels::ChunkLayout layout{schema.value_count(), form.chunk_values};
  const std::uint64_t least = others_bytes(schema) + layout.chunk_count() * kLengthBytes;
  if (form.bytes < least || form.bytes > encoded_bytes_max(*codec, layout) + others_bytes(schema)) {
    return Error{Code::kInvalidArgument, format_text("{} bytes of {} cannot be such a model", form.bytes, form.codec)};
  }
  return {};
}

Result<EncodedModel> encode_model(Parallel& parallel, const Down& down, std::uint64_t chunk_values,
                                  const kernels::StreamKey& key, const round::Schema& schema, ByteSpan model,
                                  const std::optional<BaseModel>& base, MutableByteSpan trained) {
  FLUVIAL_CHECK(down.kind != Down::Kind::kWhole && (down.kind == Down::Kind::kDelta) == base.has_value(),
                "a delta has a base, a rounded model has none");
  FLUVIAL_CHECK(model.size() == schema.model_bytes() && trained.size() == model.size(), "models of the schema's size");
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, make_down_codec(down.codec, base.has_value()));
  const kernels::ChunkLayout layout{schema.value_count(), chunk_values};
  const Flat values(schema, model);
  std::optional<Flat> before;
  if (base) before.emplace(schema, base->bytes);
  const std::span<const float> base_values = before ? before->values() : std::span<const float>();
  FLUVIAL_ASSIGN(const Prepared prepared, prepare(parallel, *codec, layout, key, values.values(), base_values));

  FlatOut out(schema, trained);
  std::vector<Buffer> chunks(layout.chunk_count());
  std::vector<double> left_out(chunks.size());
  FLUVIAL_TRY(parallel.for_each(chunks.size(), [&](std::size_t i) -> Status {
    const std::span<const float> chunk = layout.of(prepared.plan.values, i);
    Buffer scratch(codec->encoded_bytes_max(chunk.size()));
    FLUVIAL_ASSIGN(const std::size_t size, codec->encode_chunk(prepared.plan, i, chunk, scratch.span()));
    chunks[i] = Buffer::copy_of(scratch.span().first(size));
    const std::span<float> made = layout.of(out.values(), i);
    FLUVIAL_TRY(
        decode_chunk(*codec, chunks[i].span(), base_values.empty() ? base_values : layout.of(base_values, i), made));
    const auto screened = kernels::screen(made, layout.first_value(i));
    if (!screened.ok()) return Error{Code::kInvalidArgument, screened.error().message};
    left_out[i] = square_distance(layout.of(values.values(), i), made);
    return base ? Status() : check_held(*codec, chunk);
  }));
  EncodedModel encoded{{kernels::to_string(codec->spec()), chunk_values, 0, {}},
                       join(chunks, schema, model),
                       std::sqrt(std::accumulate(left_out.begin(), left_out.end(), 0.0))};
  encoded.form.bytes = encoded.bytes.size();
  if (base) encoded.form.base = base->ref;
  out.finish(encoded.bytes.span().last(others_bytes(schema)));
  return encoded;
}

Status decode_model(Parallel& parallel, const round::ModelForm& form, const round::Schema& schema, ByteSpan base,
                    ByteSpan encoded, MutableByteSpan out) {
  FLUVIAL_CHECK(out.size() == schema.model_bytes() && base.size() == (form.base ? out.size() : 0),
                "models of the schema's size");
  FLUVIAL_TRY(check_layout(form, schema));
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, make_down_codec(form.codec, form.base.has_value()));
  const kernels::ChunkLayout layout{schema.value_count(), form.chunk_values};
  FLUVIAL_ASSIGN(const std::vector<ByteSpan> chunks, cut(layout, &encoded));
  if (encoded.size() != others_bytes(schema)) {
    return Error{Code::kDataLoss, "an encoded model whose chunks are not followed by the other tensors"};
  }
  std::optional<Flat> before;
  if (form.base) before.emplace(schema, base);
  FlatOut flat(schema, out);
  FLUVIAL_TRY(parallel.for_each(chunks.size(), [&](std::size_t i) -> Status {
    FLUVIAL_TRY(codec->screen_chunk(chunks[i], layout.size(i), layout.first_value(i)));
    return decode_chunk(*codec, chunks[i], before ? layout.of(before->values(), i) : std::span<const float>(),
                        layout.of(flat.values(), i));
  }));
  flat.finish(encoded);
  return {};
}

}  // namespace fluvial::aggregate
