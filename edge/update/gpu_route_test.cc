// Results on GPUs give the same submission as the same results in host memory, whichever route they take.
#include <gtest/gtest.h>

#include <limits>
#include <list>

#include "core/net/pool_parallel.h"
#include "edge/gpu/site_gpus.h"
#include "edge/update/partial_mean.h"
#include "edge/update/resolve.h"
#include "edge/update/test_support.h"
#include "kernels/cuda/emulated/device.h"
#include "kernels/cuda/emulated/memory.h"
#include "kernels/device_codec.h"
#include "kernels/test_values.h"

namespace fluvial::edge {
namespace {

using kernels::Device;
using kernels::DeviceBuffer;
using kernels::DeviceKind;

class GpuRouteTest : public testing::Test {
 protected:
  void SetUp() override {
    if (!kernels::use_emulated_device(3)) GTEST_SKIP() << "the emulator does not go with this sanitizer";
    kernels::emulate_work(kernels::EmulatedWork::kMixed);
    gpus_ = site({{DeviceKind::kEmulated, 0}});
  }
  std::shared_ptr<SiteGpus> site(std::vector<Device> devices) {
    return SiteGpus::make(std::move(devices), {.warn = [this](const std::string& line) { warned_ += line; }}).value();
  }

  // A worker's vector on a GPU, opened as the agent does.
  std::shared_ptr<const WorkerVector> on_gpu(SiteGpus& gpus, std::size_t gpu, const std::vector<float>& values) {
    const Device& device = gpus.devices()[gpu];
    memory_.push_back(DeviceBuffer::make(device, values.size() * sizeof(float)).value());
    const DeviceBuffer& memory = memory_.back();
    kernels::Stream stream = kernels::Stream::make(device).value();
    EXPECT_TRUE(kernels::copy_to_device(std::span(values), memory.as<float>(), stream).ok());
    EXPECT_TRUE(stream.synchronize().ok());
    return gpus.open(gpus.uuids()[gpu], kernels::export_memory(memory).value(), 0, values.size()).value();
  }
  // The same job with its parts' values on the GPUs in turn; only the integers of the models stay on the host.
  UpdateJob moved(UpdateJob job, SiteGpus& gpus) {
    for (std::size_t i = 0; i < job.parts.size(); ++i) move(job, gpus, i, i % gpus.devices().size());
    job.gpus = &gpus;
    return job;
  }
  void move(UpdateJob& job, SiteGpus& gpus, std::size_t part, std::size_t gpu) {
    PartView& of = job.parts[part];
    std::vector<float> values(job.schema.value_count());
    std::vector<std::int64_t> integers(job.schema.integer_count());
    round::split_model(job.schema, of.model, values, integers);
    of.gpu = on_gpu(gpus, gpu, values);
    if (integers.empty()) {
      of.model = {};
      return;
    }
    models_.push_back(Buffer(of.model.size()));
    const std::vector<float> junk(values.size(), std::numeric_limits<float>::quiet_NaN());
    EXPECT_TRUE(round::join_model(job.schema, junk, integers, models_.back().span()).ok());
    of.model = models_.back().span();
  }

  Training three(std::uint64_t round, const std::string& codec) {
    Training three = training(round, codec);
    three.parts.emplace_back(bytes_of(draw(round + 200)), 7);
    three.parts.emplace_back(bytes_of(draw(round + 300)), 40);
    return three;
  }
  store::PendingUpdate encode(const UpdateJob& job, store::SiteStore& store) {
    Result<store::PendingUpdate> update = encode_update(job, store, serial_);
    EXPECT_TRUE(update.ok()) << update.error().to_string();
    return std::move(update).value();
  }
  store::PendingUpdate encode(const UpdateJob& job) {
    return encode(job, *stores_.emplace_back(open_store(files_.emplace_back())));
  }
  // A codec that no GPU has, if there is one.
  static std::string on_host_alone() { return kernels::zstd_available() ? "bf16:zstd=1" : "bf16"; }
  // Compares byte by byte.
  void expect_same(const store::PendingUpdate& got, const store::PendingUpdate& expected, const std::string& what) {
    EXPECT_EQ(got.info().digest, expected.info().digest) << what;
    EXPECT_EQ(got.info().p_norm, expected.info().p_norm) << what;
    EXPECT_EQ(p_of(got), p_of(expected)) << what;
  }

