// The part of an update and its residual that is sent: whatever the residual holds, the parent takes that part, and the
// rest stays in the residual.
#include "edge/update/fit.h"

#include <cmath>
#include <functional>
#include <limits>
#include <list>

#include "edge/update/resolve.h"
#include "edge/update/test_support.h"
#include "kernels/ring.h"
#include "kernels/test_values.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

// The codecs that a site may use, but for a vote, which sends ones whatever the bound, and ring, whose plan is refused
// when what it sends may be beyond the bound.
std::vector<std::string> codecs() {
  std::vector<std::string> texts = kernels::test_values::codec_texts();
  std::erase_if(texts, [](const std::string& text) {
    const kernels::CodecSpec spec = kernels::parse_codec(text).value();
    return spec.kind == kernels::CodecKind::kPowerSgd || spec.kind == kernels::CodecKind::kRing || spec.vote;
  });
  return texts;
}
bool is_unbiased_randk(const std::string& codec) { return kernels::parse_codec(codec)->unbiased; }

double norm_of(const std::vector<float>& values) { return std::sqrt(kernels::screen(values)->norm_squared); }

class FitTest : public testing::Test {
 protected:
  Training update_of(std::uint64_t round, const std::string& codec, const std::vector<float>& update) {
    Training made = training(round, codec, update, std::vector<float>(kValues, 0.0F));
    made.plan.value_abs_max = value_abs_max_;
    made.plan.update_norm_max = update_norm_max_;
    return made;
  }
  std::vector<float> residual() {
    std::vector<float> values(kValues);
    EXPECT_TRUE(store_->read_residual(kRun, 0, values).ok());
    return values;
  }
  store::ResidualInfo resolve(std::uint64_t round, round::Outcome outcome) {
    const Result<store::Carried> carried = resolve_pending(*store_, kRun, RoundId(round), outcome);
    EXPECT_TRUE(carried.ok()) << carried.error().to_string();
    return carried->residual;
  }
  void begin_anew() {
    store_.reset();
    store_ = open_store(files_.emplace_back());
  }

  double value_abs_max_ = 1;
  double update_norm_max_ = 0;
  Serial serial_;
  std::list<store::MemoryFileSystem> files_;
  std::unique_ptr<store::SiteStore> store_ = open_store(files_.emplace_back());
};

TEST_F(FitTest, LateRoundsStrandNoSite) {
  for (const double norm_max : {0.0, 25.0}) {  // of one update it is 18
    update_norm_max_ = norm_max;
    for (const std::string& codec : codecs()) {
      begin_anew();
      std::vector<double> balance(kValues);
      double late_norm = 0, left_norm = 0;
      for (std::uint64_t round = 1; round <= 40; ++round) {
        const std::vector<float> update = draw(round, kValues, 2);
        const Training trained = update_of(round, codec, update);
        for (std::size_t i = 0; i < kValues; ++i) balance[i] += static_cast<double>(update[i]);
        if (round <= 6 && round % 2 == 0) {
          const auto folded = fold_update(trained.job(), *store_, serial_);
          ASSERT_TRUE(folded.ok()) << codec << ", round " << round << ": " << folded.error().to_string();
          late_norm = folded->residual.norm;
          continue;
        }
        const auto encoded = encode_update(trained.job(), *store_, serial_);
        ASSERT_TRUE(encoded.ok()) << codec << ", round " << round << ": " << encoded.error().to_string();
        const Status taken = accepted(*encoded, trained.plan);
        ASSERT_TRUE(taken.ok()) << codec << ", round " << round << ": " << taken.error().to_string();
        if (round <= 6) {
          resolve(round, round::Outcome::kLate);
          continue;
        }
        const std::vector<float> sent = decoded(*encoded);
        for (std::size_t i = 0; i < kValues; ++i) balance[i] -= static_cast<double>(sent[i]);
        left_norm = resolve(round, round::Outcome::kCounted).norm;
      }
      if (is_unbiased_randk(codec)) continue;  // it makes up for what it leaves out only in the mean
      if (codec.starts_with("dgc")) continue;  // a momentum sends more than was trained
      const std::vector<float> left = residual();
      for (std::size_t i = 0; i < kValues; ++i) ASSERT_NEAR(balance[i], left[i], 1e-3) << codec << ", value " << i;
      if (codec.starts_with("fp32")) EXPECT_LT(left_norm, late_norm / 2) << "it goes out bit by bit";
    }
  }
}

