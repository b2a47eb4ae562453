#include "core/aggregate/model_form.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "core/base/rng.h"
#include "kernels/reference/reference.h"

namespace fluvial::aggregate {
namespace {

constexpr std::uint64_t kChunkValues = 256;
constexpr kernels::StreamKey kKey{1, 5, 0};

// Pieces from the last to the first, each on a thread of its own: an order that a pool might take.
class Backwards final : public Parallel {
 public:
  Status for_each(std::size_t count, const std::function<Status(std::size_t)>& f) override {
    Status first;
    for (std::size_t i = count; i-- > 0;) {
      std::thread([&] {
        if (Status status = f(i); !status.ok()) first = std::move(status);
      }).join();
    }
    return first;
  }
};

round::Schema mixed() {
  return *round::Schema::make({{"steps", round::DType::kI64, {2}},
                               {"w", round::DType::kF32, {30, 20}},
                               {"mask", round::DType::kU8, {3}},
                               {"b", round::DType::kF32, {7}}});
}
round::Schema flat() { return *round::Schema::make({{"w", round::DType::kF32, {30, 20}}}); }

// Values as weights have them, and integers that are not 0.
Buffer draw(const round::Schema& schema, std::uint64_t seed, float size = 1) {
  Rng rng(seed);
  std::vector<float> values(schema.value_count());
  for (float& value : values) value = size * (static_cast<float>(rng.next() >> 40) / 0x1p23F - 1);
  std::vector<std::int64_t> integers(schema.integer_count());
  for (std::size_t i = 0; i < integers.size(); ++i) integers[i] = static_cast<std::int64_t>(seed + i) % 100;
  Buffer model(schema.model_bytes());
  EXPECT_TRUE(round::join_model(schema, values, integers, model.span()).ok());
  return model;
}

std::vector<float> values_of(const round::Schema& schema, ByteSpan model) {
  std::vector<float> values(schema.value_count());
  std::vector<std::int64_t> integers(schema.integer_count());
  round::split_model(schema, model, values, integers);
  return values;
}

// What docs/formats/model.md says, by the reference's own reading of the chunks.
Buffer decoded_by_hand(const round::ModelForm& form, const round::Schema& schema, ByteSpan base, ByteSpan encoded) {
  std::vector<float> values = base.empty() ? std::vector<float>(schema.value_count()) : values_of(schema, base);
  for (std::size_t first = 0; first < values.size(); first += form.chunk_values) {
    const std::size_t count = std::min<std::size_t>(form.chunk_values, values.size() - first);
    std::uint32_t size = 0;
    std::memcpy(&size, encoded.data(), sizeof size);
    const auto chunk = kernels::reference::decode(form.codec, encoded.subspan(4, size), count);
    EXPECT_TRUE(chunk);
    for (std::size_t i = 0; i < count; ++i) {
      const auto decoded = static_cast<float>((*chunk)[i]);
      values[first + i] = base.empty() ? decoded : values[first + i] + decoded + 0.0F;
    }
    encoded = encoded.subspan(4 + size);
  }
  Buffer model(schema.model_bytes());
  std::size_t value = 0;
  for (std::size_t t = 0; t < schema.tensors().size(); ++t) {
    std::byte* to = model.data() + schema.tensor_offset_bytes(t);
    if (schema.tensors()[t].dtype == round::DType::kF32) {
      std::memcpy(to, values.data() + value, schema.tensor_values(t) * sizeof(float));
      value += schema.tensor_values(t);
    } else {
      const std::size_t bytes = schema.tensor_values(t) * round::dtype_bytes(schema.tensors()[t].dtype);
      std::memcpy(to, encoded.data(), bytes);
      encoded = encoded.subspan(bytes);
    }
  }
  EXPECT_TRUE(encoded.empty());
  return model;
}

bool same(ByteSpan a, ByteSpan b) { return std::ranges::equal(a, b); }

double distance(const round::Schema& schema, ByteSpan a, ByteSpan b) {
  const std::vector<float> left = values_of(schema, a), right = values_of(schema, b);
  double sum = 0;
  for (std::size_t i = 0; i < left.size(); ++i) sum += std::pow(double{left[i]} - double{right[i]}, 2);
  return std::sqrt(sum);
}

round::ModelRef ref_of(const round::Schema& schema, std::uint64_t version) {
  return {RunId(1), ModelVersion(version), {}, schema.model_bytes()};
}

TEST(ModelForm, EverybodyDecodesWhatTheFormatSays) {
  Serial serial;
  Backwards backwards;
  for (const round::Schema& schema : {flat(), mixed()}) {
    const Buffer model = draw(schema, 7), before = draw(schema, 8);
    for (const std::string text : {"fp16", "bf16", "delta:fp16", "delta:bf16", "delta:int8", "delta:int4", "delta:sign",
                                   "delta:topk:ratio=0.1", "delta:randk:ratio=0.1"}) {
      const Down down = parse_down(text).value();
      std::optional<BaseModel> base;
      if (down.kind == Down::Kind::kDelta) base = BaseModel{ref_of(schema, 4), before.span()};
      Buffer trained(model.size()), again(model.size()), received(model.size());
      const auto encoded = encode_model(serial, down, kChunkValues, kKey, schema, model.span(), base, trained.span());
      ASSERT_TRUE(encoded.ok()) << text << ": " << encoded.error().message;
      const auto other = encode_model(backwards, down, kChunkValues, kKey, schema, model.span(), base, again.span());
      EXPECT_TRUE(same(encoded->bytes.span(), other->bytes.span())) << text;
      EXPECT_TRUE(same(trained.span(), again.span())) << text;
      const double left_out = distance(schema, trained.span(), model.span());
      EXPECT_NEAR(encoded->left_out_norm, left_out, 1e-12 * left_out) << text;
      EXPECT_EQ(other->left_out_norm, encoded->left_out_norm) << text << ": whatever the order of the pieces";
      EXPECT_TRUE(check_form(encoded->form, schema).ok()) << text;
      const ByteSpan from = base ? before.span() : ByteSpan();
      ASSERT_TRUE(decode_model(backwards, encoded->form, schema, from, encoded->bytes.span(), received.span()).ok());
      EXPECT_TRUE(same(received.span(), trained.span())) << text;
      const Buffer expected = decoded_by_hand(encoded->form, schema, from, encoded->bytes.span());
      EXPECT_TRUE(same(received.span(), expected.span())) << text;
      EXPECT_LT(distance(schema, received.span(), model.span()),
                base ? distance(schema, before.span(), model.span()) : 0.05)
          << text << ": nearer than before";
      EXPECT_LT(encoded->bytes.size(), model.size()) << text;
    }
  }
}

// What a difference leaves out comes with a later one: nothing is lost for good, whatever the codec.
TEST(ModelForm, WhatIsLeftOutComesLater) {
  Serial serial;
  const round::Schema schema = mixed();
  const Buffer model = draw(schema, 7);
  for (const std::string text : {"delta:int8", "delta:topk:ratio=0.1", "delta:sign"}) {
    Buffer trained = draw(schema, 8);
    const double first = distance(schema, trained.span(), model.span());
    for (std::uint64_t version = 1; version <= 30; ++version) {
      Buffer next(trained.size());
      ASSERT_TRUE(encode_model(serial, parse_down(text).value(), kChunkValues, {1, version, 0}, schema, model.span(),
                               BaseModel{ref_of(schema, version - 1), trained.span()}, next.span())
                      .ok());
      trained = std::move(next);
    }
    EXPECT_LT(distance(schema, trained.span(), model.span()), first / 30) << text;
  }
}

TEST(ModelForm, WhatACodecCannotHoldIsSaid) {
  Serial serial;
  const round::Schema schema = flat();
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float value : {65'520.0F, 66'000.0F, 1e6F, infinity}) {
    Buffer model = draw(schema, 7), trained(model.size());
    std::memcpy(model.data() + 400, &value, sizeof value);
    const auto encoded =
        encode_model(serial, parse_down("fp16").value(), kChunkValues, kKey, schema, model.span(), {}, trained.span());
    ASSERT_FALSE(encoded.ok());
    EXPECT_EQ(encoded.error().code, Code::kInvalidArgument);
  }
}

TEST(ModelForm, SmallValuesAreHeldAsTheyRound) {
  Serial serial;
  const round::Schema schema = flat();
  Buffer model = draw(schema, 7), trained(model.size());
  std::vector<float> values(model.size() / sizeof(float), 1e-8F);
  values[0] = 65'504.0F;
  std::memcpy(model.data(), values.data(), model.size());
  const auto encoded =
      encode_model(serial, parse_down("fp16").value(), kChunkValues, kKey, schema, model.span(), {}, trained.span());
  ASSERT_TRUE(encoded.ok()) << encoded.error().to_string();
  std::memcpy(values.data(), trained.data(), trained.size());
  EXPECT_EQ(values.front(), 65'504.0F);
  EXPECT_EQ(values.back(), 0.0F);
}

class HostileForm : public testing::Test {
 protected:
  HostileForm() {
    Buffer trained(model_.size());
    Result<EncodedModel> encoded =
        encode_model(serial_, parse_down("delta:topk:ratio=0.1").value(), kChunkValues, kKey, schema_, model_.span(),
                     BaseModel{ref_of(schema_, 4), before_.span()}, trained.span());
    encoded_ = std::move(*encoded);
  }
  Status decode(ByteSpan bytes) {
    Buffer out(model_.size());
    return decode_model(serial_, encoded_.form, schema_, before_.span(), bytes, out.span());
  }
  Serial serial_;
  round::Schema schema_ = mixed();
  Buffer model_ = draw(schema_, 7);
  Buffer before_ = draw(schema_, 8);
  EncodedModel encoded_;
};

TEST_F(HostileForm, IsRefusedOrDecodedAndNeverMore) {
  const ByteSpan whole = encoded_.bytes.span();
  ASSERT_TRUE(decode(whole).ok());
  for (std::size_t size = 0; size < whole.size(); ++size) {
    const Status status = decode(Buffer::copy_of(whole.first(size)).span());  // beyond it nothing may be read
    ASSERT_FALSE(status.ok()) << size;
    EXPECT_EQ(status.error().code, Code::kDataLoss) << size;
  }
  Buffer longer(whole.size() + 1);
  std::memcpy(longer.data(), whole.data(), whole.size());
  EXPECT_FALSE(decode(longer.span()).ok());
  for (std::size_t at = 0; at < whole.size(); ++at) {
    for (const std::byte flip : {std::byte{1}, std::byte{0x80}, std::byte{0xff}}) {
      Buffer damaged = Buffer::copy_of(whole);
      damaged.data()[at] ^= flip;
      static_cast<void>(decode(damaged.span()).ok());  // its digest is another's to look at
    }
  }
}

TEST_F(HostileForm, IsBoundedBeforeAnythingIsAllocated) {
  const auto refused = [&](auto change) {
    round::ModelForm form = encoded_.form;
    change(form);
    return !check_form(form, schema_).ok();
  };
  EXPECT_TRUE(refused([](auto& form) { form.bytes = std::uint64_t{1} << 40; }));
  EXPECT_TRUE(refused([](auto& form) { form.bytes = 3; }));
  EXPECT_TRUE(refused([](auto& form) { form.chunk_values = 0; }));
  EXPECT_TRUE(refused([](auto& form) { form.chunk_values = 1; })) << "more lengths than values";
  EXPECT_TRUE(refused([](auto& form) { form.chunk_values = 1 << 26; })) << "more than a plan's";
  EXPECT_TRUE(refused([](auto& form) { form.chunk_values = ~std::uint64_t{0}; }));
  EXPECT_TRUE(refused([](auto& form) { form.codec = "powersgd"; }));
  EXPECT_TRUE(refused([](auto& form) { form.codec = "qsgd"; }));
  EXPECT_TRUE(refused([](auto& form) { form.codec = ""; }));
  EXPECT_TRUE(refused([](auto& form) { form.base.reset(); })) << "topk of a whole model";
  EXPECT_TRUE(refused([](auto& form) { form.base->bytes = 4; }));
}

}  // namespace
}  // namespace fluvial::aggregate
