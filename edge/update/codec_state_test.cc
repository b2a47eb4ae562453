// A codec with a state of its own, dgc: the moment goes with the residual, whatever becomes of an update and whenever
// the agent dies.
#include <algorithm>
#include <cmath>
#include <limits>

#include "edge/update/resolve.h"
#include "edge/update/test_support.h"
#include "kernels/reference/dgc.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

using round::Outcome;

constexpr const char* kCodec = "dgc:ratio=0.05,momentum=0.5";
constexpr double kMomentum = 0.5;

// What a site carries, by the reference's loop.
struct Expected {
  std::vector<float> moment = std::vector<float>(kValues);
  std::vector<float> residual = std::vector<float>(kValues);

  // p of the training of `round`; the moment moves on.
  std::vector<float> train(std::uint64_t round) {
    std::vector<float> p(kValues);
    kernels::pseudo_gradient(draw(round), draw(round + 100), {}, p);
    kernels::reference::dgc_moment({kMomentum, 0}, moment, p);
    for (std::size_t i = 0; i < kValues; ++i) p[i] = residual[i] + p[i];
    return p;
  }
  void late(const std::vector<float>& p) { residual = p; }
  void counted(const std::vector<float>& p, const std::vector<float>& sent) {
    for (std::size_t i = 0; i < kValues; ++i) {
      residual[i] = p[i] - sent[i];
      if (sent[i] != 0) moment[i] = 0;
    }
  }
};

class CodecStateTest : public StoreTest {
 protected:
  Result<store::PendingUpdate> encode(std::uint64_t round, const std::string& codec = kCodec) {
    return encode_update(training(round, codec).job(), *store_, serial_);
  }
  void fold(std::uint64_t round) {
    const auto folded = fold_update(training(round, kCodec).job(), *store_, serial_);
    EXPECT_TRUE(folded.ok()) << folded.error().to_string();
  }
};

TEST_F(CodecStateTest, CountedMasksLateKeepsRefusedGoesBack) {
  Expected site;
  std::uint64_t round = 0;
  for (const Outcome outcome : {Outcome::kCounted, Outcome::kLate, Outcome::kCounted, Outcome::kRefused, Outcome::kLate,
                                Outcome::kCounted, Outcome::kCounted}) {
    SCOPED_TRACE(++round);
    const Expected before = site;
    const std::vector<float> p = site.train(round);
    const store::PendingUpdate update = encode(round).value();
    EXPECT_EQ(p_of(update), p);
    resolve(round, outcome);
    if (outcome == Outcome::kCounted) site.counted(p, decoded(update));
    if (outcome == Outcome::kLate) site.late(p);
    if (outcome == Outcome::kRefused) site = before;
    reopen();  // nothing of it was in memory alone
  }
  EXPECT_FALSE(std::ranges::all_of(site.moment, [](float value) { return value == 0; }));
}

// Deep gradient compression by the book, in fp64, which the fp32 of a site follows.
TEST_F(CodecStateTest, WhatIsSentIsWhatThePaperSends) {
  kernels::reference::Dgc book{.momentum = kMomentum, .clip = 3, .u = {}, .v = {}};
  for (std::uint64_t round = 1; round <= 6; ++round) {
    std::vector<float> update(kValues);
    kernels::pseudo_gradient(draw(round), draw(round + 100), {}, update);
    const std::vector<double> gradient(update.begin(), update.end());
    const std::vector<double> sent = book.round(gradient, 50);
    const std::vector<float> ours = decoded(encode(round, std::string(kCodec) + ",clip=3").value());
    for (std::size_t i = 0; i < kValues; ++i)
      EXPECT_NEAR(static_cast<double>(ours[i]), sent[i], 1e-5) << round << ' ' << i;
    resolve(round, Outcome::kCounted);
  }
}

TEST_F(CodecStateTest, WhatIsTooLateToBeSentMovesTheMomentOn) {
  Expected site;
  site.late(site.train(1));
  fold(1);
  reopen();
  EXPECT_EQ(p_of(encode(2).value()), site.train(2));
}

