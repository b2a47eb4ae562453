#include "edge/service/encode.h"

#include <boost/asio/strand.hpp>
#include <cmath>
#include <limits>

#include "edge/service/resolve.h"
#include "edge/service/test_support.h"
#include "kernels/codec.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

constexpr RunId kRun{3};
constexpr std::size_t kValues = 1000;
constexpr std::size_t kChunk = 256;

round::Schema schema() {
  return round::Schema::make({{"w", round::DType::kF32, {30, 30}}, {"b", round::DType::kF32, {100}}}).value();
}

EncodeJob job_of(std::uint64_t round, std::string codec, std::vector<float> base, std::vector<float> local) {
  EncodeJob job;
  job.run = kRun;
  job.round = RoundId(round);
  job.site = SiteId(7);
  job.plan.codec = std::move(codec);
  job.plan.chunk_values = kChunk;
  job.trained.base = held_model(kRun, round - 1, schema(), std::as_bytes(std::span(base)));
  job.trained.parts = {{shared(local), 20}};
  job.trained.weight = 20;
  job.trained.metrics = {{"loss", 0.5}};
  return job;
}
EncodeJob job_of(std::uint64_t round, std::string codec) {
  return job_of(round, std::move(codec), draw(round, kValues), draw(round + 100, kValues));
}

// What a parent makes of the chunks.
std::vector<float> decoded(const store::PendingUpdate& update) {
  const auto codec = kernels::make_codec(kernels::parse_codec(update.info().start.codec).value()).value();
  const kernels::ChunkLayout layout{kValues, kChunk};
  std::vector<float> values(kValues);
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    EXPECT_TRUE(codec->decode_chunk(update.read_chunk(i)->span(), layout.of(std::span(values), i)).ok());
  }
  return values;
}
std::vector<float> p_of(const store::PendingUpdate& update) {
  std::vector<float> values(kValues);
  EXPECT_TRUE(update.read_p(0, values).ok());
  return values;
}

class EncodeTest : public testing::Test {
 protected:
  Result<store::PendingUpdate> encode(EncodeJob job) {
    return runtime_.run(encode_update(&runtime_.get(), store_.get(), std::move(job)));
  }
  std::vector<float> residual() {
    std::vector<float> values(kValues);
    EXPECT_TRUE(store_->read_residual(kRun, 0, values).ok());
    return values;
  }
  Carried resolve(std::uint64_t round, store::Outcome outcome, ResidualBounds bounds = {}) {
    const Result<Carried> carried = resolve_pending(*store_, kRun, RoundId(round), outcome, bounds);
    EXPECT_TRUE(carried.ok()) << carried.error().to_string();
    return *carried;
  }

  TestRuntime runtime_;
  std::unique_ptr<store::SiteStore> store_ = runtime_.open_store();
};

TEST_F(EncodeTest, WhatWasSentAndTheResidualAreTheUpdateBitForBit) {
  std::vector<float> before(kValues, 0.0F);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const EncodeJob job = job_of(round, "topk:ratio=0.05");
    std::vector<float> p(kValues);
    kernels::pseudo_gradient(draw(round, kValues), draw(round + 100, kValues), before, p);
    const store::PendingUpdate update = encode(job).value();
    EXPECT_EQ(p_of(update), p);
    EXPECT_EQ(update.info().start.codec, "topk:ratio=0.05") << "as the plan writes it";
    EXPECT_EQ(update.info().start.weight, 20u);
    resolve(round, store::Outcome::kCounted);
    const std::vector<float> sent = decoded(update);
    before = residual();
    std::size_t sent_values = 0;
    for (std::size_t i = 0; i < kValues; ++i) {
      EXPECT_EQ(sent[i] + before[i], p[i]) << i;
      sent_values += sent[i] != 0 ? 1 : 0;
    }
    EXPECT_EQ(sent_values, 50u);
  }
}

TEST_F(EncodeTest, RefusedKeepsTheResidualAndLateCarriesAll) {
  ASSERT_TRUE(encode(job_of(1, "int8")).ok());
  resolve(1, store::Outcome::kCounted);
  const std::vector<float> first = residual();
  const store::PendingUpdate refused = encode(job_of(2, "int8")).value();
  resolve(2, store::Outcome::kRefused);
  EXPECT_EQ(residual(), first);
  const store::PendingUpdate late = encode(job_of(3, "int8")).value();
  resolve(3, store::Outcome::kLate);
  EXPECT_EQ(residual(), p_of(late));
  EXPECT_NE(residual(), p_of(refused));
}

TEST_F(EncodeTest, Fp32LeavesNothing) {
  const store::PendingUpdate update = encode(job_of(1, "fp32")).value();
  EXPECT_TRUE(update.info().start.lossless);
  EXPECT_EQ(decoded(update), p_of(update));
  EXPECT_TRUE(resolve(1, store::Outcome::kCounted).residual.zero);
  EXPECT_FALSE(encode(job_of(2, "fp32"))->info().p_norm == 0);
  EXPECT_FALSE(resolve(2, store::Outcome::kLate).residual.zero);
}

