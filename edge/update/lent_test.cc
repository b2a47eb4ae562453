// onebit_adam at a site: what it is lent of the momentum is on record beside its residual, and never counts twice,
// whatever becomes of an update (docs/design/onebit-adam.md).
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <utility>

#include "edge/update/test_support.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

using round::Outcome;

constexpr const char* kOnebit = "onebit_adam:freeze=2,beta1=0.75,block=128";
constexpr float kFactor = 3;  // beta1 / (1 - beta1)

// What a site carries, by a loop of the test's own.
struct ExpectedLoan {
  std::vector<float> residual = std::vector<float>(kValues);
  std::vector<float> lent = std::vector<float>(kValues);

  // p of the training of `round`, lent this momentum; empty: none.
  std::vector<float> train(std::uint64_t round, const std::vector<float>& momentum) {
    std::vector<float> own(kValues), p(kValues);
    kernels::pseudo_gradient(draw(round), draw(round + 100), {}, own);
    for (std::size_t i = 0; i < kValues; ++i) {
      const float now = momentum.empty() ? 0 : kFactor * momentum[i];
      p[i] = own[i] + ((residual[i] - lent[i]) + now);
      lent[i] = now;
    }
    return p;
  }
  void late(const std::vector<float>& p) { residual = p; }
  void counted(const std::vector<float>& p, const std::vector<float>& sent) {
    for (std::size_t i = 0; i < kValues; ++i) residual[i] = p[i] - sent[i];
    lent.assign(kValues, 0.0F);
  }
};

class LentTest : public StoreTest {
 protected:
  // Lent the momentum of its round, which is then in momentum_; empty: none.
  Result<store::PendingUpdate> encode(Training&& training) {
    const std::uint64_t round = training.round.value();
    const std::vector<float> drawn = draw(1'000 + round);
    training.handed = handed_down(training.plan.codec, round, drawn);
    momentum_.resize(training.handed.size() > 0 ? kValues : 0);
    const auto sign = kernels::make_codec(*kernels::parse_codec("sign:block=128")).value();
    const kernels::ChunkLayout layout{momentum_.size(), kChunk};
    const kernels::MomentumLayout as_it_came(layout, *sign);
    for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
      const ByteSpan chunk = as_it_came.chunk(ByteSpan(training.handed.span()), i).first(as_it_came.encoded(i));
      EXPECT_TRUE(sign->decode_chunk(chunk, layout.of(std::span(momentum_), i)).ok());
    }
    return encode_update(training.job(), *store_, serial_);
  }

  std::vector<float> momentum_;
};

TEST_F(LentTest, CountedUsesItUpLateGivesItBackRefusedLeavesItAsItWas) {
  ExpectedLoan site;
  std::uint64_t round = 0;
  for (const Outcome outcome :
       {Outcome::kCounted, Outcome::kLate, Outcome::kCounted, Outcome::kLate, Outcome::kLate, Outcome::kRefused,
        Outcome::kCounted, Outcome::kRefused, Outcome::kLate, Outcome::kCounted}) {
    SCOPED_TRACE(++round);
    const store::PendingUpdate update = encode(training(round, kOnebit)).value();
    const ExpectedLoan before = site;
    const std::vector<float> p = site.train(round, momentum_);
    EXPECT_EQ(p_of(update), p);
    EXPECT_EQ(update.read_chunk(0)->size(), round <= 2 ? kChunk * sizeof(float) : 8 + 2 * 4 + kChunk / 8);
    resolve(round, outcome);
    if (outcome == Outcome::kCounted) site.counted(p, decoded(update));
    if (outcome == Outcome::kLate) site.late(p);
    if (outcome == Outcome::kRefused) site = before;
    reopen();  // nothing of it was in memory alone
  }
}

