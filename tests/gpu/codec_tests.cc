// Every codec that the device has, against the CPU's: the same bytes, values, sums and residuals.
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "kernels/device_codec.h"
#include "kernels/fixed.h"
#include "kernels/test_values.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {
namespace {

using kernels::ChunkOutcome;
using kernels::Codec;
using kernels::DeviceCodec;
using kernels::DevicePlan;
using kernels::StreamKey;
using kernels::VectorSchema;
using kernels::test_values::adversarial;
using kernels::test_values::normals;

constexpr StreamKey kKey{.run = 11, .round = 5, .site = 3};

std::vector<std::vector<float>> vectors(const Context& context) {
  std::vector<std::vector<float>> vectors = {
      {1.5F},
      {0.0F},
      std::vector<float>(777, 0.0F),
      std::vector<float>(2'049, -3.25F),
      normals(10'000, 11),
      adversarial(9'000, 12, 1024.0F),
      adversarial(5'000, 13, std::numeric_limits<float>::max()),
      adversarial(3'000, 14, 0x1p-120F),
      std::vector<float>(4'000, 2.0F),  // a sample is misled: all reach its threshold
  };
  if (!context.is_small) {
    vectors.push_back(normals(3'000'001, 15));
    vectors.push_back(adversarial(2'500'000, 16, 1e20F));
  }
  for (auto& vector : vectors) {
    for (float& value : vector) value += 0.0F;  // updates hold no negative zero (codec.h, fold)
  }
  return vectors;
}

template <typename T>
std::span<const T> view(const std::vector<T>& values) {
  return values;
}

// One codec on the CPU and on the device, and what both make of a vector.
class Pair {
 public:
  Pair(const Context& context, const std::string& text, std::unique_ptr<DeviceCodec> device)
      : context_(context), text_(text), cpu_(kernels::test_values::codec_of(text)), device_(std::move(device)) {}

  void compare(std::span<const float> vector, std::uint64_t chunk_values, std::size_t skew) {
    const VectorSchema schema{.layout = {.value_count = vector.size(), .chunk_values = chunk_values}, .tensors = {}};
    Buffer workspace(cpu_->workspace_bytes(schema));
    Buffer state(cpu_->state_bytes(schema));
    const auto plan = require(cpu_->prepare(schema, vector, kKey, {}, state.span(), workspace.span()));
    const OnDevice<float> x(context_.device, vector, stream_, skew);
    const OnDevice<std::byte> device_state(context_.device, state.size(), stream_);
    const OnDevice<std::byte> scratch(context_.device, device_->workspace_bytes(schema), stream_);
    const auto device_plan =
        require(device_->prepare(schema, x.span(), kKey, device_state.span(), scratch.span(), stream_));
    for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
      const auto chunk = schema.layout.of(vector, i);
      Buffer bytes(cpu_->encoded_bytes_max(chunk.size()));
      std::vector<float> residual(chunk.size());
      bytes.shrink(require(cpu_->encode_residual_chunk(plan, i, chunk, bytes.span(), residual)));
      const auto at = static_cast<std::size_t>(schema.layout.first_value(i));
      const DeviceSpan<const float> device_chunk = x.span().subspan(at, chunk.size());
      encode(device_plan, i, device_chunk, bytes.span(), residual);
      read(chunk, bytes.span(), schema.layout.first_value(i));
    }
  }

 private:
  std::string what(const std::string& verb, std::size_t size) const {
    return text_ + " " + verb + ", " + std::to_string(size) + " values";
  }

  void encode(const DevicePlan& plan, std::size_t index, DeviceSpan<const float> chunk, ByteSpan expected,
              std::span<const float> expected_residual) {
    const OnDevice<std::byte> out(context_.device, device_->encoded_bytes_max(chunk.size()), stream_);
    const auto same_bytes = [&](const std::string& verb) {
      require(stream_.synchronize());
      const std::size_t size = require(device_->encoded_bytes(*outcome_));
      const auto bytes = out.first(size);
      check_same(view(bytes), expected, what(verb, chunk.size()));
    };
    require(device_->encode_chunk(plan, index, chunk, out.span(), outcome_, stream_));
    same_bytes("encode");
    const OnDevice<float> residual(context_.device, chunk.size(), stream_);
    require(device_->encode_residual_chunk(plan, index, chunk, out.span(), residual.span(), outcome_, stream_));
    same_bytes("encode with residual");
    check_same(view(residual.values()), expected_residual, what("residual", chunk.size()));
  }

  void read(std::span<const float> chunk, ByteSpan encoded, std::uint64_t first_value) {
    const std::size_t n = chunk.size();
    const OnDevice<std::byte> bytes(context_.device, encoded, stream_);
    const DeviceSpan<const std::byte> from = bytes.span();
    std::vector<float> expected(n);
    require(cpu_->decode_chunk(encoded, expected));
    const OnDevice<float> out(context_.device, n, stream_);
    require(device_->decode_chunk(from, out.span(), stream_));
    check_same(view(out.values()), view(expected), what("decode", n));
    require(cpu_->residual_chunk(chunk, encoded, expected));
    const OnDevice<float> values(context_.device, chunk, stream_);
    require(device_->residual_chunk(values.span(), from, values.span(), stream_));
    check_same(view(values.values()), view(expected), what("residual of bytes", n));
    const auto start = normals(n, n);
    expected = start;
    require(cpu_->decode_add_chunk(encoded, 0.3F, expected));
    const OnDevice<float> sum(context_.device, view(start), stream_);
    require(device_->decode_add_chunk(from, 0.3F, sum.span(), stream_));
    check_same(view(sum.values()), view(expected), what("decode and add", n));
    const double most = screen(from, encoded, n, first_value);
    accumulate(from, encoded, n, most, first_value);
  }

  // Returns the greatest magnitude.
  double screen(DeviceSpan<const std::byte> from, ByteSpan encoded, std::size_t n, std::uint64_t first_value) {
    const auto expected = require(cpu_->screen_chunk(encoded, n, first_value));
    const OnDevice<std::byte> workspace(context_.device, DeviceCodec::screen_workspace_bytes(n), stream_);
    require(device_->screen_chunk(from, n, first_value, workspace.span(), outcome_, stream_));
    require(stream_.synchronize());
    const auto report = require(device_->screened(*outcome_));
    check(report.max_abs == expected.max_abs, what("greatest magnitude", n));
    check(std::fabs(report.norm_squared - expected.norm_squared) <= 1e-12 * expected.norm_squared, what("norm", n));
    return static_cast<double>(expected.max_abs);
  }

  void accumulate(DeviceSpan<const std::byte> from, ByteSpan encoded, std::size_t n, double most,
                  std::uint64_t first_value) {
    const OnDevice<std::byte> workspace(context_.device, DeviceCodec::screen_workspace_bytes(n), stream_);
    for (const std::uint32_t weight : {1U, 12'345U, (1U << 29) - 1}) {
      if (most > 0x1p120) continue;
      for (const int fraction_bits : {-20, 20, 60}) {
        const int scale = require(kernels::scale_bits(fraction_bits, std::max(most, 0x1p-120), weight));
        std::vector<std::int64_t> expected(n);
        std::iota(expected.begin(), expected.end(), -100);
        const OnDevice<std::int64_t> sum(context_.device, view(expected), stream_);
        require(cpu_->decode_accumulate_chunk(encoded, weight, scale, expected));
        require(device_->decode_accumulate_chunk(from, first_value, weight, scale, sum.span(), workspace.span(),
                                                 outcome_, stream_));
        require(stream_.synchronize());
        require(device_->screened(*outcome_));
        check_same(view(sum.values()), view(expected), what("decode and accumulate", n));
      }
    }
  }

  const Context& context_;
  std::string text_;
  std::unique_ptr<Codec> cpu_;
  std::unique_ptr<DeviceCodec> device_;
  Stream stream_ = require(Stream::make(context_.device));
  PinnedBuffer pinned_ = require(PinnedBuffer::make(context_.device, sizeof(ChunkOutcome)));
  ChunkOutcome* outcome_ = pinned_.as<ChunkOutcome>().data();
};

void same_as_the_cpu(const Context& context, const std::string& text) {
  auto codec = kernels::make_device_codec(context.device, kernels::parse_codec(text).value());
  if (!codec.ok()) {
    check(codec.error().code == Code::kFailedPrecondition, codec.error().message);
    std::cout << "        not on this device: " << text << "\n";
    return;
  }
  Pair pair(context, text, std::move(codec).value());
  for (const auto& vector : vectors(context)) {
    const bool is_long = vector.size() > 100'000;  // takes its memory anew for each chunk, which a GPU is slow at
    pair.compare(vector, is_long ? 150'001 : 1'000, 0);
    if (!is_long) pair.compare(vector, 4'096, 1);
    pair.compare(vector, 1 << 20, 0);
  }
}

// A value that is not finite is named, as the CPU names it, or passes, as it does there.
void names_what_is_not_finite(const Context& context, const std::string& text) {
  auto made = kernels::make_device_codec(context.device, kernels::parse_codec(text).value());
  if (!made.ok()) return;
  const DeviceCodec& device = **made;
  const auto cpu = kernels::test_values::codec_of(text);
  Stream stream = require(Stream::make(context.device));
  const PinnedBuffer pinned = require(PinnedBuffer::make(context.device, sizeof(ChunkOutcome)));
  ChunkOutcome* const outcome = pinned.as<ChunkOutcome>().data();
  auto vector = normals(3'000, 7);
  const VectorSchema schema{.layout = {.value_count = vector.size(), .chunk_values = 1 << 20}, .tensors = {}};
  if (cpu->workspace_bytes(schema) != 0) return;  // looks at the whole vector, which is finite
  for (const std::size_t bad : {2'999U, 1'500U, 2U}) {
    vector[bad] = bad == 1'500 ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
    const auto plan = require(cpu->prepare(schema, vector, kKey, {}, {}, {}));
    Buffer bytes(cpu->encoded_bytes_max(vector.size()));
    const auto expected = cpu->encode_chunk(plan, 0, vector, bytes.span());
    const OnDevice<float> x(context.device, view(vector), stream);
    const OnDevice<std::byte> out(context.device, bytes.size(), stream);
    const OnDevice<std::byte> workspace(context.device, device.workspace_bytes(schema), stream);
    const auto device_plan = require(device.prepare(schema, x.span(), kKey, {}, workspace.span(), stream));
    require(device.encode_chunk(device_plan, 0, x.span(), out.span(), outcome, stream));
    require(stream.synchronize());
    const auto got = device.encoded_bytes(*outcome);
    check(got.ok() == expected.ok(), text + ": a value that is not finite");
    if (got.ok() || expected.ok()) continue;
    check(got.error().code == expected.error().code, text + ": the code of the error");
    check(outcome->not_finite_at == bad, text + ": the coordinate of the error");
  }
}

}  // namespace

void add_codec_tests(std::vector<Test>& tests) {
  for (const std::string& text : kernels::test_values::codec_texts()) {
    tests.push_back({text, [text](const Context& context) { same_as_the_cpu(context, text); }});
    tests.push_back(
        {text + ", not finite", [text](const Context& context) { names_what_is_not_finite(context, text); }});
  }
}

}  // namespace fluvial::gpu_test
