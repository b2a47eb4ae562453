// PowerSGD's refusals and their messages; its state; and the answers of codecs with one pass to its verbs.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/codecs/powersgd_shapes.h"
#include "kernels/codecs/powersgd_test_support.h"

namespace fluvial::kernels {
namespace {

using powersgd_rounds::kKey;
using powersgd_rounds::Model;
using powersgd_rounds::Site;
using test_values::codec_of;
using test_values::normals;
using ::testing::HasSubstr;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// The message of the first part that is refused.
std::string refused_part(const Codec& codec, const EncodePlan& plan) {
  for (std::size_t i = 0; i < plan.parts; ++i) {
    const Status done = codec.prepare_part(plan, i);
    if (done.ok()) continue;
    EXPECT_EQ(done.error().code, Code::kInvalidArgument);
    return done.error().message;
  }
  return "";
}

TEST(PowerSgdRefuses, ValuesThatAreNotFinite) {
  const Model model({{40, 40}, {25}}, 1000, 2);
  const auto codec = codec_of("powersgd");
  for (const float bad : {kInfinity, -kInfinity, kNan}) {
    for (const std::size_t at : {0U, 2U, 1000U, 1601U, 1610U, 1630U}) {  // gap, matrix, gap, vector, gap
      Site site(*codec, model);
      site.vector = normals(model.count(), 1);
      site.vector[at] = bad;
      const EncodePlan plan =
          codec->prepare(model.schema(), site.vector, kKey, {}, site.state.span(), site.workspace.span()).value();
      EXPECT_THAT(refused_part(*codec, plan), HasSubstr("value " + std::to_string(at) + " is ")) << bad;
    }
  }
}

TEST(PowerSgdRefuses, FactorsBeyondFp32) {
  const Model model({{40, 40}});
  const auto codec = codec_of("powersgd");
  Site site(*codec, model);
  site.vector.assign(1600, std::numeric_limits<float>::max());
  ASSERT_TRUE(codec->prepare(model.schema(), site.vector, kKey, {}, site.state.span(), site.workspace.span()).ok());
  // A warm start along the rows: their product is far beyond fp32.
  auto* const warm = reinterpret_cast<float*>(site.state.data() + 32);
  for (std::size_t j = 0; j < 40; ++j) warm[j] = 0.9F;
  const EncodePlan plan =
      codec->prepare(model.schema(), site.vector, kKey, {}, site.state.span(), site.workspace.span()).value();
  EXPECT_THAT(refused_part(*codec, plan), HasSubstr("too large"));
}

TEST(PowerSgdRefuses, MeansThatDoNotFit) {
  const Model model({{40, 40}});
  const auto codec = codec_of("powersgd");
  Site site(*codec, model);
  site.vector = normals(1600, 1);
  auto p = site.send(*codec, model, 0, {});
  const auto prepare = [&](std::span<const float> reduced) {
    return codec->prepare(model.schema(), site.vector, kKey, {1, reduced}, site.state.span(), site.workspace.span());
  };
  EXPECT_THAT(prepare(std::span(p).first(79)).error().message, HasSubstr("79 values, expected 80"));
  EXPECT_THAT(prepare({}).error().message, HasSubstr("0 values, expected 80"));
  const auto q = site.send(*codec, model, 1, p);
  p[17] = kNan;
  EXPECT_THAT(prepare(p).error().message, HasSubstr("value 17 is NaN"));
  const auto expand = [&](std::vector<std::span<const float>> means, MutableByteSpan workspace) {
    return codec->prepare_expand(model.schema(), means, workspace);
  };
  EXPECT_THAT(expand({p, q}, site.workspace.span()).error().message, HasSubstr("value 17 is NaN"));
  p[17] = 0;
  EXPECT_TRUE(expand({p, q}, site.workspace.span()).ok());
  EXPECT_FALSE(expand({p}, site.workspace.span()).ok());
  EXPECT_FALSE(expand({q, p}, site.workspace.span().first(8)).ok());
  auto infinite = q;
  infinite[3] = kInfinity;
  EXPECT_THAT(expand({p, infinite}, site.workspace.span()).error().message, HasSubstr("value 3 is infinite"));
  EXPECT_THAT(codec->settle(model.schema(), kKey, infinite, site.state.span()).error().message, HasSubstr("value 3"));
  EXPECT_FALSE(codec->settle(model.schema(), kKey, std::span(q).first(3), site.state.span()).ok());
  EXPECT_FALSE(codec->settle(model.schema(), kKey, q, site.state.span().first(40)).ok());
}

TEST(PowerSgdRefuses, WrongArguments) {
  const Model model({{40, 40}});
  const auto codec = codec_of("powersgd");
  Site site(*codec, model);
  site.vector = normals(1600, 1);
  const auto p = site.send(*codec, model, 0, {});
  EXPECT_FALSE(codec->prepare_part(site.plan, site.plan.parts).ok());
  std::vector<float> out(1000);
  const std::span<const float> values(site.vector);
  EXPECT_THAT(codec->leave_chunk(site.plan, 0, values.first(1000), out).error().message, HasSubstr("last pass"));
  site.send(*codec, model, 1, p);
  EXPECT_TRUE(codec->leave_chunk(site.plan, 0, values.first(1000), out).ok());
  EXPECT_FALSE(codec->leave_chunk(site.plan, 0, values.first(999), out).ok());
  EXPECT_FALSE(codec->leave_chunk(site.plan, 0, values.first(1000), std::span(out).first(999)).ok());
  EXPECT_FALSE(codec->leave_chunk(site.plan, 2, values.first(600), std::span(out).first(600)).ok());
  const auto prepare = [&](PassInput input, std::size_t state_bytes, std::size_t workspace_bytes) {
    return codec->prepare(model.schema(), site.vector, kKey, input, site.state.span().first(state_bytes),
                          site.workspace.span().first(workspace_bytes));
  };
  EXPECT_TRUE(prepare({}, site.state.size(), site.workspace.size()).ok());
  EXPECT_FALSE(prepare({2, {}}, site.state.size(), site.workspace.size()).ok());
  EXPECT_FALSE(prepare({0, p}, site.state.size(), site.workspace.size()).ok());
  EXPECT_FALSE(prepare({}, site.state.size() - 4, site.workspace.size()).ok());
  EXPECT_FALSE(prepare({}, site.state.size(), site.workspace.size() - 1).ok());
}

TEST(PowerSgdRefuses, TensorsThatDoNotFitTheVector) {
  const std::vector<std::uint64_t> square = {10, 10}, huge = {std::uint64_t{1} << 40, std::uint64_t{1} << 40};
  const auto codec = codec_of("powersgd:rank=1");
  const std::vector<float> vector(200, 1.0F);
  const auto refuse = [&](std::vector<TensorShape> tensors, std::string_view why) {
    const VectorSchema schema{.layout = {.value_count = 200, .chunk_values = 64}, .tensors = tensors};
    Buffer state = powersgd_rounds::zeros(codec->state_bytes(schema));
    Buffer workspace(codec->workspace_bytes(schema));
    const auto plan = codec->prepare(schema, vector, kKey, {}, state.span(), workspace.span());
    ASSERT_FALSE(plan.ok()) << why;
    EXPECT_EQ(plan.error().code, Code::kInvalidArgument);
    EXPECT_THAT(plan.error().message, HasSubstr(why));
    EXPECT_FALSE(codec->settle(schema, kKey, vector, state.span()).ok());
  };
  refuse({{square, 101}}, "ends beyond");
  refuse({{square, 201}}, "ends beyond");
  refuse({{huge, 0}}, "ends beyond");
  refuse({{square, 0}, {square, 99}}, "without overlap");
  refuse({{square, 100}, {square, 0}}, "in order");
  refuse({{square, std::numeric_limits<std::uint64_t>::max()}}, "ends beyond");
}

TEST(PowerSgdState, ANewSiteSettlesTheLastMean) {
  const Model model({{40, 30}, {50, 7, 5}});
  const auto codec = codec_of("powersgd");
  std::vector<Site> sites;
  sites.emplace_back(*codec, model);
  powersgd_rounds::Round round;
  for (std::uint64_t i = 0; i < 4; ++i) {
    sites[0].vector = normals(model.count(), i);
    round = powersgd_rounds::run_round(*codec, model, sites, {5, i, 0});
  }
  Site late(*codec, model);
  ASSERT_TRUE(codec->settle(model.schema(), {5, 3, 77}, round.q, late.state.span()).ok());
  EXPECT_TRUE(std::ranges::equal(late.state.span(), sites[0].state.span()));
  EXPECT_EQ(load_le<std::uint64_t>(late.state.data() + 16), 4U);
}

TEST(PowerSgdState, IsCheckedBeforeUse) {
  const Model model({{40, 30}});
  const Model turned({{40, 15, 2}, {10}});
  const auto codec = codec_of("powersgd");
  Site site(*codec, model);
  site.vector = normals(1200, 1);
  site.send(*codec, model, 0, {});
  const Buffer good = Buffer::copy_of(site.state.span());
  const auto refuse = [&](std::size_t at, std::byte value, std::string_view why, StreamKey key = kKey) {
    Buffer bad = Buffer::copy_of(good.span());
    bad.data()[at] = value;
    const auto plan = codec->prepare(model.schema(), site.vector, key, {}, bad.span(), site.workspace.span());
    ASSERT_FALSE(plan.ok()) << why;
    EXPECT_EQ(plan.error().code, Code::kInvalidArgument);
    EXPECT_THAT(plan.error().message, HasSubstr(why));
    EXPECT_FALSE(codec->settle(model.schema(), key, std::vector<float>(60), bad.span()).ok()) << why;
  };
  refuse(0, std::byte{2}, "version 2, expected 1");
  refuse(4, std::byte{3}, "rank 3, expected 2");
  refuse(8, std::byte{6}, "of run 6, expected run 5");
  refuse(0, std::byte{1}, "of run 5, expected run 9", {9, 1, 0});
  refuse(24, good.data()[24] ^ std::byte{1}, "other matrices");
  {
    Buffer bad = Buffer::copy_of(good.span());
    store_le(bad.data() + 32 + 4 * 7, std::uint32_t{0x7f800000});
    const auto plan = codec->prepare(model.schema(), site.vector, kKey, {}, bad.span(), site.workspace.span());
    EXPECT_THAT(plan.error().message, HasSubstr("warm start value 7 is infinite"));
  }
  ASSERT_EQ(codec->state_bytes(model.schema()), codec->state_bytes(turned.schema()));
  const auto longer = normals(1210, 1);
  Buffer workspace(codec->workspace_bytes(turned.schema()));
  Buffer state = Buffer::copy_of(good.span());
  EXPECT_THAT(codec->prepare(turned.schema(), longer, kKey, {}, state.span(), workspace.span()).error().message,
              HasSubstr("other matrices"));
}

TEST(PowerSgd, WhatTravelsIsReadAsFp32) {
  const auto codec = codec_of("powersgd");
  const std::vector<float> values = {1.0F, -2.0F, kNan};
  const ByteSpan bytes = std::as_bytes(std::span(values));
  EXPECT_TRUE(codec->screen_chunk(bytes.first(8), 2, 0).ok());
  EXPECT_THAT(codec->screen_chunk(bytes, 3, 100).error().message, HasSubstr("value 102 is NaN"));
  for (const std::size_t size : {0U, 7U, 9U, 12U}) {
    EXPECT_EQ(codec->screen_chunk(bytes.first(size), 2, 0).error().code, Code::kDataLoss);
    std::vector<std::int64_t> sum(2, 7);
    std::vector<float> out(2);
    EXPECT_FALSE(codec->decode_accumulate_chunk(bytes.first(size), 1, 10, sum).ok());
    EXPECT_EQ(sum, std::vector<std::int64_t>(2, 7));
    EXPECT_FALSE(codec->decode_chunk(bytes.first(size), out).ok());
    EXPECT_FALSE(codec->decode_add_chunk(bytes.first(size), 1, out).ok());
    EXPECT_FALSE(codec->residual_chunk(out, bytes.first(size), out).ok());
  }
}

TEST(OnePass, ExpandsToItsMeanAndHasNoOtherVerbs) {
  const auto codec = codec_of("int8");
  const VectorSchema schema{.layout = {.value_count = 10, .chunk_values = 8}, .tensors = {}};
  const auto mean = normals(10, 1);
  const std::span<const float> means[] = {mean, mean};
  EXPECT_FALSE(codec->prepare_expand(schema, means, {}).ok());
  EXPECT_FALSE(codec
                   ->prepare_expand({.layout = {.value_count = 9, .chunk_values = 8}, .tensors = {}},
                                    std::span(means).first(1), {})
                   .ok());
  const ExpandPlan plan = codec->prepare_expand(schema, std::span(means).first(1), {}).value();
  std::vector<float> out(10);
  EXPECT_TRUE(codec->expand_chunk(plan, 0, std::span(out).first(8)).ok());
  EXPECT_TRUE(codec->expand_chunk(plan, 1, std::span(out).last(2)).ok());
  EXPECT_FALSE(codec->expand_chunk(plan, 1, std::span(out).first(8)).ok());
  EXPECT_EQ(out, mean);
  EXPECT_FALSE(codec->leave_chunk({}, 0, mean, out).ok());
  EXPECT_FALSE(codec->prepare_part({}, 0).ok());
  EXPECT_TRUE(codec->settle(schema, {}, mean, {}).ok());
}

TEST(PowerSgdShapes, PartsCoverEverySegmentOnce) {
  const Model model({{3000, 700}, {9}, {2, 2'200'000}, {5, 300}}, 1000, 1'500'000);
  for (const std::uint32_t pass : {0U, 1U}) {
    const powersgd::Totals totals = powersgd::totals_of(model.schema(), 1);
    std::uint64_t covered = 0;
    std::size_t last = 0;
    for (std::size_t i = 0; i < totals.parts[pass]; ++i) {
      const powersgd::Part part = powersgd::part_of(model.schema(), 1, pass, i);
      EXPECT_EQ(part.first, part.first == 0 ? 0 : last);
      last = part.first + part.count;
      const std::size_t other = pass == 0 ? part.segment.cols : part.segment.rows;
      covered += part.count * (part.segment.rank == 0 ? 1 : other);
    }
    EXPECT_EQ(covered, model.count());
    EXPECT_GT(totals.parts[pass], 4U);
  }
}

}  // namespace
}  // namespace fluvial::kernels