  Serial serial_;
  std::string warned_;
  std::list<DeviceBuffer> memory_;
  std::list<Buffer> models_;
  std::list<store::MemoryFileSystem> files_;
  std::list<std::unique_ptr<store::SiteStore>> stores_;
  std::shared_ptr<SiteGpus> gpus_;
};

// Two rounds, the second with the residual that the first one's outcome left. Codecs that a GPU does not have are
// encoded on the host, from the p that the GPU made.
TEST_F(GpuRouteTest, EveryCodecSendsTheSameBytesAndKeepsTheSameResidual) {
  std::uint64_t encoded = 0, rounds = 0;
  for (const std::string& codec : kernels::test_values::codec_texts()) {
    store::MemoryFileSystem host_files, gpu_files;
    const auto host = open_store(host_files), gpu = open_store(gpu_files);
    for (const std::uint64_t round : {1, 2}) {
      const Training trained = three(round, codec);
      expect_same(encode(moved(trained.job(), *gpus_), *gpu), encode(trained.job(), *host), codec);
      for (store::SiteStore* store : {host.get(), gpu.get()}) {
        ASSERT_TRUE(resolve_pending(*store, kRun, RoundId(round), round::Outcome::kCounted).ok());
      }
      EXPECT_EQ(gpu->residual(kRun)->norm, host->residual(kRun)->norm) << codec;
      EXPECT_EQ(gpus_->counts().summed, ++rounds) << codec;
    }
    const kernels::CodecSpec spec = kernels::parse_codec(codec).value();
    const bool on_gpu = kernels::make_device_codec(gpus_->devices().front(), spec).ok() &&
                        spec.kind != kernels::CodecKind::kDgc;  // its momentum is on the host
    EXPECT_EQ(gpus_->counts().encoded, encoded += on_gpu ? 2 : 0) << codec;
  }
  EXPECT_EQ(warned_, "");
}

TEST_F(GpuRouteTest, ModelsAndUpdatesOfAnyNumberOfWorkersOnAnyNumberOfThreads) {
  net::ThreadPool pool(3, 64);
  net::PoolParallel parallel(pool);
  for (std::size_t workers = 1; workers <= 4; ++workers) {
    for (const bool updates : {false, true}) {
      Training trained = three(1, "int8");
      trained.parts.emplace_back(bytes_of(draw(400)), 3);
      trained.parts.resize(workers);
      UpdateJob job = trained.job();
      for (PartView& part : job.parts) part.update = updates;
      const auto store = open_store(files_.emplace_back());
      const Result<store::PendingUpdate> update = encode_update(moved(job, *gpus_), *store, parallel);
      ASSERT_TRUE(update.ok()) << update.error().to_string();
      expect_same(*update, encode(job), std::to_string(workers) + " workers");
    }
  }
  EXPECT_EQ(gpus_->counts().encoded, 8u);
  EXPECT_GT(gpus_->counts().sum_seconds, 0);
  EXPECT_GT(gpus_->counts().encode_seconds, 0);
  EXPECT_GE(gpus_->counts().memory_bytes, kValues * sizeof(float)) << "kept for the next update";
  gpus_->release();
  EXPECT_EQ(gpus_->counts().memory_bytes, 0u);
}

TEST_F(GpuRouteTest, ALateUpdateFoldsIntoTheSameResidual) {
  const Training trained = three(1, "bf16");
  std::vector<std::vector<float>> residuals;
  for (const bool gpu : {false, true}) {
    const auto store = open_store(files_.emplace_back());
    const auto folded = fold_update(gpu ? moved(trained.job(), *gpus_) : trained.job(), *store, serial_);
    ASSERT_TRUE(folded.ok()) << folded.error().to_string();
    ASSERT_TRUE(store->read_residual(kRun, 0, residuals.emplace_back(kValues)).ok());
  }
  EXPECT_EQ(residuals[0], residuals[1]);
  EXPECT_EQ(gpus_->counts().summed, 1u);
}

TEST_F(GpuRouteTest, IntegersComeFromTheModelBesideIt) {
  const round::Schema mixed = round::Schema::make({{"flags", round::DType::kU8, {3}},
                                                   {"w", round::DType::kF32, {300}},
                                                   {"steps", round::DType::kI64, {1}},
                                                   {"b", round::DType::kF32, {41}}})
                                  .value();
  const auto model = [&](std::int64_t steps, std::uint64_t seed) {
    Buffer bytes(mixed.model_bytes());
    const std::vector<std::int64_t> integers = {1, steps % 3, 250, steps};
    EXPECT_TRUE(round::join_model(mixed, draw(seed, 341), integers, bytes.span()).ok());
    return bytes;
  };
  Training trained = training(1, "int8");
  trained.schema = mixed;
  trained.base = model(1, 1);
  trained.parts.clear();
  trained.parts.emplace_back(model(5, 2), 1);
  trained.parts.emplace_back(model(-9, 3), 3);
  expect_same(encode(moved(trained.job(), *gpus_)), encode(trained.job()), "on GPUs");
  EXPECT_EQ(gpus_->counts().encoded, 1u);
  UpdateJob some = trained.job();
  move(some, *gpus_, 1, 0);
  some.gpus = gpus_.get();
  expect_same(encode(some), encode(trained.job()), "one on the host");
}

TEST_F(GpuRouteTest, WhatIsNoNumberIsNamedAsOnTheHost) {
  const auto store = open_store(files_.emplace_back());
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -2e5F}) {
    for (const std::string& codec : {std::string("fp32"), std::string("topk:ratio=0.1"), on_host_alone()}) {
      Training trained = three(1, codec);
      std::vector<float> local = draw(9);
      local[917] = bad;
      trained.parts[1].first = bytes_of(local);
      const auto on_host = encode_update(trained.job(), *store, serial_);
      const auto on_gpu = encode_update(moved(trained.job(), *gpus_), *store, serial_);
      ASSERT_FALSE(on_host.ok());
      ASSERT_FALSE(on_gpu.ok());
      EXPECT_EQ(on_gpu.error(), on_host.error());
      const auto folded = fold_update(moved(trained.job(), *gpus_), *store, serial_);
      EXPECT_EQ(folded.error(), on_host.error());
    }
  }
  EXPECT_TRUE(store->all_pending()->empty());
  EXPECT_FALSE(gpus_->fault());
}

