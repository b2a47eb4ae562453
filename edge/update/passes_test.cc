// What a site sends in each pass, and what it leaves: against kernels/reference in fp64, from p as the store has it.
#include "edge/update/passes.h"

#include <gtest/gtest.h>

#include "core/aggregate/pass_mean.h"
#include "edge/update/fit.h"
#include "edge/update/resolve.h"
#include "edge/update/test_support.h"
#include "kernels/reference/powersgd.h"
#include "kernels/stream_key.h"

namespace fluvial::edge {
namespace {

namespace reference = kernels::reference;

constexpr std::size_t kSide = 30, kRank = 2, kCut = kSide * kSide;

// fp32, as it travels.
std::vector<float> sent(const store::PendingUpdate& update) {
  const kernels::ChunkLayout layout{update.info().start.sent_values, update.info().start.chunk_values};
  std::vector<float> values(layout.value_count);
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    const std::span<float> chunk = layout.of(std::span(values), i);
    const SharedBytes bytes = update.chunk(i).value();
    EXPECT_EQ(bytes.bytes.size(), chunk.size() * sizeof(float));
    std::ranges::copy(bytes.bytes, std::as_writable_bytes(chunk).begin());
  }
  return values;
}

double euclidean_norm(std::span<const float> values) { return std::sqrt(square_sum(values)); }

class UpdatePasses : public testing::Test {
 protected:
  UpdatePasses() : store_(open_store(files_)) {}
  void reopen() {
    store_.reset();
    files_.restart(store::Unsynced::kLost);
    store_ = open_store(files_);
  }
  static Training trained(std::uint64_t round) { return training(round, "powersgd:rank=2"); }
  store::PendingUpdate first(const Training& training) {
    auto made = encode_first_pass(training.job(), {}, *store_, serial_);
    EXPECT_TRUE(made.ok()) << made.error().to_string();
    return std::move(*made);
  }
  // `mean` as it came stays while the job is used.
  PassJob second_of(const Training& training, std::span<const float> mean, std::uint32_t attempt = 1) {
    mean_ = aggregate::begin_mean({Epoch(1), AttemptId(attempt), 0}, mean.size());
    std::ranges::copy(mean, aggregate::mean_values(mean_).begin());
    return {
        kRun, training.round,     training.plan, {1, sha256(mean_.span())}, mean_.span(), Epoch(1), AttemptId(attempt),
        {},   DigestKind::kStream};
  }
  store::PendingUpdate second(const Training& training, std::span<const float> mean, std::uint32_t attempt = 1) {
    auto made = encode_pass(second_of(training, mean, attempt), *store_, serial_);
    EXPECT_TRUE(made.ok()) << made.error().to_string();
    return std::move(*made);
  }
  std::vector<float> residual() {
    std::vector<float> values(kValues);
    EXPECT_TRUE(store_->read_residual(kRun, 0, values).ok());
    return values;
  }
  static reference::Matrix matrix_of(std::span<const float> p) {
    return {kSide, kSide, std::vector<double>(p.begin(), p.begin() + kCut)};
  }

