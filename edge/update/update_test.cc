// From trained results to a durable submission, and from its outcome to the residual.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <limits>

#include "core/net/pool_parallel.h"
#include "core/round/integers.h"
#include "core/round/probe.h"
#include "edge/update/resolve.h"
#include "edge/update/test_support.h"
#include "kernels/stream_key.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

class UpdateTest : public testing::Test {
 protected:
  Result<store::PendingUpdate> encode(const Training& training) {
    return encode_update(training.job(), *store_, serial_);
  }
  std::vector<float> residual() {
    std::vector<float> values(kValues);
    EXPECT_TRUE(store_->read_residual(kRun, 0, values).ok());
    return values;
  }
  store::Carried resolve(std::uint64_t round, round::Outcome outcome) {
    const Result<store::Carried> carried = resolve_pending(*store_, kRun, RoundId(round), outcome);
    EXPECT_TRUE(carried.ok()) << carried.error().to_string();
    return *carried;
  }

  Serial serial_;
  store::MemoryFileSystem files_;
  std::unique_ptr<store::SiteStore> store_ = open_store(files_);
};

TEST_F(UpdateTest, WhatWasSentAndTheResidualAreTheUpdateBitForBit) {
  std::vector<float> before(kValues, 0.0F);
  for (std::uint64_t round = 1; round <= 3; ++round) {
    const Training job = training(round, "topk:ratio=0.05");
    std::vector<float> p(kValues);
    kernels::pseudo_gradient(draw(round), draw(round + 100), before, p);
    const store::PendingUpdate update = encode(job).value();
    EXPECT_EQ(p_of(update), p);
    EXPECT_EQ(update.info().start.codec, "topk:ratio=0.05") << "as the plan writes it";
    EXPECT_EQ(update.info().start.weight, 20u);
    resolve(round, round::Outcome::kCounted);
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

TEST_F(UpdateTest, RefusedKeepsTheResidualAndLateCarriesAll) {
  ASSERT_TRUE(encode(training(1, "int8")).ok());
  resolve(1, round::Outcome::kCounted);
  const std::vector<float> first = residual();
  const store::PendingUpdate refused = encode(training(2, "int8")).value();
  resolve(2, round::Outcome::kRefused);
  EXPECT_EQ(residual(), first);
  const store::PendingUpdate late = encode(training(3, "int8")).value();
  resolve(3, round::Outcome::kLate);
  EXPECT_EQ(residual(), p_of(late));
  EXPECT_NE(residual(), p_of(refused));
}

TEST_F(UpdateTest, Fp32LeavesNothing) {
  const store::PendingUpdate update = encode(training(1, "fp32")).value();
  EXPECT_TRUE(update.info().start.lossless);
  EXPECT_EQ(decoded(update), p_of(update));
  EXPECT_TRUE(resolve(1, round::Outcome::kCounted).residual.zero);
  EXPECT_FALSE(encode(training(2, "fp32"))->info().p_norm == 0);
  EXPECT_FALSE(resolve(2, round::Outcome::kLate).residual.zero);
}

TEST_F(UpdateTest, Fp32CompressedLeavesNothingEither) {
  if (!kernels::zstd_available()) GTEST_SKIP() << "no libzstd";
  const store::PendingUpdate update = encode(training(1, "fp32:zstd=1")).value();
  EXPECT_EQ(decoded(update), p_of(update));
  EXPECT_TRUE(resolve(1, round::Outcome::kCounted).residual.zero);
  const store::PendingUpdate late = encode(training(2, "fp32:zstd=1")).value();
  resolve(2, round::Outcome::kLate);
  EXPECT_EQ(residual(), p_of(late));
}

TEST_F(UpdateTest, WhatIsNoNumberIsNamedAndLeavesTheResidualAlone) {
  ASSERT_TRUE(encode(training(1, "topk:ratio=0.1")).ok());
  resolve(1, round::Outcome::kCounted);
  const std::vector<float> before = residual();
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -2000.0F}) {
    std::vector<float> local = draw(9);
    local[917] = bad;
    const auto update = encode(training(2, "topk:ratio=0.1", draw(8), local));
    ASSERT_FALSE(update.ok());
    EXPECT_EQ(update.error().code, Code::kDataLoss);
    EXPECT_NE(update.error().message.find("tensor 'b', value 17 is "), std::string::npos) << update.error().message;
  }
  EXPECT_EQ(residual(), before);
  EXPECT_TRUE(store_->all_pending()->empty());
  EXPECT_TRUE(encode(training(2, "topk:ratio=0.1")).ok()) << "the next attempt may succeed";
}

