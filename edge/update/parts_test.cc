// Results other than a model: updates, shards of a group, parts that are in place early, and memory that workers go on
// writing to.
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cmath>
#include <limits>
#include <thread>

#include "core/net/pool_parallel.h"
#include "edge/update/partial_mean.h"
#include "edge/update/test_support.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

constexpr std::uint64_t kBytes = kValues * sizeof(float);

round::ByteRanges ranges(std::initializer_list<round::ByteRange> list) {
  round::ByteRanges set;
  for (const round::ByteRange& range : list) EXPECT_TRUE(set.add(range).ok());
  return set;
}

class PartsTest : public testing::Test {
 protected:
  // A base and three results, of other weights.
  PartsTest() : three_(training(1, "fp32")) {
    three_.parts.emplace_back(bytes_of(draw(201)), 7);
    three_.parts.emplace_back(bytes_of(draw(202)), 40);
  }
  std::vector<float> p(const UpdateJob& job) {
    store::MemoryFileSystem files;
    const std::unique_ptr<store::SiteStore> store = open_store(files);
    const Result<store::PendingUpdate> update = encode_update(job, *store, serial_);
    EXPECT_TRUE(update.ok()) << update.error().to_string();
    return update.ok() ? p_of(*update) : std::vector<float>();
  }
  std::vector<float> p_with_residual(const UpdateJob& job, const std::vector<float>& residual) {
    store::MemoryFileSystem files;
    const std::unique_ptr<store::SiteStore> store = open_store(files);
    std::unique_ptr<store::ResidualWriter> writer = store->begin_residual(kRun).value();
    EXPECT_TRUE(writer->write(0, residual).ok());
    EXPECT_TRUE(store->fold(kRun, RoundId(0), std::move(writer)).ok());
    return p_of(encode_update(job, *store, serial_).value());
  }
  Serial serial_;
  Training three_;
};

TEST_F(PartsTest, AnUpdateIsTakenAsItIs) {
  Training one = training(1, "fp32");
  UpdateJob job = one.job();
  job.parts[0].update = true;
  const std::vector<float> residual = draw(300);
  std::vector<float> expected = draw(101);
  EXPECT_EQ(p(job), expected);
  for (std::size_t i = 0; i < kValues; ++i) expected[i] += residual[i];
  EXPECT_EQ(p_with_residual(job, residual), expected);
}

TEST_F(PartsTest, UpdatesOfSeveralWorkersAreAveragedByWeight) {
  UpdateJob job = three_.job();
  for (PartView& part : job.parts) part.update = true;
  std::vector<float> expected(kValues);
  const std::vector<float> vectors[] = {draw(101), draw(201), draw(202)};
  const std::vector<std::span<const float>> spans(std::begin(vectors), std::end(vectors));
  ASSERT_TRUE(kernels::weighted_mean(spans, std::vector<std::uint32_t>{20, 7, 40}, expected).ok());
  EXPECT_EQ(p(job), expected);
}

TEST_F(PartsTest, AModelAmongUpdatesCountsAsItsUpdate) {
  Training as_updates = training(1, "fp32", draw(1), draw(101));
  std::vector<float> own(kValues);
  kernels::pseudo_gradient(draw(1), draw(101), {}, own);
  as_updates.parts.clear();
  as_updates.parts.emplace_back(bytes_of(own), 20);
  as_updates.parts.emplace_back(bytes_of(draw(201)), 7);
  as_updates.parts.emplace_back(bytes_of(draw(202)), 40);
  UpdateJob all = as_updates.job();
  for (PartView& part : all.parts) part.update = true;
  UpdateJob mixed = three_.job();
  mixed.parts[1].update = mixed.parts[2].update = true;
  EXPECT_EQ(p(mixed), p(all));
}

TEST_F(PartsTest, WhatWasLeftOutTravelsWithModelsAndUpdatesTogether) {
  UpdateJob mixed = three_.job();
  mixed.parts[1].update = mixed.parts[2].update = true;
  const std::vector<float> residual = draw(300);
  std::vector<float> expected = p(mixed);
  for (std::size_t i = 0; i < kValues; ++i) expected[i] += residual[i];
  EXPECT_EQ(p_with_residual(mixed, residual), expected);
}