  store::MemoryFileSystem files_;
  std::unique_ptr<store::SiteStore> store_;
  Buffer mean_;
  Serial serial_;
};

TEST_F(UpdatePasses, TheFirstSendsTheProductWithTheWarmStart) {
  const Training training = trained(1);
  const store::PendingUpdate made = first(training);
  EXPECT_EQ(made.info().start.passes, 2u);
  const std::vector<float> values = sent(made);
  ASSERT_EQ(values.size(), kSide * kRank);
  const std::uint64_t run = kernels::stream_key(training.plan.seed, 1, "").run;
  const std::vector<double> q = reference::drawn_factors(run, 0, kSide, kRank);
  const std::vector<double> expected = reference::times(matrix_of(p_of(made)), q, kRank);
  for (std::size_t i = 0; i < values.size(); ++i) ASSERT_NEAR(values[i], expected[i], 2e-6) << i;
}

TEST_F(UpdatePasses, TheSecondSendsTheProductWithTheBasisAndWhatIsNotCut) {
  const Training training = trained(1);
  const std::vector<float> p = p_of(first(training));
  const std::vector<float> mean = draw(50, kSide * kRank);
  const store::PendingUpdate made = second(training, mean);
  const std::vector<float> values = sent(made);
  ASSERT_EQ(values.size(), kSide * kRank + 100);
  const std::vector<double> basis = reference::orthonormal(std::vector<double>(mean.begin(), mean.end()), kSide, kRank);
  const std::vector<double> q = reference::transposed_times(matrix_of(p), basis, kRank);
  for (std::size_t i = 0; i < q.size(); ++i) ASSERT_NEAR(values[i], q[i], 2e-6) << i;
  for (std::size_t i = 0; i < 100; ++i) ASSERT_EQ(values[q.size() + i], p[kCut + i]) << i;

  // What counts and what is left are what there was.
  ASSERT_TRUE(resolve_pending(*store_, kRun, RoundId(1), round::Outcome::kCounted).ok());
  const std::vector<float> left = residual();
  const reference::Matrix counted = reference::outer(basis, q, kSide, kSide, kRank);
  for (std::size_t i = 0; i < kCut; ++i) {
    ASSERT_NEAR(static_cast<double>(left[i]) + counted.values[i], p[i], 4e-6) << i;
  }
  for (std::size_t i = kCut; i < kValues; ++i) ASSERT_EQ(left[i], 0.0F) << i;
  EXPECT_NEAR(*made.info().left_norm, euclidean_norm(left), 1e-6);
}

TEST_F(UpdatePasses, WhatWasMadeOfAMeanIsThereAfterARestartAndNotMadeAgain) {
  const Training training = trained(1);
  const Digest digest = first(training).info().digest;
  const std::vector<float> mean = draw(50, kSide * kRank);
  const store::PendingUpdate once = second(training, mean);
  reopen();
  EXPECT_EQ(store_->pending(kRun).value()->info().digest, digest);
  EXPECT_EQ(encode_pass(second_of(training, mean), *store_, serial_).error().code, Code::kAlreadyExists);
  const auto kept = store_->pending_pass(kRun);  // without the model, or anything of the training
  ASSERT_TRUE(kept.ok() && kept->has_value());
  EXPECT_EQ((*kept)->info().digest, once.info().digest);
  EXPECT_EQ((*kept)->info().submission, once.info().submission);
  EXPECT_NE(second(training, draw(51, kSide * kRank), 2).info().digest, once.info().digest);
  PassJob other_attempts = second_of(training, mean, 3);
  other_attempts.attempt = AttemptId(4);
  EXPECT_EQ(encode_pass(other_attempts, *store_, serial_).error().code, Code::kDataLoss);
  const auto older = encode_pass(second_of(training, mean), *store_, serial_);
  ASSERT_FALSE(older.ok());
  EXPECT_EQ(older.error().code, Code::kStale) << "an opening that is played again";
}

TEST_F(UpdatePasses, WhoDropsOutKeepsAllOfIt) {
  const Training training = trained(1);
  const std::vector<float> p = p_of(first(training));
  ASSERT_TRUE(resolve_pending(*store_, kRun, RoundId(1), round::Outcome::kLate).ok());
  EXPECT_EQ(residual(), p);
  const std::vector<float> next = p_of(first(trained(2)));
  store::MemoryFileSystem other_files;
  const auto other = open_store(other_files);
  const Training alone = trained(2);
  const std::vector<float> own = p_of(*encode_first_pass(alone.job(), {}, *other, serial_));
  for (std::size_t i = 0; i < kValues; ++i) ASSERT_NEAR(next[i], own[i] + p[i], 1e-6) << i;
}

// The residual, or a row of many values, may bring a factor beyond what the parent takes.
TEST_F(UpdatePasses, WhatIsSentIsWithinTheBoundsAndTheRestIsLeft) {
  for (const bool by_norm : {false, true}) {
    store::MemoryFileSystem files;
    const auto store = open_store(files);
    Training training = trained(1);
    training.plan.value_abs_max = by_norm ? 100 : 1.25;
    training.plan.update_norm_max = by_norm ? 2 : 0;
    const auto made = encode_first_pass(training.job(), {}, *store, serial_);
    ASSERT_TRUE(made.ok()) << made.error().to_string();
    const std::vector<float> p = p_of(*made);
    ASSERT_GT(euclidean_norm(p), 8) << "the bounds are felt";
    const std::vector<float> mean = sent(*made);
    const auto last = encode_pass(second_of(training, mean), *store, serial_);
    ASSERT_TRUE(last.ok()) << last.error().to_string();
    for (const store::PendingUpdate* const pass : {&*made, &*last}) {
      const std::vector<float> values = sent(*pass);
      for (const float value : values) EXPECT_LE(std::abs(value), training.plan.value_abs_max);
      if (by_norm) EXPECT_LE(euclidean_norm(values), training.plan.update_norm_max);
    }
    const std::vector<float> values = sent(*last);
    if (by_norm)
      EXPECT_GT(euclidean_norm(values), 0.999 * training.plan.update_norm_max) << "no less than there is room for";
    const std::vector<double> basis =
        reference::orthonormal(std::vector<double>(mean.begin(), mean.end()), kSide, kRank);
    const reference::Matrix counted = reference::outer(
        basis, std::vector<double>(values.begin(), values.begin() + kSide * kRank), kSide, kSide, kRank);
    ASSERT_TRUE(resolve_pending(*store, kRun, RoundId(1), round::Outcome::kCounted).ok());
    std::vector<float> left(kValues);
    ASSERT_TRUE(store->read_residual(kRun, 0, left).ok());
    for (std::size_t i = 0; i < kCut; ++i) ASSERT_NEAR(left[i] + counted.values[i], p[i], 1e-5) << i;
    for (std::size_t i = kCut; i < kValues; ++i) {
      ASSERT_NEAR(left[i] + values[kSide * kRank + i - kCut], p[i], 1e-6) << i;
    }
  }
}

TEST_F(UpdatePasses, WhatEachWasMultipliedByIsTold) {
  for (const bool fits : {true, false}) {
    store::MemoryFileSystem files;
    const auto store = open_store(files);
    Training training = trained(1);
    if (!fits) training.plan.update_norm_max = 0.5;
    float factor = 0;
    UpdateJob job = training.job();
    job.pass_factor = &factor;
    const store::PendingUpdate made = encode_first_pass(job, {}, *store, serial_).value();
    EXPECT_EQ(factor == 1, fits) << factor;
    PassJob next = second_of(training, sent(made));
    next.pass_factor = &factor;
    const store::PendingUpdate last = encode_pass(next, *store, serial_).value();
    EXPECT_EQ(factor == 1, fits) << factor;
    EXPECT_FLOAT_EQ(sent(last).back(), factor * p_of(made).back()) << "not cut, so it travels as it is";
  }
}

TEST_F(UpdatePasses, IntegersTravelInEach) {
  Training training = trained(1);
  training.schema = round::Schema::make({{"w", round::DType::kF32, {kSide, kSide}},
                                         {"b", round::DType::kF32, {100}},
                                         {"seen", round::DType::kI64, {1}}})
                        .value();
  const auto with_count = [](const std::vector<float>& values, std::int64_t count) {
    Buffer bytes(values.size() * sizeof(float) + sizeof(std::int64_t));
    std::ranges::copy(std::as_bytes(std::span(values)), bytes.data());
    store_le(bytes.data() + values.size() * sizeof(float), static_cast<std::uint64_t>(count));
    return bytes;
  };
  training.base = with_count(draw(1), 3);
  training.parts.clear();
  training.parts.emplace_back(with_count(draw(101), 7), 20);
  std::vector<std::int64_t> integers(1);
  ASSERT_TRUE(first(training).read_integers(integers).ok());
  EXPECT_EQ(integers[0], 7);
  integers[0] = 0;
  ASSERT_TRUE(second(training, draw(50, kSide * kRank)).read_integers(integers).ok());
  EXPECT_EQ(integers[0], 7);
}

TEST_F(UpdatePasses, WhatDoesNotFitIsRefusedAndNothingIsDurable) {
  const Training training = trained(1);
  EXPECT_EQ(encode_pass(second_of(training, draw(50, kSide * kRank)), *store_, serial_).error().code,
            Code::kFailedPrecondition)
      << "there is no submission";
  const Buffer short_state(8);
  EXPECT_EQ(encode_first_pass(training.job(), short_state.span(), *store_, serial_).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(encode_first_pass(fluvial::edge::training(1, "int8").job(), {}, *store_, serial_).error().code,
            Code::kFailedPrecondition);
  first(training);
  EXPECT_EQ(encode_pass(second_of(training, draw(50, 7)), *store_, serial_).error().code, Code::kInvalidArgument);
  EXPECT_FALSE(store_->pending_pass(kRun).value().has_value());
}

}  // namespace
}  // namespace fluvial::edge
