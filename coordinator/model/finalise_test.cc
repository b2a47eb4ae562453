#include "coordinator/model/finalise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <thread>

#include "core/digest/model_digest.h"
#include "core/digest/sha256.h"
#include "core/store/memory_file_system.h"

namespace fluvial::coordinator {
namespace {

// Pieces from the last to the first, each on a thread of its own: an order that a pool might take.
class Backwards final : public Parallel {
 public:
  Status for_each(std::size_t count, const std::function<Status(std::size_t)>& f) override {
    Status first;
    for (std::size_t i = count; i-- > 0;) {
      std::thread([&] {
        if (Status status = f(i); !status.ok()) first = std::move(status);
      }).join();
    }
    return first;
  }
};

constexpr int kScale = 20;

class FinaliseTest : public testing::Test {
 protected:
  FinaliseTest() : FinaliseTest({{"w", round::DType::kF32, {30, 20}}, {"steps", round::DType::kI64, {1}}}) {}
  explicit FinaliseTest(std::vector<round::Tensor> tensors) : models_(*store::ModelStore::open(files_, "/models")) {
    of_another_model(std::move(tensors), 256);
    add(1, 1, std::vector<float>(600, 2.0F), 5);
    add(2, 3, std::vector<float>(600, 4.0F), 9);
  }
  // Nobody has contributed. The base is what it was where it is as long.
  void of_another_model(std::vector<round::Tensor> tensors, std::uint64_t chunk_values) {
    schema_ = std::make_shared<const round::Schema>(*round::Schema::make(std::move(tensors)));
    base_.resize(schema_->model_bytes());
    sum_.reset({{schema_->value_count(), chunk_values}, schema_->integer_count(), kScale});
    record_ = {};
  }
  // A site with this pseudo-gradient, whose counter stands at `steps`.
  void add(std::uint32_t site, std::uint64_t weight, std::span<const float> values, std::int64_t steps) {
    transfer::StagedArrival arrival;
    arrival.kind = transfer::UpdateArrival{SiteId(site), *kernels::make_codec(*kernels::parse_codec("fp32")),
                                           round::probe_bytes()};
    arrival.child = SiteId(site);
    if (schema_->integer_count() > 0) arrival.integers = {steps};
    ASSERT_TRUE(arrival.what.contributors.add({SiteId(site), Epoch(1), weight, {}, 0, {}}).ok());
    arrival.chunks.emplace(budget_, files_, "/spill", 1 << 20);
    const kernels::ChunkLayout& layout = sum_.shape().layout;
    for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
      ASSERT_TRUE(arrival.chunks->append(Buffer::copy_of(std::as_bytes(layout.of(values, i)))).ok());
    }
    const auto with_probes = sum_.add(arrival, serial_);
    ASSERT_TRUE(with_probes.ok());
    ASSERT_TRUE(record_.contributors.merge(*with_probes).ok());
  }
  Result<NextModel> run(Parallel& parallel, const std::string& optimizer, const std::string& codec = "fp32") {
    record_.run = RunId(1);
    record_.round = RoundId(4);
    FinaliseInput input{record_,
                        divisor_.value_or(round::by_weights(record_.contributors)),
                        schema_,
                        SharedBytes::from(Buffer::copy_of(base_)),
                        *round::parse_server_optimizer(optimizer),
                        {},
                        true,
                        *kernels::parse_codec(codec)};
    std::vector<TrainedModel> ahead;
    input.ahead = [&](const TrainedModel& model) { ahead.push_back(model); };
    Result<NextModel> next = finalise(parallel, sum_, models_, std::move(input));
    if (next.ok()) {
      EXPECT_EQ(ahead.size(), 1U);
      EXPECT_EQ(next->trained.tree, *model_tree_digest(serial_, next->trained.bytes.bytes));
      EXPECT_EQ(ahead.front().ref, round::called_ahead(next->trained.ref, *next->trained.tree));
      EXPECT_EQ(ahead.front().bytes.bytes.data(), next->trained.bytes.bytes.data()) << "nothing is copied";
    }
    return next;
  }