TEST_F(PartsTest, AnUpdateThatIsNoNumberIsNamed) {
  UpdateJob job = three_.job();
  std::vector<float> bad = draw(1);
  bad[900 + 17] = std::numeric_limits<float>::quiet_NaN();
  const Buffer bytes = bytes_of(bad);
  job.parts = {{.model = bytes.span(), .weight = 67, .update = true}};
  store::MemoryFileSystem files;
  const std::unique_ptr<store::SiteStore> store = open_store(files);
  EXPECT_EQ(encode_update(job, *store, serial_).error().message.find("tensor 'b', value 17 is"), 0u);
}

TEST_F(PartsTest, ShardsAreOneResult) {
  const std::vector<float> expected = p(three_.job());
  const std::vector<float> whole = draw(101);
  // Each rank's memory holds its ranges and garbage elsewhere; ranges cross chunks and tensors.
  const std::vector<round::ByteRanges> sets = {ranges({{0, 40}, {1200, 4}, {3604, 396}}), ranges({{40, 1160}}),
                                               ranges({{1204, 2400}})};
  ASSERT_TRUE(round::check_tiles(sets, kBytes).ok());
  std::vector<Buffer> memory;
  for (const round::ByteRanges& set : sets) {
    std::vector<float> values(kValues, std::numeric_limits<float>::infinity());
    for (const round::ByteRange& range : set.ranges()) {
      for (std::size_t i = range.first_byte / 4; i < range.end() / 4; ++i) values[i] = whole[i];
    }
    memory.push_back(bytes_of(values));
  }
  UpdateJob job = three_.job();
  job.parts[0].model = {};
  for (const std::size_t rank : {2, 0, 1}) job.parts[0].shards.push_back({memory[rank].span(), sets[rank]});
  EXPECT_EQ(p(job), expected) << "among other workers";
  job.parts.resize(1);
  job.weight = 20;
  EXPECT_EQ(p(job), p(training(1, "fp32").job())) << "alone";
}

TEST_F(PartsTest, ShardsWithIntegersAreOneResult) {
  Training whole;
  whole.round = RoundId(1);
  whole.plan.codec = "fp32";
  whole.plan.chunk_values = kChunk;
  whole.schema = round::Schema::make({{"flags", round::DType::kU8, {3}}, {"w", round::DType::kF32, {5}}}).value();
  const auto filled = [](unsigned char by) {
    return Buffer::copy_of(as_byte_span(std::string(23, static_cast<char>(by))));
  };
  whole.base = filled(1);
  whole.parts.emplace_back(filled(60), 1);
  const std::vector<float> expected = p(whole.job());
  const Buffer other = filled(0x7f);
  UpdateJob job = whole.job();
  job.parts[0].shards = {{whole.parts[0].first.span(), ranges({{0, 7}, {15, 8}})},
                         {whole.parts[0].first.span(), ranges({{7, 8}})}};
  job.parts[0].model = other.span();
  EXPECT_EQ(p(job), expected);
}

TEST_F(PartsTest, AnyReductionGivesTheSameUpdateToRounding) {
  UpdateJob job = three_.job();
  const std::vector<float> direct = p(job);
  for (const Algorithm algorithm : kAlgorithms) {
    job.reduction = algorithm;
    const std::vector<float> reduced = p(job);
    ASSERT_EQ(reduced.size(), direct.size());
    for (std::size_t i = 0; i < direct.size(); ++i) {
      ASSERT_NEAR(reduced[i], direct[i], 0x1p-22) << algorithm_name(algorithm) << ", value " << i;
    }
  }
}

// The bits are the same, whatever was reduced early and in whatever order.
TEST_F(PartsTest, EarlyRangesChangeNoBit) {
  for (const bool updates : {false, true}) {
    UpdateJob job = three_.job();
    for (PartView& part : job.parts) part.update = updates;
    job.reduction = updates ? Algorithm::kTree : Algorithm::kDirect;
    const std::vector<float> expected = p(job);
    net::ThreadPool pool(3, 64);
    net::PoolParallel parallel(pool);
    struct Case {
      std::vector<round::ByteRange> announced;
      std::size_t chunks;  // that are whole
    };
    const std::vector<Case> cases = {
        {{{0, kBytes}}, 4},
        {{{0, 1024}}, 1},
        {{{1024, 1024}, {0, 8}, {3000, 1000}, {8, 1016}, {2048, 952}}, 4},
        {{{512, 1024}}, 0},
    };
    for (const Case& c : cases) {
      PartialMean early(job.layout(), job.reduction);
      round::ByteRanges ready;
      for (const round::ByteRange& range : c.announced) {
        ASSERT_TRUE(ready.add(range).ok());
        ASSERT_TRUE(early.reduce(job.schema, job.parts, ready, parallel).ok());
      }
      EXPECT_EQ(early.chunks_done(), c.chunks);
      job.early = &early;
      EXPECT_EQ(p(job), expected);
      job.early = nullptr;
    }
  }
}