// An update that no round will take is lent nothing: it is in the residual as it is.
TEST_F(LentTest, WhatIsTooLateToBeSentIsLentNothing) {
  ExpectedLoan site;
  const store::PendingUpdate third = encode(training(3, kOnebit)).value();
  site.late(site.train(3, momentum_));
  resolve(3, Outcome::kLate);
  Training fourth = training(4, kOnebit);
  fourth.handed = handed_down(kOnebit, 4, draw(1'004));
  ASSERT_TRUE(fold_update(fourth.job(), *store_, serial_).ok());
  const std::vector<float> p = site.train(4, {});
  std::vector<float> residual(kValues);
  ASSERT_TRUE(store_->read_residual(kRun, 0, residual).ok());
  EXPECT_EQ(residual, p);
  site.late(p);
  reopen();
  const store::PendingUpdate fifth = encode(training(5, kOnebit)).value();
  EXPECT_EQ(p_of(fifth), site.train(5, momentum_));
}

TEST_F(LentTest, WithoutTheMomentumOfItsRoundNothingIsEncoded) {
  Training third = training(3, kOnebit);
  third.handed = {};
  const auto without = encode_update(third.job(), *store_, serial_);
  ASSERT_FALSE(without.ok());
  EXPECT_THAT(without.error().message, testing::HasSubstr("round 3 begins with a momentum of 0 bytes, expected "));
  EXPECT_FALSE(*store_->pending(kRun)) << "nothing is durable";
  Training second = training(2, kOnebit);
  second.handed = handed_down(kOnebit, 3, draw(1));
  EXPECT_FALSE(encode_update(second.job(), *store_, serial_).ok()) << "in the warm-up there is none";
}

// Nobody can tell then what of the residual is the site's own: all of it is dropped, and counted.
class DamagedTest : public LentTest, public testing::WithParamInterface<std::pair<std::size_t, std::size_t>> {};

TEST_P(DamagedTest, AResidualAndItsRecordAreDroppedTogether) {
  const auto [first, count] = GetParam();  // of the residual's values, and those of the record behind them; 0: cut off
  ASSERT_TRUE(encode(training(3, kOnebit)).ok());
  resolve(3, Outcome::kLate);
  const std::vector<std::string> names = files_.list("/site/tensors").value();
  for (const std::string& name : names) {
    auto file = files_.open("/site/tensors/" + name, store::OpenMode::kReadWrite).value();
    if (file->size().value() < 2 * kValues * sizeof(float)) continue;
    if (count == 0) ASSERT_TRUE(file->truncate(first * sizeof(float)).ok());
    const std::vector<float> bad(count, std::numeric_limits<float>::quiet_NaN());
    ASSERT_TRUE(file->write_at(first * sizeof(float), std::as_bytes(std::span(bad))).ok());
  }
  reopen();
  std::atomic<std::uint64_t> lost = 0;
  Training fourth = training(4, kOnebit);
  const std::vector<float> none(kValues);
  UpdateJob job = fourth.job();
  job.residual_lost = &lost;
  EXPECT_EQ(p_of(encode_update(job, *store_, serial_).value()), ExpectedLoan().train(4, none));
  EXPECT_EQ(lost, kValues);
}

INSTANTIATE_TEST_SUITE_P(Where, DamagedTest,
                         testing::Values(std::pair(std::size_t{kValues}, std::size_t{kValues}),  // the record
                                         std::pair(std::size_t{kValues}, std::size_t{0}),
                                         std::pair(std::size_t{7}, std::size_t{3})));  // a few values

// The training's own update is too long: the parent refuses it by name, as it does with any codec.
TEST_F(LentTest, AnUpdateThatIsTooLongByItselfIsNotFitted) {
  Training third = training(3, kOnebit);
  third.plan.update_norm_max = 0.5;
  const round::Plan plan = third.plan;
  const auto update = encode(std::move(third));
  ASSERT_TRUE(update.ok()) << update.error().to_string();
  EXPECT_TRUE(update->info().start.fit.whole());
  EXPECT_FALSE(accepted(*update, plan).ok());
}

// What the parent would refuse because of what the site was lent is sent in part: the training answers for its own
// update alone.
TEST_F(LentTest, WhatTheMomentumMakesTooLongIsFitted) {
  std::vector<float> local = draw(3);
  for (float& value : local) value -= 0.001F;
  Training third = training(3, kOnebit, draw(3), local);
  third.plan.update_norm_max = 0.5;
  const round::Plan plan = third.plan;
  const auto update = encode(std::move(third));
  ASSERT_TRUE(update.ok()) << update.error().to_string();
  EXPECT_TRUE(accepted(*update, plan).ok()) << accepted(*update, plan).error().message;
}

}  // namespace
}  // namespace fluvial::edge