TEST_F(UpdateTest, ALateUpdateFoldsIntoTheResidual) {
  ASSERT_TRUE(encode(training(1, "bf16")).ok());
  resolve(1, round::Outcome::kCounted);
  std::vector<float> p(kValues);
  kernels::pseudo_gradient(draw(2), draw(102), residual(), p);
  const Training late = training(2, "bf16");
  const auto folded = fold_update(late.job(), *store_, serial_);
  ASSERT_TRUE(folded.ok()) << folded.error().to_string();
  EXPECT_EQ(residual(), p);
  EXPECT_EQ(folded->residual.age_rounds, 1u);
  EXPECT_TRUE(store_->all_pending()->empty());
}

TEST_F(UpdateTest, AWorkerHearsThatItsLateResultIsInTheResidual) {
  const Training late = training(1, "int8");
  UpdateJob job = late.job();
  job.workers = {"gpu-0"};
  ASSERT_TRUE(fold_update(job, *store_, serial_).ok());
  const auto outcomes = store_->worker_outcomes().value();
  ASSERT_EQ(outcomes.at(kRun).size(), 1u);
  EXPECT_EQ(outcomes.at(kRun)[0].worker, "gpu-0");
  EXPECT_EQ(outcomes.at(kRun)[0].last.outcome, round::Outcome::kLate);
}

// In another federation the run and the site have other numbers; the experiment is the same.
TEST(EncodeByName, TheSameExperimentGivesTheSameBytesInAnotherFederation) {
  for (const std::string codec : {"int8", "qsgd", "randk:ratio=0.1"}) {
    const auto digest_of = [&](RunId run, SiteId site, const std::string& name, std::uint64_t seed) {
      store::MemoryFileSystem files;
      const auto store = open_store(files);
      Training trained = training(1, codec);
      trained.plan.seed = seed;
      UpdateJob job = trained.job();
      job.run = run;
      job.site = site;
      job.site_name = name;
      Serial serial;
      return encode_update(job, *store, serial)->info().digest;
    };
    const Digest here = digest_of(RunId(1), SiteId(2), "hospital-a", 7);
    EXPECT_EQ(digest_of(RunId(9), SiteId(31), "hospital-a", 7), here) << codec;
    EXPECT_NE(digest_of(RunId(1), SiteId(2), "hospital-a", 8), here) << codec;
    if (codec != "randk:ratio=0.1") {  // all sites of a round send the same coordinates
      EXPECT_NE(digest_of(RunId(1), SiteId(2), "hospital-b", 7), here) << codec;
    }
  }
}

// Otherwise the next round would leave out again what one round's random bits leave out.
TEST_F(UpdateTest, EachRoundRoundsByChanceOfItsOwn) {
  std::uint64_t round = 0;
  for (const std::string codec : {"qsgd", "randk:ratio=0.1"}) {
    const store::PendingUpdate first = encode(training(++round, codec, draw(1), draw(2))).value();
    resolve(round, round::Outcome::kRefused);
    const store::PendingUpdate second = encode(training(++round, codec, draw(1), draw(2))).value();
    resolve(round, round::Outcome::kRefused);
    EXPECT_EQ(p_of(first), p_of(second));
    EXPECT_NE(decoded(first), decoded(second)) << codec;
  }
}