// Nothing is read beyond the ranges that the ranks have announced.
TEST_F(PartsTest, ShardsAreReducedEarlyAsFarAsTheyAreAnnounced) {
  const std::vector<float> expected = p(three_.job());
  UpdateJob job = three_.job();
  const ByteSpan memory = job.parts[0].model;
  std::vector<PartView> announced = job.parts;
  announced[0].model = {};
  announced[0].shards = {{memory, ranges({{0, 1000}})}, {memory, ranges({{1000, 200}})}};
  PartialMean early(job.layout(), job.reduction);
  ASSERT_TRUE(early.reduce(job.schema, announced, round::ByteRanges::whole(1200), serial_).ok());
  EXPECT_EQ(early.chunks_done(), 1u);
  announced[0].shards.push_back({memory, ranges({{1200, kBytes - 1200}})});
  ASSERT_TRUE(early.reduce(job.schema, announced, round::ByteRanges::whole(kBytes), serial_).ok());
  EXPECT_EQ(early.chunks_done(), 4u);
  job.parts = announced;
  job.early = &early;
  EXPECT_EQ(p(job), expected);
}

// The agent screens, encodes and keeps what it has read, whatever a worker writes meanwhile.
TEST_F(PartsTest, AWorkerThatScribblesSpoilsItsOwnUpdateAlone) {
  // Two mappings, as worker and agent have them.
  constexpr std::size_t kMemoryBytes = 200'000 * sizeof(float);
  const int fd = ::memfd_create("scribbled", MFD_CLOEXEC);
  ASSERT_EQ(::ftruncate(fd, kMemoryBytes), 0);
  auto* const writing = static_cast<float*>(::mmap(nullptr, kMemoryBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  auto* const reading = static_cast<std::byte*>(::mmap(nullptr, kMemoryBytes, PROT_READ, MAP_SHARED, fd, 0));
  ASSERT_NE(static_cast<void*>(writing), MAP_FAILED);
  ASSERT_NE(static_cast<void*>(reading), MAP_FAILED);
  const std::vector<float> base = draw(1, 200'000);
  std::atomic<bool> stop = false;
  std::thread scribbler([&] {
    Rng rng(5);
    while (!stop) {
      const bool is_nan = rng.below(2'000'000) == 0;
      writing[rng.below(200'000)] =
          is_nan ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(rng.uniform());
    }
  });
  int encoded = 0;
  for (std::uint64_t turn = 0; turn < 40; ++turn) {
    Training job_base = training(1, turn % 2 == 0 ? "fp32" : "int8", base, base);
    job_base.schema = round::Schema::make({{"w", round::DType::kF32, {200'000}}}).value();
    job_base.plan.chunk_values = 4096;
    UpdateJob job = job_base.job();
    job.parts[0].model = {reading, kMemoryBytes};
    job.parts[0].update = turn % 3 == 0;
    store::MemoryFileSystem files;
    const std::unique_ptr<store::SiteStore> store = open_store(files);
    const Result<store::PendingUpdate> update = encode_update(job, *store, serial_);
    if (!update.ok()) {
      EXPECT_EQ(update.error().code, Code::kDataLoss) << update.error().to_string();
      continue;
    }
    ++encoded;
    const std::vector<float> kept = p_of(*update);
    const std::vector<float> sent = decoded(*update);
    Sha256 hash;
    for (std::size_t i = 0; i < update->info().start.chunk_count; ++i) hash.update(update->read_chunk(i)->span());
    hash.update(update->read_trailer()->span());
    EXPECT_EQ(hash.finish(), update->info().digest);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      ASSERT_TRUE(std::isfinite(kept[i])) << "screened";
      if (turn % 2 == 0) ASSERT_EQ(sent[i], kept[i]);
      ASSERT_NEAR(sent[i], kept[i], 0.02) << "the residual is what the codec left out of what was read";
    }
  }
  stop = true;
  scribbler.join();
  ::munmap(writing, kMemoryBytes);
  ::munmap(reading, kMemoryBytes);
  ::close(fd);
  EXPECT_GT(encoded, 0);
}

}  // namespace
}  // namespace fluvial::edge