// The residual of late rounds exceeds what a parent takes: the same part of it is sent, and the same part stays.
TEST_F(GpuRouteTest, ALargeResidualIsFittedAsOnTheHost) {
  for (const double norm_max : {0.0, 8.0}) {
    for (const std::string& codec : kernels::test_values::codec_texts()) {
      if (codec.find("vote") != std::string::npos) continue;
      store::MemoryFileSystem host_files, gpu_files;
      const auto host = open_store(host_files), gpu = open_store(gpu_files);
      for (std::uint64_t round = 1; round <= 6; ++round) {
        Training trained = three(round, codec);
        trained.plan.value_abs_max = 1.5;
        trained.plan.update_norm_max = norm_max * 10;
        if (round <= 3) {
          ASSERT_TRUE(fold_update(trained.job(), *host, serial_).ok());
          ASSERT_TRUE(fold_update(moved(trained.job(), *gpus_), *gpu, serial_).ok());
          continue;
        }
        const store::PendingUpdate there = encode(moved(trained.job(), *gpus_), *gpu);
        expect_same(there, encode(trained.job(), *host), codec);
        EXPECT_TRUE(accepted(there, trained.plan).ok()) << codec;
        for (store::SiteStore* store : {host.get(), gpu.get()}) {
          ASSERT_TRUE(resolve_pending(*store, kRun, RoundId(round), round::Outcome::kCounted).ok());
        }
        EXPECT_EQ(gpu->residual(kRun)->norm, host->residual(kRun)->norm) << codec;
      }
    }
  }
  EXPECT_EQ(warned_, "");
}

TEST_F(GpuRouteTest, WhatIsNoNumberIsNamedBesideAResidual) {
  const auto store = open_store(files_.emplace_back());
  ASSERT_TRUE(fold_update(three(1, "int8").job(), *store, serial_).ok());
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(), -0x1p17F}) {
    Training trained = three(2, "int8");
    std::vector<float> local(kValues, 0.0F);
    local[917] = bad;
    trained.base = bytes_of(std::vector<float>(kValues, 0.0F));
    trained.parts.clear();
    trained.parts.emplace_back(bytes_of(local), 3);
    const auto on_host = encode_update(trained.job(), *store, serial_);
    const auto on_gpu = encode_update(moved(trained.job(), *gpus_), *store, serial_);
    ASSERT_FALSE(on_gpu.ok());
    EXPECT_EQ(on_gpu.error().code, on_host.error().code);
    EXPECT_EQ(on_gpu.error().message.substr(0, 20), on_host.error().message.substr(0, 20)) << "the same value's name";
    EXPECT_EQ(fold_update(moved(trained.job(), *gpus_), *store, serial_).error(), on_gpu.error());
  }
  EXPECT_TRUE(store->all_pending()->empty());
}

