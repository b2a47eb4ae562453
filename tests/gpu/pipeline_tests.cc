// encode_pipeline.h: the same bytes in the same order as chunk by chunk on the CPU, and how it ends early.
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/encode_pipeline.h"
#include "kernels/test_values.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {
namespace {

using kernels::DeviceCodec;
using kernels::EncodePipeline;
using kernels::StreamKey;
using kernels::VectorSchema;

constexpr StreamKey kKey{.run = 11, .round = 5, .site = 3};

struct Case {
  std::string text;
  std::size_t values;
  std::size_t chunk_values;
};

void leaves_what_the_cpu_encodes(const Context& context, const Case& test) {
  auto made = kernels::make_device_codec(context.device, kernels::parse_codec(test.text).value());
  if (!made.ok()) return;
  const DeviceCodec& codec = **made;
  const auto vector = kernels::test_values::normals(test.values, 3);
  const auto cpu = kernels::test_values::codec_of(test.text);
  const auto expected = kernels::test_values::encode(*cpu, vector, test.chunk_values, kKey);
  EncodePipeline pipeline = require(EncodePipeline::make(context.device, codec, test.chunk_values));
  Stream& stream = pipeline.stream();
  const OnDevice<float> x(context.device, vector, stream);
  const VectorSchema schema{.layout = {.value_count = vector.size(), .chunk_values = test.chunk_values}, .tensors = {}};
  const OnDevice<std::byte> workspace(context.device, codec.workspace_bytes(schema), stream);
  for (int round = 0; round < 2; ++round) {  // a pipeline serves more than once
    const auto plan = require(codec.prepare(schema, x.span(), kKey, {}, workspace.span(), stream));
    std::size_t next = 0;
    const auto leave = [&](std::size_t index, ByteSpan bytes) -> Status {
      check(index == next++, test.text + ": chunks in order");
      check_same(bytes, ByteSpan(expected.chunks[index].span()), test.text + ": a chunk of the pipeline");
      return {};
    };
    require(pipeline.run(plan, round == 1 ? x.span() : DeviceSpan<float>(), leave));
    check(next == schema.layout.chunk_count(), test.text + ": all chunks");
  }
  std::vector<float> residual = vector;
  for (std::size_t i = 0; i < expected.chunks.size(); ++i) {
    const auto chunk = schema.layout.of(std::span(residual), i);
    require(cpu->residual_chunk(chunk, expected.chunks[i].span(), chunk));
  }
  check_same<float>(x.values(), residual, test.text + ": the residual, in place");
}

void ends_with_the_first_error(const Context& context) {
  auto codec = require(kernels::make_device_codec(context.device, kernels::parse_codec("int8").value()));
  EncodePipeline pipeline = require(EncodePipeline::make(context.device, *codec, 1'000));
  auto vector = kernels::test_values::normals(5'500, 4);
  const VectorSchema schema{.layout = {.value_count = vector.size(), .chunk_values = 1'000}, .tensors = {}};
  for (const bool is_finite : {true, false, true}) {
    vector[3'456] = is_finite ? 1.0F : std::numeric_limits<float>::infinity();
    const OnDevice<float> x(context.device, vector, pipeline.stream());
    const auto plan = require(codec->prepare(schema, x.span(), kKey, {}, {}, pipeline.stream()));
    std::size_t left = 0;
    const Status all = pipeline.run(plan, {}, [&](std::size_t, ByteSpan) -> Status {
      ++left;
      return {};
    });
    check(all.ok() == is_finite, "a value that is not finite ends the run");
    check(left == (is_finite ? 6U : 2U) || (!is_finite && left <= 3U), "chunks before it leave");
    if (!is_finite) check(all.error().message.find("3456") != std::string::npos, all.error().message);
    const Status refused = pipeline.run(plan, {}, [&](std::size_t index, ByteSpan) -> Status {
      if (index < 1) return {};
      return Error{Code::kCancelled, "enough"};
    });
    check(!refused.ok() && refused.error().code == Code::kCancelled, "the caller's error ends the run");
  }
}

}  // namespace

void add_pipeline_tests(std::vector<Test>& tests) {
  for (const Case& test : {Case{"int8", 10'000, 1'024}, Case{"topk:ratio=0.05", 30'000, 7'000},
                           Case{"fp32", 999, 1'000}, Case{"sign", 2'001, 1'000}}) {
    tests.push_back({"pipeline, " + test.text, [test](const Context& c) { leaves_what_the_cpu_encodes(c, test); }});
  }
  tests.push_back({"pipeline, errors", ends_with_the_first_error});
}

}  // namespace fluvial::gpu_test