TEST_F(CodecStateTest, WithMomentumZeroItIsTopk) {
  store::MemoryFileSystem others;
  const std::unique_ptr<store::SiteStore> other = open_store(others);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const store::PendingUpdate of_dgc = encode(round, "dgc:ratio=0.05,momentum=0").value();
    const std::vector<float> sent = decoded(of_dgc);
    resolve(round, Outcome::kCounted);
    const auto of_topk = encode_update(training(round, "topk:ratio=0.05").job(), *other, serial_);
    EXPECT_EQ(sent, decoded(*of_topk));
    ASSERT_TRUE(resolve_pending(*other, kRun, RoundId(round), Outcome::kCounted).ok());
  }
}

TEST_F(CodecStateTest, AResidualThatIsDroppedTakesTheMomentAlong) {
  Training first = training(1, kCodec);
  first.plan.residual_norm_max = 0.001;
  ASSERT_TRUE(encode_update(first.job(), *store_, serial_).ok());
  resolve(1, Outcome::kLate);
  EXPECT_TRUE(store_->residual(kRun)->zero);
  EXPECT_EQ(p_of(encode(2).value()), Expected().train(2));
}

TEST_F(CodecStateTest, FollowsARunThatIsContinuedWithTheSameCodec) {
  constexpr RunId kNext{kRun.value() + 1};
  Expected site;
  const std::vector<float> p = site.train(1);
  const store::PendingUpdate update = encode(1).value();
  resolve(1, Outcome::kCounted);
  site.counted(p, decoded(update));
  ASSERT_TRUE(store_->begin_run(kNext, std::vector{kRun}, kValues).ok());
  Training other = training(2, "dgc:ratio=0.01,momentum=0.5,zstd=1");  // of another part, and compressed
  other.plan.chunk_values = kChunk / 2;
  UpdateJob job = other.job();
  job.run = kNext;
  EXPECT_EQ(p_of(encode_update(job, *store_, serial_).value()), site.train(2));
}

TEST_F(CodecStateTest, IsNotTheStateOfACodecOfAnotherKind) {
  Expected site;
  const std::vector<float> p = site.train(1);
  ASSERT_TRUE(encode(1).ok());
  resolve(1, Outcome::kLate);
  site.late(p);
  site.moment.assign(kValues, 0.0F);
  const store::PendingUpdate of_topk = encode(2, "topk:ratio=0.1").value();
  std::vector<float> without(kValues);
  kernels::pseudo_gradient(draw(2), draw(102), p, without);
  EXPECT_EQ(p_of(of_topk), without) << "the residual is spent, and no moment is added";
  resolve(2, Outcome::kLate);
  site.late(p_of(of_topk));
  EXPECT_EQ(p_of(encode(3).value()), site.train(3)) << "from zero on";
}

// What the parent would refuse because of what was carried over is sent in part; what is sent is masked.
TEST_F(CodecStateTest, WhatACarriedOverMomentMakesTooLongIsFitted) {
  Expected site;
  site.late(site.train(1));
  fold(1);
  Training second = training(2, kCodec);
  second.plan.update_norm_max = 1;
  std::vector<float> local = draw(2);
  for (std::size_t i = 0; i < kValues; ++i) local[i] -= 0.01F;  // its own is short
  second = training(2, kCodec, draw(2), local);
  second.plan.update_norm_max = 1;
  const auto update = encode_update(second.job(), *store_, serial_);
  ASSERT_TRUE(update.ok()) << update.error().to_string();
  EXPECT_FALSE(update->info().start.fit.whole());
  double squares = 0;
  for (const float value : decoded(*update)) squares += static_cast<double>(value) * static_cast<double>(value);
  EXPECT_LE(std::sqrt(squares), 1.0);
}

// The parent would refuse the training's own update as it is, and not as the codec clips it: so it is no reason to send
// what the parent refuses.
TEST_F(CodecStateTest, WhatIsClippedIsNotTooLongByItself) {
  const std::string codec = std::string(kCodec) + ",clip=1";
  for (std::uint64_t round = 1; round <= 3; ++round) {
    ASSERT_TRUE(fold_update(training(round, codec).job(), *store_, serial_).ok());
  }
  Training next = training(4, codec);
  next.plan.update_norm_max = 0.5;
  const auto update = encode_update(next.job(), *store_, serial_);
  ASSERT_TRUE(update.ok()) << update.error().to_string();
  EXPECT_TRUE(accepted(*update, next.plan).ok()) << accepted(*update, next.plan).error().message;
}