TEST_F(EncodeTest, WhatIsNoNumberIsNamedAndLeavesTheResidualAlone) {
  ASSERT_TRUE(encode(job_of(1, "topk:ratio=0.1")).ok());
  resolve(1, store::Outcome::kCounted);
  const std::vector<float> before = residual();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -2000.0F}) {
    std::vector<float> local = draw(9, kValues);
    local[917] = bad;
    const auto update = encode(job_of(2, "topk:ratio=0.1", draw(8, kValues), local));
    ASSERT_FALSE(update.ok());
    EXPECT_EQ(update.error().code, Code::kDataLoss);
    EXPECT_NE(update.error().message.find("tensor 'b', value 17 is "), std::string::npos) << update.error().message;
  }
  EXPECT_EQ(residual(), before);
  EXPECT_TRUE(store_->all_pending()->empty());
  EXPECT_TRUE(encode(job_of(2, "topk:ratio=0.1")).ok()) << "the next attempt may succeed";
}

TEST_F(EncodeTest, ALateUpdateFoldsIntoTheResidual) {
  ASSERT_TRUE(encode(job_of(1, "bf16")).ok());
  resolve(1, store::Outcome::kCounted);
  std::vector<float> p(kValues);
  kernels::pseudo_gradient(draw(2, kValues), draw(102, kValues), residual(), p);
  const auto folded = runtime_.run(fold_update(&runtime_.get(), store_.get(), job_of(2, "bf16")));
  ASSERT_TRUE(folded.ok()) << folded.error().to_string();
  EXPECT_EQ(residual(), p);
  EXPECT_EQ(folded->age_rounds, 1u);
  EXPECT_TRUE(store_->all_pending()->empty());
}

TEST_F(EncodeTest, TheSameJobGivesTheSameBytesOnAnyNumberOfThreads) {
  for (const std::string codec : {"fp32", "int8", "topk:ratio=0.05"}) {
    Digest digests[2];
    for (std::size_t k = 0; k < 2; ++k) {
      TestRuntime other(k == 0 ? 1 : 3);
      const auto store = other.open_store();
      digests[k] = other.run(encode_update(&other.get(), store.get(), job_of(1, codec)))->info().digest;
    }
    EXPECT_EQ(digests[0], digests[1]) << codec;
  }
}

TEST_F(EncodeTest, TheDigestIsOverChunksAndIntegers) {
  const round::Schema mixed =
      round::Schema::make({{"steps", round::DType::kI64, {1}}, {"w", round::DType::kF32, {300}}}).value();
  const auto model = [&](std::int64_t steps, const std::vector<float>& values) {
    Buffer bytes(mixed.model_bytes());
    EXPECT_TRUE(round::join_model(mixed, values, std::span(&steps, 1), bytes.span()).ok());
    return bytes;
  };
  EncodeJob job = job_of(1, "fp32");
  job.trained.base = held_model(kRun, 0, mixed, model(1, draw(1, 300)).span());
  job.trained.parts = {{shared(model(5, draw(2, 300)).span()), 1}, {shared(model(9, draw(3, 300)).span()), 3}};
  job.trained.weight = 4;
  const store::PendingUpdate update = encode(job).value();

  std::int64_t steps = 0;
  ASSERT_TRUE(update.read_integers(std::span(&steps, 1)).ok());
  EXPECT_EQ(steps, 9);
  Sha256 hash;
  for (std::uint64_t i = 0; i < 2; ++i) hash.update(update.read_chunk(i)->span());
  hash.update(std::as_bytes(std::span(&steps, 1)));
  EXPECT_EQ(hash.finish(), update.info().digest);

  const std::vector<float> a = draw(2, 300);
  const std::vector<float> b = draw(3, 300);
  std::vector<float> p(300);
  ASSERT_TRUE(update.read_p(0, p).ok());
  const std::vector<float> base = draw(1, 300);
  for (std::size_t i = 0; i < 300; ++i) {
    const double mean = (static_cast<double>(a[i]) * 1 + static_cast<double>(b[i]) * 3) / 4;
    EXPECT_EQ(p[i], base[i] - static_cast<float>(mean));
  }
}

TEST_F(EncodeTest, AResidualBeyondThePlansBoundsIsDroppedAndSaidSo) {
  ASSERT_TRUE(encode(job_of(1, "fp32")).ok());
  const Carried large = resolve(1, store::Outcome::kLate, {.norm_max = 0.001});
  EXPECT_TRUE(large.residual.zero);
  EXPECT_NE(large.dropped.find("residual_norm_max"), std::string::npos);
  EXPECT_TRUE(store_->residual(kRun)->zero);

  const ResidualBounds age{.age_max_rounds = 1};
  ASSERT_TRUE(encode(job_of(2, "fp32")).ok());
  EXPECT_TRUE(resolve(2, store::Outcome::kLate, age).dropped.empty());
  ASSERT_TRUE(encode(job_of(3, "fp32")).ok());
  EXPECT_NE(resolve(3, store::Outcome::kLate, age).dropped.find("residual_age_max_rounds"), std::string::npos);
}

TEST_F(EncodeTest, AnOutcomeAfterARestartNeedsNoPlan) {
  const std::vector<float> p = p_of(encode(job_of(1, "topk:ratio=0.05")).value());
  store_.reset();
  store_ = runtime_.open_store();
  const std::vector<float> sent = decoded(store_->pending(kRun)->value());
  resolve(1, store::Outcome::kCounted);
  const std::vector<float> left = residual();
  for (std::size_t i = 0; i < kValues; ++i) EXPECT_EQ(sent[i] + left[i], p[i]);
  resolve(1, store::Outcome::kCounted);
  EXPECT_EQ(residual(), left) << "the same again does nothing";
}

}  // namespace
}  // namespace fluvial::edge
