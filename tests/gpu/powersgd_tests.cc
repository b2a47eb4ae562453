// PowerSGD over some rounds of two sites: what travels, residuals, means and states, on a device and on the CPU.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>

#include "kernels/device_powersgd.h"
#include "kernels/reduce.h"
#include "kernels/test_values.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {
namespace {

using kernels::ChunkOutcome;
using kernels::Codec;
using kernels::DevicePowerSgd;
using kernels::StreamKey;
using kernels::TensorShape;
using kernels::VectorSchema;
using kernels::test_values::normals;

template <typename T>
std::span<const T> view(const std::vector<T>& values) {
  return values;
}

// Matrices beyond a block of columns and of rows, one of low rank, one that is not cut, and values of no tensor.
struct Model {
  std::vector<std::array<std::uint64_t, 2>> dims = {{37, 2'117}, {531, 40}, {3, 5}, {24, 24}};
  std::vector<TensorShape> tensors;
  std::uint64_t count = 9;

  Model(bool is_small, bool is_many) {
    if (!is_small) dims.push_back({4'099, 1'025});
    if (is_many) dims.insert(dims.end(), 70, {6, 7});  // more than a kernel takes at once; cut for rank 1
    for (const auto& dim : dims) {
      tensors.push_back({.dims = dim, .offset_values = count});
      count += dim[0] * dim[1] + 3;
    }
  }
  VectorSchema schema() const { return {.layout = {.value_count = count, .chunk_values = 10'000}, .tensors = tensors}; }
  std::vector<float> update(std::uint64_t seed) const {
    auto values = normals(count, seed);
    const auto& last = tensors[3];  // of rank one: its other columns are dependent
    for (std::uint64_t i = 0; i < 24 * 24; ++i) {
      const std::uint64_t row = i / 24;
      values[last.offset_values + i] = static_cast<float>(row + seed % 5) * static_cast<float>(i % 24);
    }
    if (seed % 2 == 0) std::fill_n(values.begin() + static_cast<std::ptrdiff_t>(tensors[1].offset_values), 531 * 40, 0);
    return values;
  }
};

class Site {
 public:
  Site(const Context& context, const Codec& cpu, const DevicePowerSgd& device, const Model& model)
      : context_(context), cpu_(cpu), device_(device), schema_(model.schema()) {
    std::ranges::fill(state_.span(), std::byte{0});
    device_state_.emplace(context.device, ByteSpan(state_.span()), stream_);
  }

  // What it sends in a pass, checked against what the CPU sends.
  std::vector<float> send(std::span<const float> vector, const StreamKey& key, std::uint32_t pass,
                          std::span<const float> mean) {
    const OnDevice<float> x(context_.device, vector, stream_, 1);
    const OnDevice<float> reduced(context_.device, mean, stream_);
    const auto plan = require(cpu_.prepare(schema_, vector, key, {pass, mean}, state_.span(), workspace_.span()));
    for (std::size_t i = 0; i < plan.parts; ++i) require(cpu_.prepare_part(plan, i));
    const auto device_plan =
        require(device_.prepare(schema_, x.span(), key, pass, reduced.span(), device_state_->span(),
                                device_workspace_.span(), outcome_, stream_));
    require(stream_.synchronize());
    require(DevicePowerSgd::accepted(*outcome_));
    check(device_plan.sent.layout == plan.layout, "powersgd: what a pass sends, its length");
    std::vector<float> sent(plan.values.size());
    require(kernels::copy_to_host(device_plan.sent.values, std::span(sent), stream_));
    require(stream_.synchronize());
    check_same(view(sent), plan.values, "powersgd: what pass " + std::to_string(pass) + " sends");
    check_same(view(device_state_->values()), ByteSpan(state_.span()), "powersgd: the state after a pass");
    if (pass == 1) leaves(vector, plan, device_plan, x);
    return sent;
  }

  void settle(const StreamKey& key, std::span<const float> mean) {
    const OnDevice<float> device_mean(context_.device, mean, stream_);
    require(cpu_.settle(schema_, key, mean, state_.span()));
    require(device_.settle(schema_, key, device_mean.span(), device_state_->span(), device_workspace_.span(), outcome_,
                           stream_));
    check_same(view(device_state_->values()), ByteSpan(state_.span()), "powersgd: the state after a round");
    require(DevicePowerSgd::accepted(*outcome_));
  }

  // The state of another run is refused and stays as it is.
  void refuses_another_run(std::span<const float> vector, std::span<const float> mean) {
    const OnDevice<float> x(context_.device, vector, stream_), device_mean(context_.device, mean, stream_);
    const StreamKey other{.run = 99, .round = 3, .site = 1};
    const auto plan = device_.prepare(schema_, x.span(), other, 0, {}, device_state_->span(), device_workspace_.span(),
                                      outcome_, stream_);
    require(stream_.synchronize());
    check(!plan.ok() || !DevicePowerSgd::accepted(*outcome_).ok(), "powersgd: a state of another run");
    const Status settled = device_.settle(schema_, other, device_mean.span(), device_state_->span(),
                                          device_workspace_.span(), outcome_, stream_);
    require(stream_.synchronize());
    check(!settled.ok() || !DevicePowerSgd::accepted(*outcome_).ok(), "powersgd: settling another run's mean");
    check_same(view(device_state_->values()), ByteSpan(state_.span()), "powersgd: the state that was refused");
  }

  void refuses_what_is_not_finite(std::vector<float> vector, const Model& model, const StreamKey& key) {
    vector[model.tensors[0].offset_values + 77] = std::numeric_limits<float>::max();
    vector[model.tensors[0].offset_values + 78] = std::numeric_limits<float>::infinity();
    const OnDevice<float> x(context_.device, view(vector), stream_);
    const auto plan = device_.prepare(schema_, x.span(), key, 0, {}, device_state_->span(), device_workspace_.span(),
                                      outcome_, stream_);
    require(stream_.synchronize());
    check(!plan.ok() || !DevicePowerSgd::accepted(*outcome_).ok(), "powersgd: a product that is not finite");
  }

 private:
  void leaves(std::span<const float> vector, const kernels::EncodePlan& plan,
              const kernels::DeviceLowrankPlan& device_plan, const OnDevice<float>& x) {
    for (std::size_t i = 0; i < schema_.layout.chunk_count(); ++i) {
      const auto chunk = schema_.layout.of(vector, i);
      std::vector<float> residual(chunk.size());
      require(cpu_.leave_chunk(plan, i, chunk, residual));
      const auto part = x.span().subspan(static_cast<std::size_t>(schema_.layout.first_value(i)), chunk.size());
      require(device_.leave_chunk(device_plan, i, part, part, stream_));
      std::vector<float> left(chunk.size());
      require(kernels::copy_to_host(DeviceSpan<const float>(part), std::span(left), stream_));
      require(stream_.synchronize());
      check_same(view(left), view(residual), "powersgd: a residual");
    }
  }

  const Context& context_;
  const Codec& cpu_;
  const DevicePowerSgd& device_;
  VectorSchema schema_;
  Stream stream_ = require(Stream::make(context_.device));
  PinnedBuffer pinned_ = require(PinnedBuffer::make(context_.device, sizeof(ChunkOutcome)));
  ChunkOutcome* outcome_ = pinned_.as<ChunkOutcome>().data();
  Buffer state_{cpu_.state_bytes(schema_)};
  Buffer workspace_{cpu_.workspace_bytes(schema_)};
  OnDevice<std::byte> device_workspace_{context_.device, device_.workspace_bytes(schema_), stream_};
  std::optional<OnDevice<std::byte>> device_state_;
};

void expands(const Context& context, const Codec& cpu, const DevicePowerSgd& device, const Model& model,
             std::span<const float> p, std::span<const float> q) {
  Stream stream = require(Stream::make(context.device));
  const VectorSchema schema = model.schema();
  Buffer workspace(cpu.workspace_bytes(schema));
  const std::array<std::span<const float>, 2> means = {p, q};
  const auto plan = require(cpu.prepare_expand(schema, means, workspace.span()));
  const OnDevice<float> mean_p(context.device, p, stream), mean_q(context.device, q, stream);
  const OnDevice<std::byte> device_workspace(context.device, device.workspace_bytes(schema), stream);
  const auto device_plan =
      require(device.prepare_expand(schema, mean_p.span(), mean_q.span(), device_workspace.span(), stream));
  for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
    std::vector<float> expected(schema.layout.size(i));
    require(cpu.expand_chunk(plan, i, expected));
    const OnDevice<float> out(context.device, expected.size(), stream);
    require(device.expand_chunk(device_plan, i, out.span(), stream));
    check_same(view(out.values()), view(expected), "powersgd: the mean update");
  }
}

void rounds(const Context& context, const std::string& text) {
  const auto cpu = kernels::test_values::codec_of(text);
  const auto device = require(kernels::make_device_powersgd(context.device, kernels::parse_codec(text).value()));
  const Model model(context.is_small, text == "powersgd:rank=1");
  check(device->state_bytes(model.schema()) == cpu->state_bytes(model.schema()), "powersgd: the length of a state");
  Site first(context, *cpu, *device, model), second(context, *cpu, *device, model);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const StreamKey key{.run = 7, .round = round, .site = 1};
    const auto a = model.update(round), b = model.update(round + 10);
    std::array<std::vector<float>, 2> means;
    for (const std::uint32_t pass : {0U, 1U}) {
      const std::span<const float> before = pass == 0 ? std::span<const float>() : view(means[0]);
      const std::vector<float> sent_a = first.send(a, key, pass, before), sent_b = second.send(b, key, pass, before);
      const std::array<std::span<const float>, 2> sent = {sent_a, sent_b};
      means[pass].resize(sent_a.size());
      require(kernels::reduce_mean(sent, means[pass]));
    }
    expands(context, *cpu, *device, model, means[0], means[1]);
    first.settle(key, means[1]);
    second.settle(key, means[1]);
    if (round < 3) continue;
    first.refuses_another_run(a, means[1]);
    first.refuses_what_is_not_finite(a, model, key);
  }
}

}  // namespace

void add_powersgd_tests(std::vector<Test>& tests) {
  for (const char* text : {"powersgd:rank=1", "powersgd", "powersgd:rank=7"}) {
    tests.push_back({std::string(text) + ", rounds", [text](const Context& context) { rounds(context, text); }});
  }
}

}  // namespace fluvial::gpu_test