TEST_F(GpuRouteTest, WhatGpusCannotAddUpIsCopiedToTheHost) {
  const Training trained = three(1, "int8");
  const store::PendingUpdate expected = encode(trained.job());
  UpdateJob no_gpus = moved(trained.job(), *gpus_);
  no_gpus.gpus = nullptr;
  expect_same(encode(no_gpus), expected, "without GPUs to add them up");
  UpdateJob some = trained.job();
  move(some, *gpus_, 0, 0);
  move(some, *gpus_, 2, 0);
  some.gpus = gpus_.get();
  expect_same(encode(some), expected, "one worker is on the host");
  UpdateJob kinds = trained.job();
  kinds.parts[1].update = true;
  expect_same(encode(moved(kinds, *gpus_)), encode(kinds), "models and updates");
  EXPECT_EQ(gpus_->counts().summed, 0u);
  EXPECT_EQ(warned_, "");
}

// However much room there is: for nothing, for the sum only, for everything.
TEST_F(GpuRouteTest, WhatAGpuHasNoRoomForTheHostDoes) {
  const Training trained = three(1, "topk:ratio=0.1");
  const store::PendingUpdate expected = encode(trained.job());
  const UpdateJob job = moved(trained.job(), *gpus_);
  std::uint64_t summed_alone = 0;
  for (std::size_t room = 0; gpus_->counts().encoded == 0; room += 512) {
    ASSERT_LT(room, 1'000'000u);
    const SiteGpus::Counts before = gpus_->counts();
    kernels::emulated::limit_memory(kernels::emulated::memory_in_use(0) + room);
    expect_same(encode(job), expected, std::to_string(room) + " bytes");
    if (gpus_->counts().summed > before.summed && gpus_->counts().encoded == 0) ++summed_alone;
    if (room == 0) EXPECT_EQ(gpus_->counts().summed, 0u);
    gpus_->release();
  }
  kernels::emulated::limit_memory(std::numeric_limits<std::size_t>::max());
  EXPECT_GT(summed_alone, 0u);
  EXPECT_EQ(warned_.find("no room for an update of 1000 values on the GPU"), 0u) << warned_;
  EXPECT_FALSE(gpus_->fault());
}

TEST_F(GpuRouteTest, NorIsItAnErrorOnSeveral) {
  const std::shared_ptr<SiteGpus> several = site({{DeviceKind::kEmulated, 0}, {DeviceKind::kEmulated, 1}});
  const Training trained = three(1, "int8");
  const UpdateJob job = moved(trained.job(), *several);
  const std::size_t before = kernels::emulated::memory_in_use(0);
  for (std::size_t room = 512; several->counts().encoded == 0; room *= 2) {
    ASSERT_LT(room, std::size_t{1} << 30);
    kernels::emulated::limit_memory(before + room);
    const store::PendingUpdate update = encode(job);
    if (several->counts().summed == 0) expect_same(update, encode(trained.job()), std::to_string(room) + " bytes");
    several->release();
  }
  kernels::emulated::limit_memory(std::numeric_limits<std::size_t>::max());
  EXPECT_NE(warned_, "");
  EXPECT_FALSE(several->fault());
}

