// PowerSGD's promises, in the rounds of a federation, against the fp64 oracle.
#include "kernels/codecs/powersgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/codecs/powersgd_test_support.h"
#include "kernels/reference/reference.h"

namespace fluvial::kernels {
namespace {

using powersgd_rounds::kKey;
using powersgd_rounds::matrix_of;
using powersgd_rounds::Model;
using powersgd_rounds::Round;
using powersgd_rounds::Site;
using powersgd_rounds::wide;
using test_values::bits_of;
using test_values::codec_of;
using test_values::normals;
using ::testing::HasSubstr;

TEST(PowerSgd, IsNamedAndHasARank) {
  EXPECT_EQ(to_string(parse_codec("powersgd").value()), "powersgd:rank=2");
  EXPECT_EQ(parse_codec("powersgd:rank=64")->rank, 64U);
  for (const char* text : {"powersgd:rank=0", "powersgd:rank=65"}) {
    EXPECT_THAT(parse_codec(text).error().message, HasSubstr("expected 1 to 64")) << text;
  }
  const auto codec = codec_of("powersgd");
  EXPECT_EQ(codec->passes(), 2U);
  EXPECT_FALSE(codec->lossless());
}

TEST(PowerSgd, ReproducesAMeanOfTheRankInOneRound) {
  const std::size_t rows = 130, cols = 90;
  const Model model({{rows, cols}});
  for (const auto& [text, rank] :
       {std::pair{"powersgd:rank=1", 1U}, {"powersgd:rank=2", 2U}, {"powersgd:rank=4", 3U}, {"powersgd:rank=9", 9U}}) {
    const auto codec = codec_of(text);
    std::vector<Site> sites;
    std::vector<float> mean(rows * cols, 0.0F);
    const auto target = powersgd_rounds::of_rank(rank, rows, cols, 31);
    for (int s = 0; s < 3; ++s) {  // around the same mean; each site's own matrix has full rank
      sites.emplace_back(*codec, model);
      sites[s].vector = target;
      const auto noise = normals(rows * cols, 77, 0.25F);
      for (std::size_t i = 0; i < noise.size(); ++i) sites[s].vector[i] += noise[i] * static_cast<float>(s - 1);
    }
    const Round round = powersgd_rounds::run_round(*codec, model, sites);
    // Rounding, amplified by how far from orthogonal the columns of P were: little for few columns.
    EXPECT_LT(powersgd_rounds::relative_distance(round.update, matrix_of(target, rows, cols)), rank < 9 ? 2e-6 : 1e-5)
        << text;
  }
}

TEST(PowerSgd, OneRoundIsTheOracles) {
  const std::size_t rows = 70, cols = 83, rank = 3;
  const Model model({{rows, cols}});
  const auto codec = codec_of("powersgd:rank=3");
  std::vector<Site> sites;
  sites.emplace_back(*codec, model);
  sites[0].vector = normals(rows * cols, 3);
  const Round round = powersgd_rounds::run_round(*codec, model, sites);
  const auto m = matrix_of(sites[0].vector, rows, cols);
  const auto p = reference::times(m, reference::drawn_factors(kKey.run, 0, cols, rank), rank);
  const auto basis = reference::orthonormal(p, rows, rank);
  const auto q = reference::transposed_times(m, basis, rank);
  for (std::size_t i = 0; i < p.size(); ++i) ASSERT_NEAR(static_cast<double>(round.p[i]), p[i], 3e-6) << i;
  for (std::size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(static_cast<double>(round.q[i]), q[i], 3e-5) << i;
  const auto expected = reference::outer(basis, q, rows, cols, rank);
  EXPECT_LT(powersgd_rounds::relative_distance(round.update, expected), 3e-6);
}

// The known mistake would be to draw Q again: then the error stays where the first round left it.
TEST(PowerSgd, TheWarmStartConvergesToTheBestApproximation) {
  const std::size_t rows = 60, cols = 45, rank = 2;
  const Model model({{rows, cols}});
  const auto codec = codec_of("powersgd");
  std::vector<Site> sites;
  sites.emplace_back(*codec, model);
  sites[0].vector = normals(rows * cols, 8, 0.4F);
  const auto strong = powersgd_rounds::of_rank(rank, rows, cols, 9);
  for (std::size_t i = 0; i < strong.size(); ++i) sites[0].vector[i] += strong[i];
  const auto m = matrix_of(sites[0].vector, rows, cols);
  const double best = reference::distance_to_rank(m, rank) / reference::norm(m);
  std::vector<double> errors;
  for (std::uint64_t round = 0; round < 12; ++round) {
    const auto update = powersgd_rounds::run_round(*codec, model, sites, {5, round, 0}).update;
    errors.push_back(powersgd_rounds::relative_distance(update, m));
    EXPECT_GE(errors.back(), best * (1 - 1e-6));
  }
  EXPECT_GT(errors.front(), 1.05 * best);
  EXPECT_LT(errors.back(), 1.0001 * best);
}

TEST(PowerSgd, TheSecondRoundMultipliesByTheMeanOfTheFirst) {
  const std::size_t rows = 40, cols = 50, rank = 2;
  const Model model({{rows, cols}});
  const auto codec = codec_of("powersgd");
  std::vector<Site> sites;
  sites.emplace_back(*codec, model);
  sites[0].vector = normals(rows * cols, 12, 1e-3F);
  const Round first = powersgd_rounds::run_round(*codec, model, sites);
  sites[0].vector = normals(rows * cols, 13, 1e-3F);
  const Round second = powersgd_rounds::run_round(*codec, model, sites);
  auto warm = wide(first.q);
  for (std::size_t k = 0; k < rank; ++k) {
    double squares = 0;
    for (std::size_t j = 0; j < cols; ++j) squares += warm[k * cols + j] * warm[k * cols + j];
    double factor = 1;
    while (std::sqrt(squares) * factor < 0.5) factor *= 2;
    for (std::size_t j = 0; j < cols; ++j) warm[k * cols + j] *= factor;
  }
  const auto p = reference::times(matrix_of(sites[0].vector, rows, cols), warm, rank);
  for (std::size_t i = 0; i < p.size(); ++i) ASSERT_NEAR(static_cast<double>(second.p[i]), p[i], 2e-9) << i;
}

TEST(PowerSgd, TheMeanOfTheProductsIsTheProductOfTheMean) {
  const std::size_t rows = 90, cols = 64;
  const Model model({{rows, cols}});
  const auto codec = codec_of("powersgd:rank=4");
  std::vector<Site> sites;
  std::vector<std::vector<float>> sent, vectors;
  for (std::uint64_t s = 0; s < 5; ++s) {
    sites.emplace_back(*codec, model);
    sites[s].vector = normals(rows * cols, 40 + s);
    vectors.push_back(sites[s].vector);
    sent.push_back(sites[s].send(*codec, model, 0, {}));
  }
  const auto mean_p = powersgd_rounds::mean_of(sent);
  Site averaged(*codec, model);
  averaged.vector = powersgd_rounds::mean_of(vectors);
  const auto p_of_mean = averaged.send(*codec, model, 0, {});
  for (std::size_t i = 0; i < mean_p.size(); ++i) ASSERT_NEAR(mean_p[i], p_of_mean[i], 2e-6) << i;
  std::vector<std::vector<float>> sent_q;
  for (Site& site : sites) sent_q.push_back(site.send(*codec, model, 1, mean_p));
  const auto mean_q = powersgd_rounds::mean_of(sent_q);
  const auto q_of_mean = averaged.send(*codec, model, 1, mean_p);
  for (std::size_t i = 0; i < mean_q.size(); ++i) ASSERT_NEAR(mean_q[i], q_of_mean[i], 1e-5) << i;
}

TEST(PowerSgd, WhatASiteSentAndWhatItKeepsIsWhatItHad) {
  const Model model({{33, 47}, {10}, {12, 5, 5, 3}, {3, 4}}, 500, 3);
  const auto codec = codec_of("powersgd:rank=2");
  std::vector<Site> sites;
  for (std::uint64_t s = 0; s < 3; ++s) {
    sites.emplace_back(*codec, model);
    sites[s].vector = normals(model.count(), 60 + s);
  }
  const Round round = powersgd_rounds::run_round(*codec, model, sites);
  std::vector<double> kept(model.count(), 0.0), had(model.count(), 0.0);
  for (const Site& site : sites) {
    const auto residual = site.residual(*codec, model);
    // The site's own part of the mean, as the root would expand it.
    const auto own = powersgd_rounds::expand(*codec, model, round.p, site.plan.values);
    for (std::size_t i = 0; i < own.size(); ++i) {
      ASSERT_EQ(residual[i], site.vector[i] - own[i]) << i;
      ASSERT_NEAR(residual[i] + own[i], site.vector[i], 5e-7F) << i;
      kept[i] += static_cast<double>(residual[i]);
      had[i] += static_cast<double>(site.vector[i]);
    }
  }
  std::size_t cut = 0;
  for (std::size_t i = 0; i < model.count(); ++i) {
    ASSERT_NEAR(3 * static_cast<double>(round.update[i]) + kept[i], had[i], 1e-5) << i;
    cut += kept[i] != 0 ? 1 : 0;
  }
  EXPECT_GE(cut, 33U * 47 + 12 * 75 - 5);  // matrices have a residual,
  EXPECT_LE(cut, 33U * 47 + 12 * 75);      // other values have none
}

TEST(PowerSgd, WithFeedbackEverythingArrivesInTime) {
  const std::size_t rows = 30, cols = 30;
  const Model model({{rows, cols}});
  const auto codec = codec_of("powersgd");
  std::vector<Site> sites;
  sites.emplace_back(*codec, model);
  const auto update = normals(rows * cols, 70);
  std::vector<float> residual(rows * cols, 0.0F);
  std::vector<double> arrived(rows * cols, 0.0);
  constexpr int kRounds = 60;
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    sites[0].vector.resize(update.size());
    ASSERT_TRUE(codec->fold(model.schema(), update, residual, sites[0].state.span(), std::span(sites[0].vector)).ok());
    const Round done = powersgd_rounds::run_round(*codec, model, sites, {5, round, 0});
    residual = sites[0].residual(*codec, model);
    for (std::size_t i = 0; i < arrived.size(); ++i) arrived[i] += static_cast<double>(done.update[i]);
  }
  double left = 0, all = 0;
  for (std::size_t i = 0; i < arrived.size(); ++i) {
    const double sent = kRounds * static_cast<double>(update[i]);
    ASSERT_NEAR(arrived[i] + static_cast<double>(residual[i]), sent, 2e-4) << i;
    left += static_cast<double>(residual[i]) * static_cast<double>(residual[i]);
    all += sent * sent;
  }
  EXPECT_LT(std::sqrt(left / all), 0.25);  // the residual stays bounded while the sent part grows
}

TEST(PowerSgd, AZeroMatrixStaysZeroAndDoesNotEndTheWarmStart) {
  const std::size_t rows = 50, cols = 40;
  const Model model({{rows, cols}});
  const auto codec = codec_of("powersgd");
  std::vector<Site> sites;
  sites.emplace_back(*codec, model);
  sites[0].vector.assign(rows * cols, 0.0F);
  const Round zero = powersgd_rounds::run_round(*codec, model, sites);
  for (const auto& values : {zero.p, zero.q, zero.update, sites[0].residual(*codec, model)}) {
    EXPECT_EQ(bits_of(values), std::vector<std::uint32_t>(values.size(), 0));
  }
  sites[0].vector = powersgd_rounds::of_rank(2, rows, cols, 5);
  const Round next = powersgd_rounds::run_round(*codec, model, sites, {5, 2, 0});
  EXPECT_LT(powersgd_rounds::relative_distance(next.update, matrix_of(sites[0].vector, rows, cols)), 2e-6);
}

// One column alone is zero when the matrix has only one row that is not: P then has dependent columns.
TEST(PowerSgd, ADependentColumnIsZeroAndStartsAgainAsDrawn) {
  const std::size_t rows = 50, cols = 40;
  const Model model({{rows, cols}});
  const auto codec = codec_of("powersgd");
  std::vector<Site> sites;
  sites.emplace_back(*codec, model);
  sites[0].vector.assign(rows * cols, 0.0F);
  for (std::size_t j = 0; j < cols; ++j) sites[0].vector[7 * cols + j] = static_cast<float>(j) - 11.5F;
  const Round round = powersgd_rounds::run_round(*codec, model, sites);
  EXPECT_EQ(round.update, sites[0].vector);
  const std::span<const float> second(round.q.data() + cols, cols);
  EXPECT_EQ(bits_of(second), std::vector<std::uint32_t>(cols, 0));
  const auto drawn = reference::drawn_factors(kKey.run, 0, cols, 2);
  const auto* const warm = reinterpret_cast<const float*>(sites[0].state.data() + 32);
  for (std::size_t j = 0; j < cols; ++j) {
    EXPECT_EQ(static_cast<double>(warm[cols + j]), drawn[cols + j]);
    EXPECT_NE(static_cast<double>(warm[j]), drawn[j]);
  }
}

TEST(PowerSgd, MagnitudesFromTheSmallestToTheLargest) {
  const std::size_t rows = 40, cols = 40;
  const Model model({{rows, cols}});
  const auto codec = codec_of("powersgd");
  for (const float magnitude : {1e-30F, 1e-12F, 1e6F, 1e30F}) {
    Site site(*codec, model);
    site.vector = powersgd_rounds::of_rank(2, rows, cols, 6);
    for (float& value : site.vector) value *= magnitude;
    for (std::uint64_t round = 0; round < 3; ++round) {  // the warm start has taken on no magnitude
      const auto p = site.send(*codec, model, 0, {}, {5, round, 0});
      const auto q = site.send(*codec, model, 1, p, {5, round, 0});
      const auto update = powersgd_rounds::expand(*codec, model, p, q);
      EXPECT_LT(powersgd_rounds::relative_distance(update, matrix_of(site.vector, rows, cols)), 3e-6) << magnitude;
      ASSERT_TRUE(codec->settle(model.schema(), {5, round, 0}, q, site.state.span()).ok());
    }
  }
}

TEST(PowerSgd, CutsWhatPaysAndSendsTheRestAsItIs) {
  struct Case {
    std::vector<std::vector<std::uint64_t>> shapes;
    const char* text;
    std::uint64_t p, q;  // of pass 0, and of pass 1 with the values as they are
  };
  const Case cases[] = {
      {{{100, 50}}, "powersgd:rank=2", 200, 100},
      {{{100, 50}}, "powersgd:rank=16", 1600, 800},
      {{{100, 50}}, "powersgd:rank=17", 0, 5000},       // 5,000 <= 2 * 17 * 150
      {{{8, 8}}, "powersgd:rank=2", 0, 64},             // 64 <= 2 * 2 * 16
      {{{9, 8}}, "powersgd:rank=2", 18, 16},            // 72 > 68
      {{{3, 1000}}, "powersgd:rank=64", 0, 3000},       // a rank beyond the rows
      {{{5000}}, "powersgd:rank=2", 0, 5000},           // one dimension
      {{{64, 16, 3, 3}}, "powersgd:rank=2", 128, 288},  // 64 x 144
      {{{50, 50}, {50}, {40, 60}}, "powersgd:rank=1", 90, 50 + 60 + 50},
      {{{0, 9}, {1000, 0, 4}, {}}, "powersgd:rank=1", 0, 1},  // nothing, nothing, a scalar
      {{}, "powersgd:rank=2", 0, 0},
  };
  for (const Case& one : cases) {
    const Model model(one.shapes);
    const auto codec = codec_of(one.text);
    EXPECT_EQ(codec->pass_layout(model.schema(), 0).value_count, one.p) << one.text;
    EXPECT_EQ(codec->pass_layout(model.schema(), 1).value_count, one.q) << one.text;
    EXPECT_EQ(codec->pass_layout(model.schema(), 0).chunk_values, 1000U);
    std::vector<Site> sites;
    sites.emplace_back(*codec, model);
    sites[0].vector = normals(model.count(), 2);
    const Round round = powersgd_rounds::run_round(*codec, model, sites);
    if (one.p == 0) {
      EXPECT_EQ(round.update, powersgd_rounds::mean_of({sites[0].vector}));
      EXPECT_EQ(sites[0].residual(*codec, model), std::vector<float>(model.count(), 0.0F));
    }
  }
}

TEST(PowerSgd, WithoutTensorsNothingIsCut) {
  const auto codec = codec_of("powersgd");
  const VectorSchema schema{.layout = {.value_count = 10'000, .chunk_values = 512}, .tensors = {}};
  EXPECT_EQ(codec->pass_layout(schema, 0).value_count, 0U);
  EXPECT_EQ(codec->pass_layout(schema, 1).value_count, 10'000U);
}

TEST(PowerSgd, TheSameBitsOnEveryTargetAndHoweverItIsCut) {
  const std::vector<std::vector<std::uint64_t>> shapes = {{530, 2071}, {19}, {300, 517}, {7, 131}};
  std::vector<std::uint32_t> expected;
  for (const cpu::Target target : cpu::supported_targets()) {
    const auto codec = codec_of("powersgd:rank=5", target);
    for (const std::uint64_t chunk_values : {std::uint64_t{1} << 20, std::uint64_t{3001}}) {
      const Model model(shapes, chunk_values);
      std::vector<Site> sites;
      sites.emplace_back(*codec, model);
      sites[0].vector = normals(model.count(), 90);
      ASSERT_GT(codec->pass_layout(model.schema(), 0).value_count, 0U);
      std::vector<std::uint32_t> bits;
      for (const std::uint64_t round : {1U, 2U}) {
        const Round done = powersgd_rounds::run_round(*codec, model, sites, {5, round, 0});
        for (const auto& values : {done.p, done.q, done.update, sites[0].residual(*codec, model)}) {
          for (const std::uint32_t one : bits_of(values)) bits.push_back(one);
        }
      }
      if (expected.empty()) expected = bits;
      EXPECT_EQ(bits == expected, true) << cpu::target_name(target) << " " << chunk_values;
    }
  }
}

// Hand-checked: 5 x 5 cut at rank 1 (25 > 2 * 10), two values as they are. See docs/formats/codecs-powersgd.md.
TEST(PowerSgd, ARunThatGoesOnFromAnotherBeginsWithItsFactors) {
  const Model model({{20, 30}, {4}}, 64);
  const auto codec = codec_of("powersgd:rank=2");
  std::vector<Site> sites;
  sites.emplace_back(*codec, model).vector = normals(model.count(), 1);
  run_round(*codec, model, sites, {.run = 7, .round = 12, .site = 1});
  const ByteSpan last = sites[0].state.span();
  Buffer state = powersgd_rounds::zeros(last.size());
  ASSERT_TRUE(codec->continue_state(model.schema(), {.run = 8}, last, state.span()).ok());
  EXPECT_TRUE(std::ranges::equal(state.span().subspan(32), last.subspan(32))) << "settled factors are settled";
  EXPECT_EQ(load_le<std::uint64_t>(state.data() + 8), 8U) << "the new run's";
  EXPECT_EQ(load_le<std::uint64_t>(state.data() + 16), 1U) << "of round 0";

  Site next(*codec, model);
  next.vector = sites[0].vector;
  next.state = std::move(state);
  EXPECT_EQ(next.send(*codec, model, 0, {}, {.run = 8, .round = 1, .site = 1}),
            sites[0].send(*codec, model, 0, {}, {.run = 7, .round = 13, .site = 1}));
  EXPECT_FALSE(codec->continue_state(model.schema(), {.run = 8}, last.first(40), next.state.span()).ok());
  const auto other = codec_of("powersgd:rank=1");
  Buffer of_one(other->state_bytes(model.schema()));
  EXPECT_FALSE(other->continue_state(model.schema(), {.run = 8}, last, of_one.span()).ok());
}

TEST(PowerSgd, GoldenBytes) {
  const Model model({{5, 5}, {2}}, 1 << 20);
  const auto codec = codec_of("powersgd:rank=1");
  Site site(*codec, model);
  for (int i = 0; i < 25; ++i) site.vector.push_back(static_cast<float>(i % 7 - 3));
  site.vector.push_back(1.0F);
  site.vector.push_back(-0.5F);
  const auto p = site.send(*codec, model, 0, {}, {.run = 1, .round = 0, .site = 9});
  const auto expected_p = reference::times(matrix_of(site.vector, 5, 5), reference::drawn_factors(1, 0, 5, 1), 1);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_EQ(static_cast<double>(p[i]), expected_p[i]);  // exact: short numbers
  EXPECT_EQ(to_hex(std::as_bytes(std::span(p))), "809f4cbf00b65ebe00ff9dbe000b2dbf00adf3be");
  const auto q = site.send(*codec, model, 1, p, {.run = 1, .round = 0, .site = 9});
  const auto expected_q =
      reference::transposed_times(matrix_of(site.vector, 5, 5), reference::orthonormal(expected_p, 5, 1), 1);
  for (std::size_t j = 0; j < 5; ++j) EXPECT_NEAR(static_cast<double>(q[j]), expected_q[j], 1e-6);
  EXPECT_EQ(to_hex(std::as_bytes(std::span(q))), "6e92c73f23f5104026efbc3f731d12bf383355bf0000803f000000bf");
  ASSERT_TRUE(codec->settle(model.schema(), {.run = 1, .round = 0, .site = 0}, q, site.state.span()).ok());
  EXPECT_EQ(to_hex(site.state.span()),
            "0100000001000000010000000000000001000000000000004c0ef67e4f40fc75"
            "6e92c73e23f5103f26efbc3e731d12be383355be");  // Q / 4
}

}  // namespace
}  // namespace fluvial::kernels