  store::MemoryFileSystem files_;
  store::StagingBudget budget_{1 << 20};
  std::shared_ptr<const round::Schema> schema_;
  store::ModelStore models_;
  std::vector<std::byte> base_;
  transfer::NodeSum sum_;
  round::CommitRecord record_;
  std::optional<round::Divisor> divisor_;  // none: the weights
  Serial serial_;
};

TEST_F(FinaliseTest, TheWeightedMeanIsSubtractedAndTheModelIsOnTheDisk) {
  const Result<NextModel> next = run(serial_, "fedavg");
  ASSERT_TRUE(next.ok()) << next.error().to_string();
  float first = 0;
  std::memcpy(&first, next->bytes.bytes.data(), sizeof first);
  EXPECT_EQ(first, -(1 * 2.0F + 3 * 4.0F) / 4);
  std::vector<float> values(600);
  std::vector<std::int64_t> integers(1);
  round::split_model(*schema_, next->bytes.bytes, values, integers);
  EXPECT_EQ(integers[0], 9) << "the greatest counter";
  EXPECT_TRUE(next->sum_digest);
  EXPECT_DOUBLE_EQ(next->step_norm, 3.5 * std::sqrt(600.0)) << "of the averaged values";
  files_.restart(store::Unsynced::kLost);
  EXPECT_TRUE(models_.load({RunId(1), ModelVersion(4)}, next->trained.ref.digest).ok());
}

TEST_F(FinaliseTest, TheSumIsDividedByWhatTheMachineSays) {
  divisor_ = round::Divisor{3 * 512, 9};
  const Result<NextModel> next = run(serial_, "fedavg");
  ASSERT_TRUE(next.ok()) << next.error().to_string();
  float first = 0;
  std::memcpy(&first, next->bytes.bytes.data(), sizeof first);
  EXPECT_EQ(first, -static_cast<float>((1 * 2.0 + 3 * 4.0) / 3));
}

TEST_F(FinaliseTest, TheSameBytesInWhateverOrderThePiecesRun) {
  Backwards backwards;
  for (const std::string optimizer : {"fedavg", "fedadam", "lamb", "delayed_nesterov", "onebit_adam"}) {
    const std::string codec = optimizer == "onebit_adam" ? "onebit_adam:freeze=3" : "fp32";
    const Result<NextModel> one = run(serial_, optimizer, codec);
    const Result<NextModel> other = run(backwards, optimizer, codec);
    ASSERT_TRUE(one.ok() && other.ok()) << optimizer;
    EXPECT_EQ(one->trained.ref.digest, other->trained.ref.digest) << optimizer;
    EXPECT_EQ(one->optimizer_state, other->optimizer_state) << optimizer;
    EXPECT_EQ(one->step_norm, other->step_norm) << optimizer;
    EXPECT_EQ(one->sum_digest, other->sum_digest);
    EXPECT_EQ(one->codec_state.has_value(), optimizer == "onebit_adam");
    if (one->codec_state) EXPECT_EQ(one->codec_state->ref, other->codec_state->ref);
  }
}

TEST_F(FinaliseTest, NothingIsWrittenOfASumThatDisagreesWithItsSet) {
  round::Contribution wrong = *record_.contributors.find(SiteId(2));
  wrong.probe += 1;
  round::ContributorSet set;
  ASSERT_TRUE(set.add(*record_.contributors.find(SiteId(1))).ok() && set.add(wrong).ok());
  record_.contributors = set;
  const Result<NextModel> next = run(serial_, "fedavg");
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, Code::kDataLoss);
  EXPECT_TRUE(models_.list()->empty());
}

TEST_F(FinaliseTest, NothingIsWrittenOfASumThatHoldsSomebodyElseToo) {
  round::ContributorSet set;
  ASSERT_TRUE(set.add(*record_.contributors.find(SiteId(1))).ok());
  record_.contributors = set;
  const Result<NextModel> next = run(serial_, "fedavg");
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, Code::kDataLoss);
  EXPECT_TRUE(models_.list()->empty());
}