// Ranks of a group, each with its ranges of a vector on its GPU or of its memory.
TEST_F(GpuRouteTest, RanksOfAGroupAreOneResult) {
  const auto ranges = [](std::initializer_list<round::ByteRange> list) {
    round::ByteRanges set;
    for (const round::ByteRange& range : list) EXPECT_TRUE(set.add(range).ok());
    return set;
  };
  const Training trained = three(1, "int8");
  UpdateJob job = trained.job();
  const ByteSpan whole = job.parts[0].model;
  std::vector<float> first = draw(101), last = draw(101);
  std::fill(first.begin() + 300, first.end(), 1e30F);
  std::fill(last.begin(), last.begin() + 500, 1e30F);
  job.parts[0].model = {};
  job.parts[0].shards = {{.ranges = ranges({{2000, 2000}}), .gpu = on_gpu(*gpus_, 0, last)},
                         {.model = whole, .ranges = ranges({{1200, 800}})},
                         {.ranges = ranges({{0, 1200}}), .gpu = on_gpu(*gpus_, 0, first)}};
  job.gpus = gpus_.get();
  expect_same(encode(job), encode(trained.job()), "all averaged");

  Training counted = training(1, "int8");
  counted.schema =
      round::Schema::make(
          {{"w", round::DType::kF32, {500}}, {"steps", round::DType::kI64, {1}}, {"b", round::DType::kF32, {500}}})
          .value();
  const std::int64_t steps = 12;
  Buffer model(counted.schema.model_bytes());
  ASSERT_TRUE(round::join_model(counted.schema, draw(101), {&steps, 1}, model.span()).ok());
  counted.base = Buffer::copy_of(model.span());
  counted.parts.clear();
  counted.parts.emplace_back(Buffer::copy_of(model.span()), 20);
  UpdateJob ranked = counted.job();
  ranked.parts[0].model = {};
  ranked.parts[0].shards = {{.model = model.span(), .ranges = ranges({{0, 1200}}), .gpu = on_gpu(*gpus_, 0, first)},
                            {.model = counted.parts[0].first.span(), .ranges = ranges({{1200, 808}})},
                            {.model = model.span(), .ranges = ranges({{2008, 2000}}), .gpu = on_gpu(*gpus_, 0, last)}};
  expect_same(encode(ranked), encode(counted.job()), "with integers");
}

TEST_F(GpuRouteTest, EarlyRangesChangeNoBit) {
  const round::ByteRanges half = round::ByteRanges::whole(2 * kChunk * sizeof(float));
  for (const bool updates : {false, true}) {
    for (const std::string& codec : {std::string("topk:ratio=0.05"), on_host_alone()}) {
      const Training trained = three(1, codec);
      UpdateJob job = trained.job();
      for (PartView& part : job.parts) part.update = updates;
      const store::PendingUpdate expected = encode(job);
      UpdateJob there = moved(job, *gpus_);
      PartialMean early(job.layout(), job.reduction, gpus_.get());
      ASSERT_TRUE(early.reduce(job.schema, there.parts, half, serial_).ok());
      EXPECT_EQ(early.chunks_done(), 2u);
      there.early = &early;
      expect_same(encode(there), expected, codec);
    }
  }
  // An update that began on a GPU and is then made on the host begins anew.
  const Training trained = three(1, "int8");
  UpdateJob there = moved(trained.job(), *gpus_);
  PartialMean early(there.layout(), there.reduction, gpus_.get());
  ASSERT_TRUE(early.reduce(there.schema, there.parts, half, serial_).ok());
  there.early = &early;
  there.gpus = nullptr;
  expect_same(encode(there), encode(trained.job()), "on the host after all");
}

TEST_F(GpuRouteTest, SeveralGpusGiveTheSameUpdateToRounding) {
  for (const int count : {2, 3}) {
    std::vector<Device> devices;
    for (int i = 0; i < count; ++i) devices.push_back({DeviceKind::kEmulated, i});
    const std::shared_ptr<SiteGpus> several = site(devices);
    for (const bool updates : {false, true}) {
      const Training trained = three(1, "fp32");
      UpdateJob job = trained.job();
      for (PartView& part : job.parts) part.update = updates;
      const std::vector<float> got = p_of(encode(moved(job, *several)));
      const std::vector<float> expected = p_of(encode(job));
      for (std::size_t i = 0; i < expected.size(); ++i) ASSERT_NEAR(got[i], expected[i], 0x1p-22) << i;
    }
    // Workers on one GPU need no sum over GPUs.
    const Training trained = three(1, "int8");
    UpdateJob job = trained.job();
    for (std::size_t i = 0; i < job.parts.size(); ++i) move(job, *several, i, 1);
    job.gpus = several.get();
    expect_same(encode(job), encode(trained.job()), "all on the second");
    EXPECT_EQ(several->counts().encoded, 3u);
  }
}

TEST_F(GpuRouteTest, ACodecOfSeveralPassesIsRefusedAsOnTheHost) {
  const Training trained = three(1, "powersgd");
  const auto store = open_store(files_.emplace_back());
  const auto on_host = encode_update(trained.job(), *store, serial_);
  const auto on_gpu = encode_update(moved(trained.job(), *gpus_), *store, serial_);
  ASSERT_FALSE(on_gpu.ok());
  EXPECT_EQ(on_gpu.error(), on_host.error());
}

}  // namespace
}  // namespace fluvial::edge