// Read back from what is durable, a chunk at a time.
TEST_F(UpdateTest, ItsDigestIsOfTheKindThatTheJobSaysOnAnyNumberOfThreads) {
  const auto digest_of = [](const store::PendingUpdate& update, DigestKind kind) {
    const std::uint64_t count = update.info().start.chunk_count;
    SubmissionDigest digest(kind, count);
    for (std::uint64_t i = 0; i < count; ++i) {
      digest.side_by_side(i, update.read_chunk(i)->span());
      digest.in_order(update.read_chunk(i)->span());
    }
    return digest.finish(update.read_trailer()->span());
  };
  for (const std::string codec : {"fp32", "int8", "topk:ratio=0.05"}) {
    for (const DigestKind kind : {DigestKind::kStream, DigestKind::kTree}) {
      const Training trained = training(1, codec);
      UpdateJob job = trained.job();
      job.digest_kind = kind;
      for (const std::size_t threads : {1, 3}) {
        net::ThreadPool pool(threads, 100);
        net::PoolParallel parallel(pool);
        store::MemoryFileSystem files;
        {
          const auto update = encode_update(job, *open_store(files), parallel);
          ASSERT_TRUE(update.ok()) << update.error().to_string();
          EXPECT_EQ(update->info().digest, digest_of(*update, kind)) << codec << " on " << threads;
        }
        const auto reopened = open_store(files);
        const store::PendingUpdate kept = reopened->pending(kRun).value().value();
        EXPECT_EQ(kept.info().start.digest_kind, kind) << "durable with it";
        EXPECT_EQ(kept.info().digest, digest_of(kept, kind));
      }
    }
  }
}

TEST_F(UpdateTest, TheSameJobGivesTheSameBytesOnAnyNumberOfThreads) {
  for (const std::string codec : {"fp32", "int8", "topk:ratio=0.05", "topk:ratio=0.05,select=sampled", "bf16:zstd=3"}) {
    const Training job = training(1, codec);
    store::MemoryFileSystem files;
    const store::PendingUpdate alone = encode_update(job.job(), *open_store(files), serial_).value();
    for (const std::size_t threads : {1, 3, 5}) {
      net::ThreadPool pool(threads, 100);
      net::PoolParallel parallel(pool);
      store::MemoryFileSystem other;
      const auto update = encode_update(job.job(), *open_store(other), parallel);
      EXPECT_EQ(update->info().digest, alone.info().digest) << codec << " on " << threads;
      EXPECT_EQ(p_of(*update), p_of(alone));
      EXPECT_EQ(decoded(*update), decoded(alone));
    }
  }
}