// In the commit of its last round of warm-up, and in each one after it.
TEST_F(FinaliseTest, OnebitAdamHandsItsMomentumDown) {
  const auto with = [](int freeze) { return "onebit_adam:block=128,freeze=" + std::to_string(freeze); };
  const Result<NextModel> before = run(serial_, "onebit_adam:lr=1", with(5));
  ASSERT_TRUE(before.ok()) << before.error().to_string();
  EXPECT_FALSE(before->codec_state);
  EXPECT_NEAR(before->optimizer_state[7], 0.35F, 1e-6F) << "beta1 * 0 + (1 - beta1) * 3.5";
  EXPECT_NEAR(before->optimizer_state[607], 0.001F * 3.5F * 3.5F, 1e-6F);
  const float ratio = 0.35F / (std::sqrt(0.01225F) + 1e-3F);
  float first = 0;
  std::memcpy(&first, before->bytes.bytes.data(), sizeof first);
  EXPECT_NEAR(first, -ratio, 1e-4F);

  const Result<NextModel> last = run(serial_, "onebit_adam:lr=1", with(4));
  ASSERT_TRUE(last.ok()) << last.error().to_string();
  EXPECT_TRUE(std::ranges::equal(last->bytes.bytes, before->bytes.bytes)) << "the model steps as in any other";
  ASSERT_TRUE(last->codec_state);
  EXPECT_EQ(last->codec_state->ref.digest, sha256(last->codec_state->bytes.bytes));
  const auto sign = *kernels::make_codec(*kernels::parse_codec("sign:block=128"));
  std::vector<float> momentum(256);
  const ByteSpan chunk = last->codec_state->bytes.bytes.first(8 + 2 * 4 + 256 / 8);
  ASSERT_TRUE(sign->decode_chunk(chunk, momentum).ok());
  EXPECT_EQ(momentum[7], before->optimizer_state[7]) << "equal values are their own mean";
  EXPECT_EQ(last->optimizer_state[7], 0.0F) << "and nothing of them is left";
  EXPECT_EQ(last->optimizer_state[607], before->optimizer_state[607]);

  const Result<NextModel> frozen = run(serial_, "onebit_adam:lr=1", with(3));
  ASSERT_TRUE(frozen.ok()) << frozen.error().to_string();
  EXPECT_TRUE(frozen->codec_state);
  EXPECT_EQ(frozen->optimizer_state[607], 0.0F) << "the variance is what it was";
  files_.restart(store::Unsynced::kLost);
  EXPECT_TRUE(models_.load_codec_state(frozen->optimizer_file, frozen->codec_state->ref.digest).ok());
}

TEST_F(FinaliseTest, TheCodecSaysBeta1) {
  const Result<NextModel> next = run(serial_, "onebit_adam:lr=1", "onebit_adam:freeze=5,beta1=0.75");
  ASSERT_TRUE(next.ok()) << next.error().to_string();
  EXPECT_EQ(next->optimizer_state[7], 0.25F * 3.5F);
}

// Every tensor is averaged: bytes, digest and file are made at once.
class FlatFinaliseTest : public FinaliseTest {
 protected:
  FlatFinaliseTest() : FinaliseTest({{"w", round::DType::kF32, {30, 20}}}) {}
  void put(std::size_t index, float value) { std::memcpy(base_.data() + index * sizeof value, &value, sizeof value); }
};

TEST_F(FlatFinaliseTest, TheDigestAndTheFileAreOfTheModel) {
  for (std::size_t i = 0; i < 600; ++i) put(i, static_cast<float>(i));
  Backwards backwards;
  for (Parallel* const parallel : {static_cast<Parallel*>(&serial_), static_cast<Parallel*>(&backwards)}) {
    const Result<NextModel> next = run(*parallel, "fedavg");
    ASSERT_TRUE(next.ok()) << next.error().to_string();
    for (std::size_t i = 0; i < 600; ++i) {
      float value = 0;
      std::memcpy(&value, next->bytes.bytes.data() + i * sizeof value, sizeof value);
      ASSERT_EQ(value, static_cast<float>(i) - 3.5F);
    }
    EXPECT_EQ(next->trained.ref.digest, store::model_digest(next->bytes.bytes));
    EXPECT_DOUBLE_EQ(next->step_norm, 3.5 * std::sqrt(600.0));
    files_.restart(store::Unsynced::kLost);
    const auto loaded = models_.load({RunId(1), ModelVersion(4)}, next->trained.ref.digest);
    ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
    EXPECT_TRUE(std::ranges::equal(loaded->bytes.span(), next->bytes.bytes));
  }
}

constexpr std::size_t kValues = 150'000;  // several tasks of several cuts

