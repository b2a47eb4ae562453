// What is kept from round to round (dgc's momentum): the same on a device as on the CPU, over some rounds.
#include <algorithm>
#include <cstring>

#include "kernels/device_vector.h"
#include "kernels/test_values.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {
namespace {

using kernels::ChunkOutcome;
using kernels::VectorSchema;
using kernels::test_values::adversarial;
using kernels::test_values::normals;

template <typename T>
std::span<const T> view(const std::vector<T>& values) {
  return values;
}

std::vector<float> update_of(std::size_t size, std::uint64_t round) {
  return round % 2 == 0 ? normals(size, 40 + round) : adversarial(size, 40 + round, 8.0F);
}

// A site's rounds, of which every third does not count: its whole vector is the residual then.
void keeps_its_state(const Context& context, const std::string& text, std::size_t value_count, std::size_t skew) {
  auto made = kernels::make_device_codec(context.device, kernels::parse_codec(text).value());
  if (!made.ok()) return;
  const auto& device = **made;
  const auto cpu = kernels::test_values::codec_of(text);
  Stream stream = require(Stream::make(context.device));
  const PinnedBuffer pinned = require(PinnedBuffer::make(context.device, sizeof(ChunkOutcome)));
  auto* const outcome = pinned.as<ChunkOutcome>().data();
  const VectorSchema schema{.layout = {.value_count = value_count, .chunk_values = 2 * value_count / 5}, .tensors = {}};
  Buffer state(cpu->state_bytes(schema)), workspace(cpu->workspace_bytes(schema));
  std::ranges::fill(state.span(), std::byte{0});
  std::vector<float> residual(value_count), vector(value_count);
  const OnDevice<std::byte> device_state(context.device, ByteSpan(state.span()), stream);
  const OnDevice<std::byte> device_workspace(context.device, device.workspace_bytes(schema), stream);
  const OnDevice<float> device_residual(context.device, view(residual), stream, skew);
  for (std::uint64_t round = 1; round <= 7; ++round) {
    const auto update = update_of(value_count, round);
    const OnDevice<float> x(context.device, view(update), stream, skew);
    const std::span<const float> left = round == 1 ? std::span<const float>() : view(residual);
    require(cpu->fold(schema, update, left, state.span(), vector));
    require(device.fold(schema, x.span(), round == 1 ? DeviceSpan<const float>() : device_residual.span(),
                        device_state.span(), device_workspace.span(), device_residual.span(), stream));
    check_same(view(device_residual.values()), view(vector), text + ": the vector of a round");
    check_same(view(device_state.values()), ByteSpan(state.span()), text + ": the state after fold");
    residual = vector;
    if (round % 3 == 0) continue;
    const kernels::StreamKey key{.run = 3, .round = round, .site = 1};
    const auto plan = require(cpu->prepare(schema, vector, key, {}, state.span(), workspace.span()));
    const auto device_plan = require(
        device.prepare(schema, device_residual.span(), key, device_state.span(), device_workspace.span(), stream));
    for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
      const auto chunk = schema.layout.of(view(vector), i);
      Buffer bytes(cpu->encoded_bytes_max(chunk.size()));
      bytes.shrink(
          require(cpu->encode_residual_chunk(plan, i, chunk, bytes.span(), schema.layout.of(std::span(residual), i))));
      const auto device_chunk = device_residual.span().subspan(schema.layout.first_value(i), chunk.size());
      const OnDevice<std::byte> out(context.device, device.encoded_bytes_max(chunk.size()), stream);
      require(device.encode_residual_chunk(device_plan, i, device_chunk, out.span(), device_chunk, outcome, stream));
      require(stream.synchronize());
      const std::size_t size = require(device.encoded_bytes(*outcome));
      const auto encoded = out.values();
      check_same(std::span(encoded).first(size), ByteSpan(bytes.span()), text + ": a chunk of a round");
      require(cpu->settle_chunk(schema, i, bytes.span(), state.span()));
      require(device.settle_chunk(schema, i, DeviceSpan<const std::byte>(out.span()).first(size), device_state.span(),
                                  stream));
    }
    check_same(view(device_residual.values()), view(residual), text + ": the residual of a round");
    check_same(view(device_state.values()), ByteSpan(state.span()), text + ": the state of a round");
  }
  check(!device.fold(schema, device_residual.span(), {}, device_state.span().first(device_state.span().size() / 2),
                     device_workspace.span().first(0), device_residual.span(), stream)
                .ok() ||
            device.workspace_bytes(schema) == 0,
        text + ": a workspace that is too small is refused");
}

}  // namespace

void add_state_tests(std::vector<Test>& tests) {
  for (const char* text : {"dgc:ratio=0.01,warmup=2", "dgc:ratio=0.05,clip=2.5,momentum=0.5", "int8", "fp32"}) {
    for (const std::size_t skew : {0U, 1U}) {
      tests.push_back(
          {std::string(text) + ", rounds", [=](const Context& c) { keeps_its_state(c, text, 5'003, skew); }});
    }
  }
  const std::string clipped = "dgc:clip=2.5";  // a norm long enough to be added piece by piece
  tests.push_back({clipped + ", long, rounds", [=](const Context& c) { keeps_its_state(c, clipped, 35'003, 1); }});
}

}  // namespace fluvial::gpu_test