// An update within the bound is taken, however its codec rounds, scales or multiplies.
TEST_F(FitTest, EveryCodecAtTheBound) {
  const std::function<float(std::size_t, float)> shapes[] = {
      [](std::size_t, float bound) { return bound; },
      [](std::size_t i, float bound) { return i % 2 == 0 ? bound : -bound; },
      [](std::size_t i, float bound) { return i % 300 == 7 ? -bound : 1e-6F * static_cast<float>(i % 5); },
      [](std::size_t i, float bound) { return bound * static_cast<float>(i) / static_cast<float>(kValues); },
      [](std::size_t, float bound) { return bound / 40; }};
  for (const std::string& codec : codecs()) {
    for (const double bound : {1.0, 0.1, 1023.0, 100'000.0}) {
      for (const auto& shape : shapes) {
        begin_anew();
        value_abs_max_ = bound;
        const float most = static_cast<double>(static_cast<float>(bound)) <= bound
                               ? static_cast<float>(bound)
                               : std::nextafter(static_cast<float>(bound), 0.0F);
        std::vector<float> update(kValues);
        for (std::size_t i = 0; i < kValues; ++i) update[i] = shape(i, most);
        const Training trained = update_of(1, codec, update);
        const auto encoded = encode_update(trained.job(), *store_, serial_);
        ASSERT_TRUE(encoded.ok()) << codec << ": " << encoded.error().to_string();
        EXPECT_EQ(p_of(*encoded), update) << codec;
        const Status taken = accepted(*encoded, trained.plan);
        ASSERT_TRUE(taken.ok()) << codec << " at " << bound << ": " << taken.error().to_string();
        const std::vector<float> sent = decoded(*encoded);
        resolve(1, round::Outcome::kCounted);
        if (is_unbiased_randk(codec)) continue;
        const std::vector<float> left = residual();
        for (std::size_t i = 0; i < kValues; ++i) ASSERT_NEAR(sent[i] + left[i], update[i], bound * 1e-6) << codec;
      }
    }
  }
}

// Ring sends what it clips later, as far as it can; what it never can grows, until the plan's bound drops it.
TEST_F(FitTest, WhatRingClipsWaitsInTheResidualUpToThePlansBound) {
  constexpr float kMost = 127.0F / 2048;
  const std::string codec = "ring:bits=8,max=0.05,rounding=nearest";
  std::vector<float> update(kValues, 0.0F);
  const auto encode_one = [&](std::uint64_t round, double norm_max) {
    Training trained = update_of(round, codec, update);
    trained.plan.residual_norm_max = norm_max;
    const auto encoded = encode_update(trained.job(), *store_, serial_);
    EXPECT_TRUE(encoded.ok()) << encoded.error().to_string();
    EXPECT_TRUE(accepted(*encoded, trained.plan).ok());
    const std::vector<float> sent = decoded(*encoded);
    return std::pair(sent[7], resolve_pending(*store_, kRun, RoundId(round), round::Outcome::kCounted).value());
  };
  update[7] = 5 * kMost;  // once: it goes out over five rounds
  double sent = 0;
  for (std::uint64_t round = 1; round <= 5; ++round) {
    const auto [value, carried] = encode_one(round, 0);
    EXPECT_EQ(value, kMost);
    sent += static_cast<double>(value);
    EXPECT_NEAR(carried.residual.norm, static_cast<double>(5 * kMost) - sent, 1e-6);
    update[7] = 0;
  }
  update[7] = 2 * kMost;  // always: as much again stays out in every round
  bool dropped = false;
  for (std::uint64_t round = 6; round <= 105; ++round) {
    const auto [value, carried] = encode_one(round, 10 * static_cast<double>(kMost) + 0.001);
    EXPECT_EQ(value, kMost);
    EXPECT_LE(carried.residual.norm, 10 * static_cast<double>(kMost) + 0.001);
    if (carried.dropped.empty()) continue;
    EXPECT_EQ(round % 11, 5U) << "the eleventh is too much, each time";
    EXPECT_EQ(carried.residual.norm, 0);
    EXPECT_NE(carried.dropped.find("residual_norm_max"), std::string::npos);
    dropped = true;
  }
  EXPECT_TRUE(dropped);
}

// Whatever the values, it sends no more than its steps allow: an update is encoded once, without being measured.
TEST_F(FitTest, RingIsNeverBeyondTheBoundOfItsPlan) {
  const kernels::CodecSpec ring = kernels::parse_codec("ring:bits=8,max=0.05").value();
  const double most = kernels::ring_value_max(ring);
  for (const double bound : {most, 1.0}) {
    value_abs_max_ = bound;
    EXPECT_FALSE(Fitting(update_of(1, "fp32", {}).plan, ring, 0.05F).must_measure());
  }
  value_abs_max_ = most / 2;  // a plan that no coordinator takes
  EXPECT_TRUE(Fitting(update_of(1, "fp32", {}).plan, ring, 0.01F).must_measure());
}

TEST_F(FitTest, WhatStaysOutIsKnownAfterARestart) {
  for (const std::string codec : {"fp32", "int8", "fp32:zstd=1"}) {
    if (codec.ends_with("zstd=1") && !kernels::zstd_available()) continue;
    begin_anew();
    for (std::uint64_t round = 1; round <= 4; ++round) {
      ASSERT_TRUE(fold_update(update_of(round, codec, draw(9, kValues, 2)).job(), *store_, serial_).ok());
    }
    const auto encoded = encode_update(update_of(5, codec, draw(9, kValues, 2)).job(), *store_, serial_);
    ASSERT_TRUE(encoded.ok()) << encoded.error().to_string();
    EXPECT_FALSE(encoded->info().start.lossless);
    const std::vector<float> p = p_of(*encoded), sent = decoded(*encoded);
    store_.reset();
    store_ = open_store(files_.back());
    EXPECT_EQ(store_->pending(kRun)->value().info().start.fit, encoded->info().start.fit);
    resolve(5, round::Outcome::kCounted);
    const std::vector<float> left = residual();
    for (std::size_t i = 0; i < kValues; ++i) ASSERT_NEAR(sent[i] + left[i], p[i], 1e-6) << codec;
    EXPECT_GT(norm_of(left), 1);
  }
}

// In the mean an unbiased randk's decoded values stand for everything that was encoded; what was cut off before that is
// not part of it.
TEST_F(FitTest, WhatIsCutOffAnUnbiasedSampleStaysInTheResidual) {
  const std::string codec = "randk:ratio=0.1,mode=unbiased";
  value_abs_max_ = 12;
  const std::vector<float> update = draw(9, kValues, 2);
  for (std::uint64_t round = 1; round <= 9; ++round) {
    ASSERT_TRUE(fold_update(update_of(round, codec, update).job(), *store_, serial_).ok());
  }
  const auto encoded = encode_update(update_of(10, codec, update).job(), *store_, serial_);
  ASSERT_TRUE(encoded.ok()) << encoded.error().to_string();
  const store::Fit fit = encoded->info().start.fit;
  ASSERT_FALSE(fit.whole()) << "ten updates at once are beyond the bound";
  const std::vector<float> p = p_of(*encoded);
  std::vector<float> taken(kValues);
  fit_values(p, fit, taken);
  resolve(10, round::Outcome::kCounted);
  const std::vector<float> left = residual();
  for (std::size_t i = 0; i < kValues; ++i) ASSERT_NEAR(taken[i] + left[i], p[i], 1e-5) << "value " << i;
  EXPECT_GT(norm_of(left), norm_of(update));
}

// This is the training's own fault: the parent refuses the update by name, and the residual stays.
TEST_F(FitTest, AnUpdateThatIsTooLongAloneIsSentAsItIs) {
  update_norm_max_ = 20;
  for (const std::string codec : {"fp32", "int8"}) {
    begin_anew();
    ASSERT_TRUE(fold_update(update_of(1, codec, draw(1, kValues, 2)).job(), *store_, serial_).ok());
    const std::vector<float> before = residual();
    const Training too_long = update_of(2, codec, std::vector<float>(kValues, 0.9F));  // 28
    const auto encoded = encode_update(too_long.job(), *store_, serial_);
    ASSERT_TRUE(encoded.ok()) << encoded.error().to_string();
    EXPECT_FALSE(accepted(*encoded, too_long.plan).ok()) << codec;
    resolve(2, round::Outcome::kRefused);
    EXPECT_EQ(residual(), before);
    const Training good = update_of(3, codec, draw(3, kValues, 2));
    EXPECT_TRUE(accepted(encode_update(good.job(), *store_, serial_).value(), good.plan).ok()) << codec;
  }
}

class DamagedResidualTest : public FitTest {
 protected:
  void damage(const std::vector<float>& damaged) {
    ASSERT_TRUE(fold_update(update_of(1, "fp32", draw(5, kValues, 2)).job(), *store_, serial_).ok());
    const std::vector<std::string> names = files_.back().list("/site/tensors").value();
    ASSERT_EQ(names.size(), 1u);
    const auto file = files_.back().open("/site/tensors/" + names[0], store::OpenMode::kTruncate).value();
    ASSERT_TRUE(file->write_at(0, std::as_bytes(std::span(damaged))).ok());
  }
};

TEST_F(DamagedResidualTest, IsBoundedWhereItIsFiniteAndTooLarge) {
  std::vector<float> damaged = draw(5, kValues, 2);
  damaged[5] = -std::numeric_limits<float>::max();
  ASSERT_NO_FATAL_FAILURE(damage(damaged));
  const Training trained = update_of(2, "fp32", draw(6, kValues, 2));
  std::atomic<std::uint64_t> lost = 0;
  UpdateJob job = trained.job();
  job.residual_lost = &lost;
  const auto encoded = encode_update(job, *store_, serial_);
  ASSERT_TRUE(encoded.ok()) << encoded.error().to_string();
  EXPECT_EQ(lost, 1u);
}

TEST_F(DamagedResidualTest, RefusesNoUpdate) {
  std::vector<float> damaged = draw(5, kValues, 2);
  damaged[3] = std::numeric_limits<float>::quiet_NaN();
  damaged[4] = std::numeric_limits<float>::infinity();
  damaged[5] = -std::numeric_limits<float>::max();
  ASSERT_NO_FATAL_FAILURE(damage(damaged));
  for (const std::string codec : {"fp32", "int8"}) {
    const std::uint64_t round = codec == "fp32" ? 2 : 3;
    const Training trained = update_of(round, codec, draw(6, kValues, 2));
    std::atomic<std::uint64_t> lost = 0;
    UpdateJob job = trained.job();
    job.residual_lost = &lost;
    const auto encoded = encode_update(job, *store_, serial_);
    ASSERT_TRUE(encoded.ok()) << encoded.error().to_string();
    EXPECT_EQ(lost, codec == "fp32" ? 3u : 0u) << "once: what the next one begins with is sound";
    EXPECT_TRUE(accepted(*encoded, trained.plan).ok());
    for (const float value : p_of(*encoded)) ASSERT_TRUE(std::isfinite(value));
    EXPECT_EQ(decoded(*encoded)[5], -1);
    resolve(round, round::Outcome::kCounted);
    for (const float value : residual()) ASSERT_TRUE(std::isfinite(value));
  }
}

TEST(Fitting, MeasuresNothingWhereNothingCanBeBeyond) {
  const kernels::CodecSpec int8 = kernels::parse_codec("int8").value();
  round::Plan plan;
  EXPECT_FALSE(Fitting(plan, int8, 1.0F).must_measure());
  EXPECT_TRUE(Fitting(plan, int8, 1.0F).fit().whole());
  EXPECT_TRUE(Fitting(plan, int8, 1000.0F).must_measure());
  EXPECT_FALSE(Fitting(plan, kernels::parse_codec("fp32").value(), 2000.0F).must_measure());
  EXPECT_EQ(Fitting(plan, int8, 2000.0F).fit(), (store::Fit{1024, 1}));
  plan.update_norm_max = 5;
  EXPECT_TRUE(Fitting(plan, int8, 1.0F).must_measure());
}

// growth_max() bounds every codec.
TEST(Fitting, NoCodecGrowsBeyondWhatIsUnmeasured) {
  for (const std::string& text : codecs()) {
    const kernels::CodecSpec spec = kernels::parse_codec(text).value();
    const auto codec = kernels::make_codec(spec).value();
    for (const std::size_t count : {1, 30, 149, 199, 256, 2048, 5000}) {
      const std::vector<float> ones(count, 1.0F);
      const auto encoded = kernels::test_values::encode(*codec, ones, 1 << 14);
      const auto report = codec->screen_chunk(encoded.chunks[0].span(), count, 0);
      ASSERT_TRUE(report.ok()) << text;
      round::Plan plan;
      plan.value_abs_max = static_cast<double>(report->max_abs) * 0.999;
      EXPECT_TRUE(Fitting(plan, spec, 1.0F).must_measure() || report->max_abs <= 1.0F) << text << " of " << count;
    }
  }
}

TEST(Fitting, EndsWhereNothingHelps) {
  round::Plan plan;
  plan.value_abs_max = 0.5;
  Fitting fitting(plan, kernels::parse_codec("sign:mode=vote").value(), 0.4F);
  Measure ones;
  ones.add({1.0F, 10});
  int tries = 0;
  while (fitting.tighten(ones).ok()) ASSERT_LT(++tries, 100);
  EXPECT_EQ(fitting.tighten(ones).error().code, Code::kDataLoss);
}

}  // namespace
}  // namespace fluvial::edge