// Steps whose coordinates are independent go by smaller pieces than a plan's chunks, in whatever order these run.
TEST_F(FlatFinaliseTest, TheModelIsTheSameOfLargeChunksAsOfSmallOnes) {
  Backwards backwards;
  base_.resize(kValues * sizeof(float));
  std::vector<float> values(kValues);
  for (std::size_t i = 0; i < kValues; ++i) {
    values[i] = std::sin(static_cast<float>(i));
    put(i, values[i] / 3);
  }
  for (const std::string optimizer : {"fedavg", "fedavgm", "fedadam", "nesterov", "delayed_nesterov", "signsgd"}) {
    std::vector<NextModel> made;
    for (const std::uint64_t chunk_values : {std::uint64_t{kValues}, std::uint64_t{70'000}, std::uint64_t{999}}) {
      of_another_model({{"w", round::DType::kF32, {kValues}}}, chunk_values);
      add(1, 2, values, 0);
      Result<NextModel> next = run(serial_, optimizer);
      ASSERT_TRUE(next.ok()) << next.error().to_string();
      made.push_back(*std::move(next));
      EXPECT_EQ(made.back().master, made.front().master) << optimizer << " in chunks of " << chunk_values;
      EXPECT_EQ(made.back().optimizer_state, made.front().optimizer_state) << optimizer;
      EXPECT_NEAR(made.back().step_norm / made.front().step_norm, 1, 1e-12) << "its last digits are of the cuts";
      const Result<NextModel> other = run(backwards, optimizer);
      ASSERT_TRUE(other.ok()) << other.error().to_string();
      EXPECT_EQ(other->master, made.back().master) << optimizer << " in chunks of " << chunk_values;
      EXPECT_EQ(other->optimizer_state, made.back().optimizer_state) << optimizer;
      EXPECT_EQ(other->step_norm, made.back().step_norm) << optimizer;
      const auto loaded = models_.load({RunId(1), ModelVersion(4)}, made.back().trained.ref.digest);
      ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
      EXPECT_TRUE(std::ranges::equal(loaded->bytes.span(), made.back().bytes.bytes));
    }
    EXPECT_EQ(made.front().trained.ref.digest, store::model_digest(made.front().bytes.bytes));
    EXPECT_GT(made.front().step_norm, 0) << optimizer;
  }
}

// Norms of layers, and 1-bit Adam's blocks, are of the plan's chunks, which every audit cuts again.
TEST_F(FlatFinaliseTest, StepsThatAreOfChunksAreCutAsThePlanSays) {
  const kernels::ChunkLayout layout{kValues, 90'000};
  std::vector<float> values(kValues);
  of_another_model({{"w", round::DType::kF32, {150, 1'000}}}, layout.chunk_values);
  for (std::size_t i = 0; i < kValues; ++i) {
    values[i] = std::sin(static_cast<float>(i));
    put(i, values[i] / 3);
  }
  add(1, 2, values, 0);
  for (const std::string optimizer : {"lars", "lamb", "onebit_adam"}) {
    const std::string codec = optimizer == "onebit_adam" ? "onebit_adam:freeze=3" : "fp32";
    const Result<NextModel> next = run(serial_, optimizer, codec);
    ASSERT_TRUE(next.ok()) << next.error().to_string();
    const auto rule = *round::parse_server_optimizer(optimizer);
    aggregate::ServerStep step(rule, layout, aggregate::layers_of(*schema_, rule), 4, 2, *kernels::parse_codec(codec));
    std::vector<float> state = aggregate::initial_state(rule, kValues), mean(kValues), model(kValues);
    std::memcpy(model.data(), base_.data(), base_.size());
    ASSERT_TRUE(sum_.accumulator().mean(0, 2, mean).ok());
    const std::span<const float> means = mean;
    Buffer handed(step.handed_bytes());
    for (std::size_t i = 0; step.has_norms() && i < layout.chunk_count(); ++i) {
      ASSERT_TRUE(step.measure(i, layout.of(means, i), state, layout.of(std::span(model), i)).ok());
    }
    if (step.has_norms()) step.close();
    for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
      ASSERT_TRUE(step.apply(i, layout.of(means, i), state, layout.of(std::span(model), i), handed.span()).ok());
    }
    EXPECT_TRUE(std::ranges::equal(next->bytes.bytes, std::as_bytes(std::span(model)))) << optimizer;
    EXPECT_EQ(next->optimizer_state, state) << optimizer;
    ASSERT_EQ(next->codec_state.has_value(), handed.size() > 0) << optimizer;
    if (next->codec_state) EXPECT_TRUE(std::ranges::equal(next->codec_state->bytes.bytes, handed.span())) << optimizer;
  }
}

TEST_F(FlatFinaliseTest, NoFileStaysOfAModelThatIsNotFinite) {
  of_another_model({{"w", round::DType::kF32, {kValues}}}, kValues);
  add(1, 2, std::vector<float>(kValues), 0);
  put(140'000, -std::numeric_limits<float>::infinity());
  const Result<NextModel> next = run(serial_, "fedavg");
  ASSERT_FALSE(next.ok());
  EXPECT_EQ(next.error().code, Code::kDataLoss);
  EXPECT_TRUE(files_.list("/models/run-1")->empty()) << "what comes before was written";
}

TEST_F(FlatFinaliseTest, NoFileStaysOnADiskThatIsFull) {
  std::uint64_t failed = 0;
  for (std::uint64_t at = 0;; ++at) {
    files_.fail_at(at, store::Fault::kNoSpace);
    const Result<NextModel> next = run(serial_, "fedadam");
    files_.clear_fault();
    if (next.ok()) break;
    ++failed;
    EXPECT_FALSE(*files_.exists("/models/run-1/round-4.safetensors.tmp")) << "operation " << at;
  }
  EXPECT_GT(failed, 8u);
}

}  // namespace
}  // namespace fluvial::coordinator
