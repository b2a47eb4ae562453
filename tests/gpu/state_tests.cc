// What is kept from round to round (dgc's momentum, 1-bit Adam's moments): the same on a device as on the CPU, over
// some rounds.
#include <algorithm>
#include <cstring>

#include "kernels/device_onebit_adam.h"
#include "kernels/device_vector.h"
#include "kernels/test_values.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {
namespace {

using kernels::ChunkOutcome;
using kernels::OnebitAdam;
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

struct AdamServer {
  std::vector<float> momentum, variance, residual, model;
};

// Warm-up, the freeze, and compression one way or both: a site folds what came down, and the server steps.
void onebit_adam(const Context& context, const kernels::OnebitAdamOptions& options, std::size_t size,
                 std::size_t skew) {
  const OnebitAdam cpu = require(OnebitAdam::make(options));
  const auto device = require(kernels::DeviceOnebitAdam::make(context.device, options));
  Stream stream = require(Stream::make(context.device));
  const PinnedBuffer pinned = require(PinnedBuffer::make(context.device, sizeof(ChunkOutcome)));
  auto* const outcome = pinned.as<ChunkOutcome>().data();
  const std::size_t kept = options.two_sided ? size : 0;
  AdamServer server{std::vector<float>(size), std::vector<float>(size), std::vector<float>(kept), normals(size, 30)};
  std::vector<float> residual = normals(size, 31, 0.1F), vector(size);
  const OnDevice<float> momentum(context.device, view(server.momentum), stream, skew);
  const OnDevice<float> variance(context.device, view(server.variance), stream, skew);
  const OnDevice<float> left(context.device, view(server.residual), stream, skew);
  const OnDevice<float> model(context.device, view(server.model), stream, skew);
  const OnDevice<float> site_residual(context.device, view(residual), stream, skew);
  const OnDevice<float> out(context.device, size, stream, skew);
  const OnDevice<std::byte> bytes(context.device, device.downward(options.freeze_round).encoded_bytes_max(size),
                                  stream);
  for (std::uint64_t round = 0; round < options.freeze_round + 3; ++round) {
    auto gradient = update_of(size, round);
    gradient[0] = 0;  // sees no gradient: does not move
    const OnDevice<float> x(context.device, view(gradient), stream, skew);
    cpu.fold(round, gradient, server.momentum, residual, vector);
    require(device.fold(round, x.span(), momentum.span(), site_residual.span(), out.span(), stream));
    check_same(view(out.values()), view(vector), "1-bit Adam: what a site sends");
    Buffer encoded(cpu.downward(round).encoded_bytes_max(size));
    const std::size_t used = require(cpu.step({round, server.momentum, server.variance, server.residual}, 0.01, vector,
                                              server.model, encoded.span()));
    require(device.step({round, momentum.span(), variance.span(), left.span()}, 0.01, out.span(), model.span(),
                        bytes.span(), outcome, stream));
    check_same(view(momentum.values()), view(server.momentum), "1-bit Adam: the momentum");
    check_same(view(variance.values()), view(server.variance), "1-bit Adam: the variance");
    check_same(view(left.values()), view(server.residual), "1-bit Adam: the server's residual");
    check_same(view(model.values()), view(server.model), "1-bit Adam: the model");
    if (used == 0) continue;
    check(require(device.downward(round).encoded_bytes(*outcome)) == used, "1-bit Adam: the size of what goes down");
    const auto sent = bytes.values();
    check_same(std::span(sent).first(used), ByteSpan(encoded.span()).first(used), "1-bit Adam: what goes down");
  }
}

void onebit_adam_screens(const Context& context) {
  Stream stream = require(Stream::make(context.device));
  const PinnedBuffer pinned = require(PinnedBuffer::make(context.device, sizeof(ChunkOutcome)));
  auto* const outcome = pinned.as<ChunkOutcome>().data();
  auto mean = normals(5'000, 1);
  for (const float most : {OnebitAdam::kMeanMax, OnebitAdam::kResidualMax, 0x1p127F}) {
    mean[4'321] = -most;
    const OnDevice<float> x(context.device, view(mean), stream);
    const OnDevice<std::byte> workspace(context.device, kernels::device_screen_workspace_bytes(mean.size()), stream);
    require(kernels::device_screen(x.span(), 0, workspace.span(), outcome, stream));
    require(stream.synchronize());
    check(kernels::DeviceOnebitAdam::checked_mean(*outcome).ok() == (most <= OnebitAdam::kMeanMax), "a mean's bound");
    check(kernels::DeviceOnebitAdam::checked_residual(*outcome).ok() == (most <= OnebitAdam::kResidualMax),
          "a residual's bound");
  }
  check(!kernels::DeviceOnebitAdam::make(context.device, {.beta1 = 1}).ok(), "options are checked");
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
  for (const bool two_sided : {false, true}) {
    for (const std::size_t size : {1U, 3'001U, 8'192U}) {
      const kernels::OnebitAdamOptions options{.variance_floor = 1e-3, .freeze_round = 2, .two_sided = two_sided};
      tests.push_back({"1-bit Adam, " + std::string(two_sided ? "two-sided, " : "") + std::to_string(size),
                       [=](const Context& c) { onebit_adam(c, options, size, size % 2); }});
    }
  }
  tests.push_back({"1-bit Adam, screens", onebit_adam_screens});
}

}  // namespace fluvial::gpu_test
