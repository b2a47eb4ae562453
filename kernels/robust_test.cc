#include "kernels/robust.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

#include "core/base/rng.h"
#include "kernels/reduce.h"
#include "kernels/reference/robust.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using ::testing::HasSubstr;
using Floats = std::vector<std::vector<float>>;

Floats normal_updates(std::size_t n, std::size_t size, std::uint64_t seed) {
  Floats updates;
  for (std::size_t k = 0; k < n; ++k) updates.push_back(test_values::normals(size, 1'000 * seed + k));
  return updates;
}

std::vector<std::span<const float>> views(const Floats& updates) { return {updates.begin(), updates.end()}; }

std::vector<double> column(const Floats& updates, std::size_t i) {
  std::vector<double> values;
  for (const auto& update : updates) values.push_back(update[i]);
  return values;
}

reference::Vectors widened(const Floats& updates) {
  reference::Vectors all;
  for (const auto& update : updates) all.emplace_back(update.begin(), update.end());
  return all;
}

// A workspace of exactly the stated size.
struct Workspace {
  explicit Workspace(std::size_t n, bool weighted = false) : words((robust_workspace_bytes(n, weighted) + 7) / 8) {}
  MutableByteSpan bytes() { return std::as_writable_bytes(std::span(words)); }
  std::vector<std::uint64_t> words;
};

std::vector<double> distances_of(const Floats& updates) {
  std::vector<double> distances(pair_count(updates.size()), 0.0);
  EXPECT_TRUE(add_distances(views(updates), distances).ok());
  return distances;
}

TEST(RobustCoordinates, AreTheOraclesOnEveryTarget) {
  for (const std::size_t n : {1U, 2U, 3U, 4U, 5U, 7U, 8U, 13U, 33U, 64U}) {
    for (const std::size_t size : {1U, 255U, 300U}) {
      auto updates = normal_updates(n, size, n);
      for (std::size_t k = 0; k < n; k += 2) updates[k] = test_values::adversarial(size, 7 * n + k, 1e30F);
      for (const cpu::Target target : cpu::supported_targets()) {
        Workspace workspace(n);
        std::vector<float> out(size);
        ASSERT_TRUE(coordinate_median(views(updates), workspace.bytes(), out, target).ok());
        for (std::size_t i = 0; i < size; ++i) {
          ASSERT_EQ(out[i], static_cast<float>(reference::median(column(updates, i)))) << n << " updates, " << i;
        }
        for (const std::size_t drop : {std::size_t{0}, (n - 1) / 4, (n - 1) / 2}) {
          ASSERT_TRUE(trimmed_mean(views(updates), drop, workspace.bytes(), out, target).ok());
          for (std::size_t i = 0; i < size; ++i) {
            ASSERT_EQ(out[i], static_cast<float>(reference::trimmed_mean(column(updates, i), drop)));
          }
        }
      }
    }
  }
}

TEST(RobustCoordinates, TheOrderOfTheUpdatesAndTheCutsDoNotMatter) {
  const auto updates = normal_updates(9, 1'000, 3);
  Floats reversed(updates.rbegin(), updates.rend());
  Workspace workspace(9);
  std::vector<float> a(1'000), b(1'000);
  ASSERT_TRUE(coordinate_median(views(updates), workspace.bytes(), a).ok());
  ASSERT_TRUE(coordinate_median(views(reversed), workspace.bytes(), b).ok());
  EXPECT_EQ(a, b);
  for (std::size_t at = 0; at < 1'000; at += 77) {
    const std::size_t size = std::min<std::size_t>(77, 1'000 - at);
    std::vector<std::span<const float>> part;
    for (const auto& update : updates) part.push_back(std::span(update).subspan(at, size));
    ASSERT_TRUE(coordinate_median(part, workspace.bytes(), std::span(b).subspan(at, size)).ok());
  }
  EXPECT_EQ(a, b);
  ASSERT_TRUE(coordinate_median(views(reversed), workspace.bytes(), reversed[4]).ok()) << "in place";
  EXPECT_EQ(a, reversed[4]);
}

TEST(RobustCoordinates, WeightsCountAsRepetitions) {
  Rng rng(5);
  for (const std::size_t n : {1U, 2U, 5U, 12U}) {
    for (int draw = 0; draw < 20; ++draw) {
      auto updates = normal_updates(n, 50, 60 + n + static_cast<std::size_t>(draw));
      if (n > 2) updates[2] = updates[1];  // ties
      std::vector<std::uint32_t> weights(n);
      for (std::uint32_t& weight : weights) weight = 1 + static_cast<std::uint32_t>(rng.next() % 9);
      const std::uint64_t total = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
      const std::uint64_t drop = rng.next() % ((total + 1) / 2);
      Workspace workspace(n, true);
      std::vector<float> median(50), trimmed(50);
      std::vector<std::uint32_t> first;
      for (const cpu::Target target : cpu::supported_targets()) {
        ASSERT_TRUE(weighted_median(views(updates), weights, workspace.bytes(), median, target).ok());
        ASSERT_TRUE(weighted_trimmed_mean(views(updates), weights, drop, workspace.bytes(), trimmed, target).ok());
        std::vector<std::uint32_t> both = test_values::bits_of(median);
        for (const std::uint32_t bits : test_values::bits_of(trimmed)) both.push_back(bits);
        if (first.empty()) first = both;
        ASSERT_EQ(both, first) << cpu::target_name(target);
      }
      for (std::size_t i = 0; i < 50; ++i) {
        const auto all = reference::repeated(column(updates, i), weights);
        ASSERT_EQ(median[i], static_cast<float>(reference::median(all)));
        ASSERT_NEAR(trimmed[i], reference::trimmed_mean(all, drop), 1e-6);
      }
    }
  }
}

TEST(RobustCoordinates, EqualWeightsAreNoWeights) {
  const auto updates = normal_updates(8, 300, 9);
  Workspace workspace(8, true);
  std::vector<float> a(300), b(300);
  ASSERT_TRUE(coordinate_median(views(updates), workspace.bytes(), a).ok());
  ASSERT_TRUE(weighted_median(views(updates), std::vector<std::uint32_t>(8, 1'000), workspace.bytes(), b).ok());
  EXPECT_EQ(a, b);
  ASSERT_TRUE(trimmed_mean(views(updates), 2, workspace.bytes(), a).ok());
  ASSERT_TRUE(weighted_trimmed_mean(views(updates), std::vector<std::uint32_t>(8, 1), 2, workspace.bytes(), b).ok());
  EXPECT_EQ(a, b);
}

TEST(RobustCoordinates, RefuseWhatTheyCannotDo) {
  auto updates = normal_updates(4, 10, 10);
  Workspace workspace(4, true);
  std::vector<float> out(10, 7.0F);
  EXPECT_THAT(trimmed_mean(views(updates), 2, workspace.bytes(), out).error().message, HasSubstr("none is left"));
  EXPECT_FALSE(coordinate_median({}, {}, {}).ok());
  const std::vector<std::uint32_t> weights = {1, 2, 3, 4};
  EXPECT_FALSE(weighted_trimmed_mean(views(updates), weights, 5, workspace.bytes(), out).ok());
  EXPECT_FALSE(weighted_median(views(updates), std::span(weights).first(3), workspace.bytes(), out).ok());
  EXPECT_FALSE(weighted_median(views(updates), std::vector<std::uint32_t>(4, 0), workspace.bytes(), out).ok());
  updates[2][6] = std::numeric_limits<float>::quiet_NaN();
  const Status refused = coordinate_median(views(updates), workspace.bytes(), out);
  EXPECT_EQ(refused.error().code, Code::kDataLoss);
  EXPECT_THAT(refused.error().message, HasSubstr("update 2: value 6 is NaN"));
  EXPECT_EQ(out, std::vector<float>(10, 7.0F));
}

TEST(RobustDistances, AreTheOraclesAndAddUpOverChunks) {
  const auto updates = normal_updates(6, 3'001, 11);
  const auto wide = widened(updates);
  std::vector<std::vector<double>> by_target;
  for (const cpu::Target target : cpu::supported_targets()) {
    std::vector<double> distances(pair_count(6), 0.0);
    for (const auto& [at, size] : {std::pair<std::size_t, std::size_t>{0, 1'000}, {1'000, 2'001}}) {
      std::vector<std::span<const float>> part;
      for (const auto& update : updates) part.push_back(std::span(update).subspan(at, size));
      ASSERT_TRUE(add_distances(part, distances, target).ok());
    }
    for (std::size_t j = 1; j < 6; ++j) {
      for (std::size_t i = 0; i < j; ++i) {
        const double expected = reference::squared_distance(wide[i], wide[j]);
        EXPECT_NEAR(distances[pair_index(i, j)], expected, 1e-12 * expected);
      }
    }
    by_target.push_back(distances);
    EXPECT_EQ(by_target.back(), by_target.front()) << cpu::target_name(target);
  }
  auto bad = updates;
  bad[3][8] = std::numeric_limits<float>::infinity();
  std::vector<double> distances(pair_count(6), 0.0);
  EXPECT_THAT(add_distances(views(bad), distances).error().message, HasSubstr("updates 0 and 3"));
}

TEST(Krum, ChoosesAsTheOracleDoes) {
  for (const auto& [n, f] : {std::pair<std::size_t, std::size_t>{3, 0}, {5, 1}, {9, 3}, {20, 4}, {23, 10}}) {
    const auto updates = normal_updates(n, 40, n);
    const auto distances = distances_of(updates);
    std::vector<double> workspace(multi_krum_workspace(n));
    for (const std::size_t m : {std::size_t{1}, std::size_t{2}, n - f}) {
      std::vector<std::size_t> chosen(m);
      ASSERT_TRUE(multi_krum(distances, n, f, workspace, chosen).ok());
      EXPECT_EQ(chosen, reference::multi_krum(widened(updates), f, m)) << n << " " << f << " " << m;
    }
  }
}

TEST(Krum, NeedsTwiceTheAttackersAndThree) {
  const std::vector<double> distances(pair_count(6), 1.0);
  std::vector<double> workspace(12);
  std::vector<std::size_t> chosen(1);
  EXPECT_THAT(multi_krum(distances, 6, 2, workspace, chosen).error().message, HasSubstr("at least 2 * 2 + 3"));
  EXPECT_TRUE(multi_krum(distances, 6, 1, workspace, chosen).ok());
  EXPECT_EQ(chosen[0], 0U) << "ties go to the lower index";
  chosen.resize(6);
  EXPECT_FALSE(multi_krum(distances, 6, 1, workspace, chosen).ok()) << "at most n - f";
  chosen.resize(4);
  EXPECT_THAT(bulyan_select(distances, 6, 1, workspace, chosen).error().message, HasSubstr("at least 4 * 1 + 3"));
}

TEST(Bulyan, ChoosesAndCombinesAsTheOracleDoes) {
  for (const auto& [n, f] : {std::pair<std::size_t, std::size_t>{3, 0}, {7, 1}, {12, 2}, {15, 3}}) {
    const auto updates = normal_updates(n, 300, 30 + n);
    std::vector<double> workspace(bulyan_workspace(n));
    std::vector<std::size_t> chosen(n - 2 * f);
    ASSERT_TRUE(bulyan_select(distances_of(updates), n, f, workspace, chosen).ok());
    ASSERT_EQ(chosen, reference::bulyan(widened(updates), f));
    Floats kept;
    for (const std::size_t k : chosen) kept.push_back(updates[k]);
    std::vector<float> first;
    for (const cpu::Target target : cpu::supported_targets()) {
      Workspace rows(kept.size());
      std::vector<float> out(300);
      ASSERT_TRUE(bulyan_combine(views(kept), f, rows.bytes(), out, target).ok());
      for (std::size_t i = 0; i < out.size(); ++i) {
        ASSERT_NEAR(out[i], reference::mean_around_median(column(kept, i), kept.size() - 2 * f), 1e-6);
      }
      if (first.empty()) first = out;
      ASSERT_EQ(out, first);
    }
  }
}

TEST(GeometricMedian, IsTheOracles) {
  const auto updates = normal_updates(7, 20, 50);
  const std::vector<std::uint32_t> weights = {1, 5, 2, 1, 3, 1, 4};
  for (const bool weighted : {false, true}) {
    std::vector<double> distances(7), coefficients(7);
    const auto given = weighted ? std::span<const std::uint32_t>(weights) : std::span<const std::uint32_t>();
    const auto report =
        geometric_median(views(updates), given, {.iterations_max = 5'000, .tolerance = 0}, distances, coefficients);
    ASSERT_TRUE(report.ok());
    std::vector<float> out(20);
    ASSERT_TRUE(combine(views(updates), coefficients, out).ok());
    const auto expected =
        reference::geometric_median(widened(updates), weighted ? weights : std::vector<std::uint32_t>(7, 1));
    for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-5);
    EXPECT_NEAR(std::accumulate(coefficients.begin(), coefficients.end(), 0.0), 1.0, 1e-12);
  }
}

TEST(GeometricMedian, ReportsWhetherItConverged) {
  const auto updates = normal_updates(5, 100, 51);
  std::vector<double> distances(5), coefficients(5);
  const auto rest = geometric_median(views(updates), {}, {}, distances, coefficients);
  EXPECT_TRUE(rest->converged);
  EXPECT_GT(rest->iterations, 1U);
  const auto short_of =
      geometric_median(views(updates), {}, {.iterations_max = 2, .tolerance = 0}, distances, coefficients);
  EXPECT_FALSE(short_of->converged);
  EXPECT_EQ(short_of->iterations, 2U);
  EXPECT_GE(short_of->objective * (1 + 1e-9), rest->objective);
  const Floats same(5, updates[0]);
  const auto none = geometric_median(views(same), {}, {}, distances, coefficients);
  EXPECT_TRUE(none->converged) << "all distances are zero: nu keeps it from dividing by them";
  std::vector<float> out(100);
  ASSERT_TRUE(combine(views(same), coefficients, out).ok());
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], updates[0][i], 1e-6);
  EXPECT_FALSE(geometric_median(views(updates), {}, {.nu = 0}, distances, coefficients).ok());
}

TEST(CenteredClipping, IsTheOracles) {
  auto updates = normal_updates(6, 30, 52);
  const auto start = test_values::normals(30, 53);
  const auto expected =
      reference::centered_clipping(widened(updates), std::vector<double>(start.begin(), start.end()), 2.5, 3);
  updates.push_back(start);
  std::vector<double> distances(7), coefficients(7);
  ASSERT_TRUE(centered_clipping(views(updates), 2.5, 3, distances, coefficients).ok());
  std::vector<float> out(30);
  ASSERT_TRUE(combine(views(updates), coefficients, out).ok());
  for (std::size_t i = 0; i < out.size(); ++i) EXPECT_NEAR(out[i], expected[i], 1e-6);
}

// The purpose of the rules: f attackers with any finite values do not move the result out of the honest range (or only
// by a little, if the rule bounds a distance), but they do move the mean.
class Breakdown : public ::testing::TestWithParam<const char*> {
 protected:
  static constexpr std::size_t kCount = 15, kAttackers = 3, kSize = 200;  // n >= 4f + 3

  static Floats attacked(std::string_view attack) {
    Floats updates;
    for (std::size_t k = 0; k < kCount; ++k) {
      updates.push_back(test_values::normals(kSize, 700 + k, 0.1F));
      for (float& value : updates.back()) value += 1.0F;
      if (k % 5 != 2) continue;
      for (float& value : updates.back()) {
        value = attack == "sign flip" ? -10.0F * value : attack == "scaled" ? 1e6F * value : 1e18F;
      }
    }
    return updates;
  }
  // The honest updates' distance from 1 in each coordinate is below 0.5.
  static void expect_honest(std::span<const float> out, float slack, const char* rule) {
    for (const float value : out) ASSERT_NEAR(value, 1.0F, 0.5F + slack) << rule << " under " << GetParam();
  }
};

TEST_P(Breakdown, TheRulesHoldAndTheMeanDoesNot) {
  const Floats updates = attacked(GetParam());
  const auto all = views(updates);
  std::vector<float> out(kSize);
  ASSERT_TRUE(reduce_mean(all, out).ok());
  EXPECT_GT(std::fabs(out[0] - 1.0F), 1.0F);

  Workspace workspace(kCount);
  ASSERT_TRUE(coordinate_median(all, workspace.bytes(), out).ok());
  expect_honest(out, 0, "median");
  ASSERT_TRUE(trimmed_mean(all, kAttackers, workspace.bytes(), out).ok());
  expect_honest(out, 0, "trimmed mean");

  const auto distances = distances_of(updates);
  std::vector<double> room(multi_krum_workspace(kCount));
  std::vector<std::size_t> chosen(kCount - kAttackers);
  ASSERT_TRUE(multi_krum(distances, kCount, kAttackers, room, chosen).ok());
  std::vector<std::span<const float>> kept;
  for (const std::size_t k : chosen) kept.push_back(updates[k]);
  ASSERT_TRUE(reduce_mean(kept, out).ok());
  expect_honest(out, 0, "multi-Krum");

  chosen.resize(kCount - 2 * kAttackers);
  ASSERT_TRUE(bulyan_select(distances, kCount, kAttackers, room, chosen).ok());
  kept.clear();
  for (const std::size_t k : chosen) kept.push_back(updates[k]);
  ASSERT_TRUE(bulyan_combine(kept, kAttackers, workspace.bytes(), out).ok());
  expect_honest(out, 0, "Bulyan");

  std::vector<double> squares(kCount), coefficients(kCount);
  const auto report = geometric_median(all, {}, {}, squares, coefficients);
  ASSERT_TRUE(report.ok() && report->converged);
  ASSERT_TRUE(combine(all, coefficients, out).ok());
  expect_honest(out, 0.1F, "geometric median");

  Floats started = updates;
  started.emplace_back(kSize, 0.9F);  // last round's result
  squares.resize(kCount + 1), coefficients.resize(kCount + 1);
  ASSERT_TRUE(centered_clipping(views(started), 2.0, 5, squares, coefficients).ok());
  ASSERT_TRUE(combine(views(started), coefficients, out).ok());
  expect_honest(out, 0.2F, "centered clipping");
}

INSTANTIATE_TEST_SUITE_P(Attacks, Breakdown, ::testing::Values("sign flip", "scaled", "huge"), [](const auto& one) {
  std::string name(one.param);
  std::erase(name, ' ');
  return name;
});

}  // namespace
}  // namespace fluvial::kernels