TEST_F(CodecStateTest, OneThatIsDamagedBeginsAnew) {
  ASSERT_TRUE(encode(1).ok());
  resolve(1, Outcome::kLate);
  const std::vector<float> residual = Expected().train(1);
  const std::vector<std::string> names = files_.list("/site/tensors").value();
  for (const std::string& name : names) {
    auto file = files_.open("/site/tensors/" + name, store::OpenMode::kReadWrite).value();
    const std::vector<float> bad(kValues, std::numeric_limits<float>::quiet_NaN());
    if (file->size().value() < 2 * kValues * sizeof(float)) continue;
    ASSERT_TRUE(file->write_at(kValues * sizeof(float), std::as_bytes(std::span(bad))).ok());
  }
  std::atomic<std::uint64_t> lost = 0;
  const Training second = training(2, kCodec);
  UpdateJob job = second.job();
  job.residual_lost = &lost;
  Expected fresh;
  fresh.late(residual);
  EXPECT_EQ(p_of(encode_update(job, *store_, serial_).value()), fresh.train(2));
  EXPECT_EQ(lost, kValues);
}

// A disk that fails to read is no damage: nothing is taken for zero, and the next attempt makes the same.
TEST_F(CodecStateTest, IsNotForgottenBecauseTheDiskFails) {
  Expected site;
  const std::vector<float> p = site.train(1);
  const store::PendingUpdate first = encode(1).value();
  resolve(1, Outcome::kCounted);
  site.counted(p, decoded(first));
  const std::vector<float> expected = site.train(2);
  store_.reset();
  std::uint64_t failures = 0;
  for (std::uint64_t at = 0;; ++at) {
    const std::unique_ptr<store::MemoryFileSystem> files = files_.after_power_cut();
    const std::unique_ptr<store::SiteStore> store = open_store(*files);
    const std::uint64_t begun = files->operations();
    files->fail_at(at, store::Fault::kIo);
    const auto update = encode_update(training(2, kCodec).job(), *store, serial_);
    const bool beyond = begun + at >= files->operations();
    files->clear_fault();
    if (update.ok()) EXPECT_EQ(p_of(*update), expected) << at;
    failures += update.ok() ? 0 : 1;
    if (beyond) break;
  }
  EXPECT_GT(failures, 10u);
}

// Killed at any operation of its disk, and done again from where the store says it was.
TEST_F(CodecStateTest, SurvivesADeathAtAnyMoment) {
  store_.reset();
  const auto live = [this](store::MemoryFileSystem& files) -> Result<std::vector<float>> {
    FLUVIAL_ASSIGN(const auto store, open_site_store(files, "/site"));
    for (std::uint64_t round = 1; round <= 4; ++round) {
      const Outcome outcome =
          std::array{Outcome::kCounted, Outcome::kLate, Outcome::kRefused, Outcome::kCounted}[round - 1];
      FLUVIAL_ASSIGN(const auto last, store->last_outcome(kRun));
      if (last && last->round >= RoundId(round)) continue;
      FLUVIAL_ASSIGN(const auto pending, store->pending(kRun));
      if (!pending) FLUVIAL_TRY(encode_update(training(round, kCodec).job(), *store, serial_));
      FLUVIAL_TRY(resolve_pending(*store, kRun, RoundId(round), outcome));
    }
    FLUVIAL_ASSIGN(const auto last, store->last_outcome(kRun));
    if (last->round < RoundId(5)) FLUVIAL_TRY(fold_update(training(5, kCodec).job(), *store, serial_));
    FLUVIAL_ASSIGN(auto pending, store->pending(kRun));
    if (!pending) {
      FLUVIAL_ASSIGN(pending, encode_update(training(6, kCodec).job(), *store, serial_));
    }
    std::vector<float> p(kValues);
    FLUVIAL_TRY(pending->read_p(0, p));
    return p;
  };
  store::MemoryFileSystem undisturbed;
  const std::vector<float> expected = live(undisturbed).value();
  for (std::uint64_t crash_at = 0;; ++crash_at) {
    ASSERT_LT(crash_at, 2'000u);
    store::MemoryFileSystem files;
    files.fail_at(crash_at, store::Fault::kCrash);
    (void)live(files).ok();
    const bool finished = !files.crashed();
    files.restart(store::Unsynced::kTorn, crash_at);
    const auto after = live(files);
    ASSERT_TRUE(after.ok()) << crash_at << ": " << after.error().to_string();
    ASSERT_EQ(*after, expected) << crash_at;
    if (finished) break;
  }
}

}  // namespace
}  // namespace fluvial::edge
