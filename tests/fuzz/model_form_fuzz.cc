// A model in another form (docs/formats/model.md), as a parent sends it: any bytes by each codec, with and without a
// base, and any announcement. What is decoded is what a reader of its own makes of the bytes with the reference's
// decoders, and nothing else is.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <vector>

#include "core/aggregate/model_form.h"
#include "kernels/codec.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"
#include "tests/fuzz/errors.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {
namespace {

constexpr std::uint64_t kChunkValues = 16;
constexpr std::string_view kCodecs[] = {"fp16",       "bf16",       "delta:fp16", "delta:bf16", "delta:int8",
                                        "delta:int4", "delta:sign", "delta:topk", "delta:randk"};

const round::Schema& schema() {
  static const round::Schema made = round::Schema::make({{"n", round::DType::kU8, {3}},
                                                         {"w", round::DType::kF32, {5, 4}},
                                                         {"steps", round::DType::kI64, {1}},
                                                         {"b", round::DType::kF32, {5}}})
                                        .value();
  return made;
}

Buffer base_model() {
  std::vector<float> values(schema().value_count());
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = 0.25F * static_cast<float>(i) - 2;
  const std::vector<std::int64_t> integers(schema().integer_count(), 7);
  Buffer model(schema().model_bytes());
  FLUVIAL_CHECK(round::join_model(schema(), values, integers, model.span()).ok(), "a base");
  return model;
}

// Nothing for bytes that are no such model.
std::optional<Buffer> by_hand(std::string_view codec, const Buffer* base, ByteSpan bytes) {
  const auto made = kernels::make_codec(kernels::parse_codec(codec).value()).value();
  std::vector<float> values(schema().value_count());
  if (base != nullptr) {
    std::vector<std::int64_t> integers(schema().integer_count());
    round::split_model(schema(), base->span(), values, integers);
  }
  for (std::size_t first = 0; first < values.size(); first += kChunkValues) {
    const std::size_t count = std::min<std::size_t>(kChunkValues, values.size() - first);
    if (bytes.size() < 4) return std::nullopt;
    std::uint32_t size = 0;
    std::memcpy(&size, bytes.data(), sizeof size);
    if (bytes.size() - 4 < size) return std::nullopt;
    const ByteSpan chunk = bytes.subspan(4, size);
    const auto decoded = kernels::reference::decode(codec, chunk, count);
    if (!decoded || kernels::test_values::other_settings(*made, chunk, count)) return std::nullopt;
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>((*decoded)[i]);
      values[first + i] = base == nullptr ? value : values[first + i] + value + 0.0F;
    }
    bytes = bytes.subspan(4 + std::size_t{size});
  }
  if (bytes.size() != 3 + 8) return std::nullopt;
  Buffer model(schema().model_bytes());  // n, w, steps, b
  std::memcpy(model.data(), bytes.data(), 3);
  std::memcpy(model.data() + 3, values.data(), 80);
  std::memcpy(model.data() + 83, bytes.data() + 3, 8);
  std::memcpy(model.data() + 91, values.data() + 20, 20);
  return model;
}

void decode(Input& input) {
  const aggregate::Down down = aggregate::parse_down(kCodecs[input.below(std::size(kCodecs))]).value();
  const bool is_delta = down.kind == aggregate::Down::Kind::kDelta;
  const Buffer base = base_model();
  round::ModelForm form{down.codec, kChunkValues, 0, {}};
  if (is_delta) form.base = round::ModelRef{RunId(1), ModelVersion(1), {}, schema().model_bytes()};
  const ByteSpan bytes = input.rest();
  form.bytes = bytes.size();
  Serial serial;
  Buffer out(schema().model_bytes());
  const Status decoded =
      aggregate::decode_model(serial, form, schema(), is_delta ? base.span() : ByteSpan(), bytes, out.span());
  if (!decoded.ok()) check_error(decoded.error());
  const auto expected = by_hand(down.codec, is_delta ? &base : nullptr, bytes);
  FLUVIAL_CHECK(decoded.ok() == expected.has_value(), "another opinion about what is a model");
  if (!expected) return;
  FLUVIAL_CHECK(std::ranges::equal(out.span(), expected->span()), "another model");
}

void announce(Input& input) {
  round::ModelForm form{input.text(), input.number<std::uint64_t>(), input.number<std::uint64_t>(), {}};
  if (input.flag()) form.base = round::ModelRef{RunId(1), ModelVersion(1), {}, input.number<std::uint64_t>()};
  const Status checked = aggregate::check_form(form, schema());
  if (!checked.ok()) return check_error(checked.error());
  // Memory is taken for it: a length before each of at most 25 chunks, some bytes a value, and the other tensors.
  FLUVIAL_CHECK(form.bytes <= 25 * 1'024 + 11, "room for more than such a model has");
}

void run(ByteSpan bytes) {
  Input input(bytes);
  if (input.flag()) return announce(input);
  decode(input);
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