TEST_F(UpdateTest, TheDigestIsOverChunksIntegersAndTheProbe) {
  const round::Schema mixed =
      round::Schema::make({{"steps", round::DType::kI64, {1}}, {"w", round::DType::kF32, {300}}}).value();
  const auto model = [&](std::int64_t steps, const std::vector<float>& values) {
    Buffer bytes(mixed.model_bytes());
    EXPECT_TRUE(round::join_model(mixed, values, std::span(&steps, 1), bytes.span()).ok());
    return bytes;
  };
  Training job = training(1, "fp32");
  job.schema = mixed;
  job.base = model(1, draw(1, 300));
  job.parts.clear();
  job.parts.emplace_back(model(5, draw(2, 300)), 1);
  job.parts.emplace_back(model(9, draw(3, 300)), 3);
  const store::PendingUpdate update = encode(job).value();

  const Buffer trailer = update.read_trailer().value();
  ASSERT_EQ(trailer.size(), sizeof(std::int64_t) + round::kProbeBytes);
  EXPECT_EQ(load_le<std::uint64_t>(trailer.data()), 9u);
  EXPECT_TRUE(std::ranges::equal(trailer.span().last(round::kProbeBytes), round::probe_bytes()));
  Sha256 hash;
  for (std::uint64_t i = 0; i < 2; ++i) hash.update(update.read_chunk(i)->span());
  hash.update(trailer.span());
  EXPECT_EQ(hash.finish(), update.info().digest);
  EXPECT_EQ(update.info().start.digest_kind, DigestKind::kStream);

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

// Every parent would refuse such an update, and the site would send it again whenever it is asked.
TEST_F(UpdateTest, AnIntegerThatGrewTooMuchIsNotSentAndSaysWhich) {
  const round::Schema mixed =
      round::Schema::make({{"w", round::DType::kF32, {300}}, {"bn.seen", round::DType::kI64, {2}}}).value();
  const auto model = [&](std::vector<std::int64_t> seen, std::uint64_t seed) {
    Buffer bytes(mixed.model_bytes());
    EXPECT_TRUE(round::join_model(mixed, draw(seed, 300), seen, bytes.span()).ok());
    return bytes;
  };
  constexpr std::int64_t most = 10 + round::kIntegerStepMax;
  std::uint64_t round = 0;
  for (const std::string codec : {"fp32", "int8"}) {
    Training job = training(++round, codec);
    job.schema = mixed;
    job.base = model({10, 10}, 1);
    job.parts.clear();
    job.parts.emplace_back(model({14, most}, 2), 1);
    job.parts.emplace_back(model({12, most + 1}, 3), 3);
    const auto refused = encode(job);
    ASSERT_FALSE(refused.ok()) << codec;
    EXPECT_EQ(refused.error().code, Code::kDataLoss);
    EXPECT_NE(refused.error().message.find("tensor 'bn.seen', value 1 is 4294967307"), std::string::npos)
        << refused.error().message;
    EXPECT_FALSE(store_->pending(kRun)->has_value());
    job.parts.pop_back();
    job.parts.emplace_back(model({12, most}, 3), 3);
    EXPECT_TRUE(encode(job).ok()) << codec;
    EXPECT_TRUE(store_->resolve(kRun, RoundId(round), round::Outcome::kRefused).ok());
  }
}

TEST_F(UpdateTest, AResidualBeyondThePlansBoundsIsDroppedAndSaidSo) {
  Training small = training(1, "fp32");
  small.plan.residual_norm_max = 0.001;
  ASSERT_TRUE(encode(small).ok());
  store_.reset();
  store_ = open_store(files_);  // resolving needs no plan
  const store::Carried large = resolve(1, round::Outcome::kLate);
  EXPECT_TRUE(large.residual.zero);
  EXPECT_NE(large.dropped.find("residual_norm_max"), std::string::npos);
  EXPECT_TRUE(store_->residual(kRun)->zero);
  small.round = RoundId(2);
  EXPECT_NE(fold_update(small.job(), *store_, serial_)->dropped.find("residual_norm_max"), std::string::npos);
  EXPECT_TRUE(store_->residual(kRun)->zero);

  const auto aged = [](std::uint64_t round) {
    Training made = training(round, "fp32");
    made.plan.residual_age_max_rounds = 1;
    return made;
  };
  ASSERT_TRUE(encode(aged(3)).ok());
  EXPECT_TRUE(resolve(3, round::Outcome::kLate).dropped.empty());
  ASSERT_TRUE(encode(aged(4)).ok());
  EXPECT_NE(resolve(4, round::Outcome::kLate).dropped.find("residual_age_max_rounds"), std::string::npos);
  EXPECT_TRUE(files_.list("/site/tensors")->empty());
}

// It is measured while it is encoded, and the same when it is measured afterwards.
TEST_F(UpdateTest, WhatACountedUpdateLeavesIsWrittenByNobody) {
  std::uint64_t round = 0;
  for (const std::string codec : {"int8", "bf16", "topk:ratio=0.05", "qsgd", "sign", "randk:ratio=0.1"}) {
    SCOPED_TRACE(codec);
    const store::PendingUpdate update = encode(training(++round, codec)).value();
    const std::vector<float> p = p_of(update);
    const std::vector<float> sent = decoded(update);
    double squares = 0;
    for (std::size_t i = 0; i < kValues; ++i) {
      const double left = static_cast<double>(p[i]) - static_cast<double>(sent[i]);
      squares += left * left;
    }
    ASSERT_TRUE(update.info().left_norm.has_value());
    EXPECT_NEAR(*update.info().left_norm, std::sqrt(squares), 1e-5 * std::sqrt(squares));
    const std::uint64_t operations = files_.operations();
    const store::Carried carried = resolve(round, round::Outcome::kCounted);
    EXPECT_EQ(carried.residual.norm, *update.info().left_norm);
    EXPECT_EQ(files_.list("/site/tensors")->size(), 2u) << "p and its chunks";
    EXPECT_LT(files_.operations() - operations, 30u);
    const std::vector<float> left = residual();
    for (std::size_t i = 0; i < kValues; ++i) ASSERT_EQ(left[i], p[i] - sent[i]) << i;
  }
}

// Chunks are encoded while the ones after them are not made yet: to the bytes of a codec that has seen all of p.
TEST_F(UpdateTest, WhatIsEncodedAsItIsMadeHasTheBytesOfTheWholeVector) {
  std::uint64_t round = 0;
  for (const std::string name : {"fp32", "fp16", "bf16", "int8", "qsgd", "sign", "terngrad", "randk:ratio=0.1",
                                 "topk:ratio=0.05", "topk:ratio=0.05,select=sampled"}) {
    SCOPED_TRACE(name);
    const Training job = training(++round, name);
    const store::PendingUpdate update = encode(job).value();
    const std::vector<float> p = p_of(update);
    const auto codec = kernels::make_codec(kernels::parse_codec(name).value()).value();
    const kernels::VectorSchema whole{{kValues, kChunk}, {}};
    Buffer workspace(codec->workspace_bytes(whole));
    const kernels::StreamKey key = kernels::stream_key(job.plan.seed, round, "");
    const kernels::EncodePlan plan = codec->prepare(whole, p, key, {}, {}, workspace.span()).value();
    for (std::size_t i = 0; i < whole.layout.chunk_count(); ++i) {
      const std::span<const float> chunk = whole.layout.of(std::span<const float>(p), i);
      Buffer expected(codec->encoded_bytes_max(chunk.size()));
      expected.shrink(codec->encode_chunk(plan, i, chunk, expected.span()).value());
      EXPECT_TRUE(std::ranges::equal(update.read_chunk(i)->span(), expected.span())) << i;
    }
    resolve(round, round::Outcome::kCounted);
  }
}

TEST_F(UpdateTest, WhatIsSentIsInMemoryByteForByte) {
  std::uint64_t round = 0;
  for (const std::string codec : {"fp32", "int8", "topk:ratio=0.05"}) {
    const store::PendingUpdate update = encode(training(++round, codec)).value();
    ASSERT_TRUE(update.in_memory()) << codec;
    for (std::uint64_t i = 0; i < update.info().start.chunk_count; ++i) {
      EXPECT_TRUE(std::ranges::equal(update.chunk(i)->bytes, update.read_chunk(i)->span())) << codec;
    }
    EXPECT_TRUE(std::ranges::equal(update.trailer()->bytes, update.read_trailer()->span())) << codec;
    resolve(round, round::Outcome::kRefused);
  }
}

// Its share of the residual is lost and counted; the rest travels with the next update.
TEST_F(UpdateTest, ADamagedChunkCostsItsOwnValuesAndNoRound) {
  const store::PendingUpdate first = encode(training(1, "int8")).value();
  resolve(1, round::Outcome::kCounted);
  const std::vector<float> before = residual();
  const std::vector<std::string> names = files_.list("/site/tensors").value();
  for (const std::string& name : names) {
    const auto file = files_.open("/site/tensors/" + name, store::OpenMode::kReadWrite).value();
    if (*file->size() >= kValues * sizeof(float)) continue;  // p
    const std::vector<std::byte> damage(first.chunk_size_bytes(1), std::byte{0xff});
    ASSERT_TRUE(file->write_at(first.chunk_size_bytes(0), damage).ok());
  }
  const Training next = training(2, "int8");
  UpdateJob job = next.job();
  std::atomic<std::uint64_t> lost = 0;
  job.residual_lost = &lost;
  const store::PendingUpdate update = encode_update(job, *store_, serial_).value();
  EXPECT_EQ(lost, kChunk);
  std::vector<float> expected = before;
  std::fill_n(expected.begin() + kChunk, kChunk, 0.0F);
  std::vector<float> p(kValues);
  kernels::pseudo_gradient(draw(2), draw(102), expected, p);
  EXPECT_EQ(p_of(update), p);
}

TEST_F(UpdateTest, AChunksFileThatIsCutShortCostsTheValuesBehindTheCutAndNoRound) {
  const store::PendingUpdate first = encode(training(1, "int8")).value();
  resolve(1, round::Outcome::kCounted);
  const std::vector<std::string> names = files_.list("/site/tensors").value();
  for (const std::string& name : names) {
    const auto file = files_.open("/site/tensors/" + name, store::OpenMode::kReadWrite).value();
    if (*file->size() >= kValues * sizeof(float)) continue;  // p
    ASSERT_TRUE(file->truncate(first.chunk_size_bytes(0)).ok());
  }
  const Training next = training(2, "int8");
  UpdateJob job = next.job();
  std::atomic<std::uint64_t> lost = 0;
  job.residual_lost = &lost;
  ASSERT_TRUE(encode_update(job, *store_, serial_).ok());
  EXPECT_EQ(lost, kValues - kChunk);
}

// As a GPU leaves it, or a version before: its norm is found out when it was counted.
TEST_F(UpdateTest, ADamagedChunkOfASubmissionWithoutANormCostsItsOwnValues) {
  const store::PendingUpdate first = encode(training(1, "int8")).value();
  const std::vector<float> p = p_of(first);
  const std::string chunk(first.chunk_size_bytes(1), '\xff');
  {
    store::PendingStart start = first.info().start;
    resolve(1, round::Outcome::kRefused);
    start.round = RoundId(2);
    const auto writer = store_->begin_pending(start).value();
    ASSERT_TRUE(writer->write_p(0, p).ok());
    for (std::uint64_t i = 0; i < start.chunk_count; ++i) {
      const Buffer good = first.read_chunk(i).value();
      ASSERT_TRUE(writer->write_chunk(i, i == 1 ? as_byte_span(chunk) : ByteSpan(good.span())).ok());
    }
    ASSERT_TRUE(writer->write_trailer(first.read_trailer()->span()).ok());
    ASSERT_TRUE(writer->finish(first.info().digest).ok());
  }
  const auto carried = resolve_pending(*store_, kRun, RoundId(2), round::Outcome::kCounted);
  ASSERT_TRUE(carried.ok()) << carried.error().to_string();
  EXPECT_GT(carried->residual.norm, 0);
}

TEST_F(UpdateTest, AnOutcomeAfterARestartNeedsNoPlan) {
  const std::vector<float> p = p_of(encode(training(1, "topk:ratio=0.05")).value());
  store_.reset();
  store_ = open_store(files_);
  const std::vector<float> sent = decoded(store_->pending(kRun)->value());
  resolve(1, round::Outcome::kCounted);
  const std::vector<float> left = residual();
  for (std::size_t i = 0; i < kValues; ++i) EXPECT_EQ(sent[i] + left[i], p[i]);
  resolve(1, round::Outcome::kCounted);
  EXPECT_EQ(residual(), left) << "the same again does nothing";
}

}  // namespace
}  // namespace fluvial::edge
