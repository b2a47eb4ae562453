// PowerSGD's results against the oracle's plain loops, bit for bit: what another implementation must come to.
#include <gtest/gtest.h>

#include "kernels/codecs/powersgd.h"
#include "kernels/codecs/powersgd_state.h"
#include "kernels/codecs/powersgd_test_support.h"
#include "kernels/reference/lowrank.h"

namespace fluvial::kernels {
namespace {

using powersgd_rounds::kKey;
using powersgd_rounds::Model;
using powersgd_rounds::Round;
using powersgd_rounds::Site;
using reference::LowRank;
using test_values::bits_of;
using test_values::codec_of;
using test_values::normals;

using Shapes = std::vector<std::vector<std::uint64_t>>;

std::vector<float> factors_of(const Site& site) {
  const std::span<const float> factors = powersgd::factors_of(site.state.span());
  return {factors.begin(), factors.end()};
}

// Three rounds of two sites; `make` says what a site has in a round, of so many values.
template <typename Make>
void expect_bits(const std::string& text, const Shapes& shapes, const Make& make) {
  const Model model(shapes);
  const LowRank oracle(shapes, *reference::powersgd_rank(text));
  const auto codec = codec_of(text);
  ASSERT_EQ(oracle.value_count(), model.count());
  std::vector<Site> sites;
  for (int s = 0; s < 2; ++s) sites.emplace_back(*codec, model);
  std::vector<float> q;
  for (std::uint64_t round = 1; round <= 3; ++round) {
    for (std::size_t s = 0; s < sites.size(); ++s) sites[s].vector = make(round * 10 + s, model.count());
    const Round done = powersgd_rounds::run_round(*codec, model, sites, {kKey.run, round, 0});
    ASSERT_EQ(oracle.sent_count(0), done.p.size());
    ASSERT_EQ(oracle.sent_count(1), done.q.size());
    const std::vector<float> basis = oracle.basis(done.p);
    EXPECT_EQ(bits_of(oracle.expanded(basis, done.q)), bits_of(done.update)) << text << ", round " << round;
    for (Site& site : sites) {
      std::vector<float> sent = site.send(*codec, model, 1, done.p, {kKey.run, round, 0});
      EXPECT_EQ(bits_of(oracle.left(site.vector, basis, sent)), bits_of(site.residual(*codec, model)));
      EXPECT_EQ(bits_of(oracle.warm_start(kKey.run, done.q)), bits_of(factors_of(site)));
    }
  }
}

TEST(PowerSgdBits, AreTheOraclesForMatricesAmongOtherTensors) {
  const Shapes shapes = {{7}, {40, 33}, {3, 3}, {24, 5, 9}, {}, {130, 70}, {11}};
  for (const char* text : {"powersgd:rank=1", "powersgd", "powersgd:rank=5", "powersgd:rank=64"}) {
    expect_bits(text, shapes, [](std::uint64_t seed, std::size_t count) { return normals(count, seed, 0.01F); });
  }
}

// Columns that depend on the ones before, and factors that are nothing and are drawn again.
TEST(PowerSgdBits, AreTheOraclesForMatricesOfALowRank) {
  const Shapes shapes = {{60, 50}, {5}};
  expect_bits("powersgd:rank=3", shapes, [](std::uint64_t, std::size_t count) { return std::vector<float>(count); });
  expect_bits("powersgd:rank=3", shapes, [](std::uint64_t seed, std::size_t count) {
    std::vector<float> values(count);
    for (std::size_t i = 0; i < count; ++i) values[i] = static_cast<float>((i / 50 + seed) % 7) * 0.25F;
    return values;
  });
}

TEST(PowerSgdBits, ARunBeginsWithTheOraclesFactors) {
  const Shapes shapes = {{40, 33}, {50, 20}};
  const Model model(shapes);
  const auto codec = codec_of("powersgd:rank=4");
  Site site(*codec, model);
  site.vector = normals(model.count(), 3, 1.0F);
  site.send(*codec, model, 0, {});
  EXPECT_EQ(bits_of(LowRank(shapes, 4).warm_start(kKey.run, {})), bits_of(factors_of(site)));
}

}  // namespace
}  // namespace fluvial::kernels
