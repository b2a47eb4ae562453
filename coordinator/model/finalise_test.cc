#include "coordinator/model/finalise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

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
  FinaliseTest()
      : schema_(std::make_shared<const round::Schema>(
            *round::Schema::make({{"w", round::DType::kF32, {30, 20}}, {"steps", round::DType::kI64, {1}}}))),
        models_(*store::ModelStore::open(files_, "/models")),
        base_(schema_->model_bytes()) {
    std::memset(base_.data(), 0, base_.size());
    sum_.reset({{600, 256}, 1, kScale});
    add(1, 1, 2.0F, 5);
    add(2, 3, 4.0F, 9);
  }
  // A site whose pseudo-gradient is `value` everywhere and whose counter stands at `steps`.
  void add(std::uint32_t site, std::uint64_t weight, float value, std::int64_t steps) {
    transfer::StagedArrival arrival;
    arrival.kind = transfer::UpdateArrival{SiteId(site), *kernels::make_codec(*kernels::parse_codec("fp32")),
                                           round::probe_bytes()};
    arrival.child = SiteId(site);
    arrival.integers = {steps};
    ASSERT_TRUE(arrival.what.contributors.add({SiteId(site), Epoch(1), weight, {}, 0, {}}).ok());
    arrival.chunks.emplace(budget_, files_, "/spill", 1 << 20);
    for (const std::size_t count : {256, 256, 88}) {
      const std::vector<float> values(count, value);
      ASSERT_TRUE(arrival.chunks->append(Buffer::copy_of(std::as_bytes(std::span(values)))).ok());
    }
    const auto with_probes = sum_.add(arrival, serial_);
    ASSERT_TRUE(with_probes.ok());
    ASSERT_TRUE(record_.contributors.merge(*with_probes).ok());
  }
  Result<NextModel> run(Parallel& parallel, const std::string& optimizer) {
    record_.run = RunId(1);
    record_.round = RoundId(4);
    FinaliseInput input{
        record_, schema_, SharedBytes::from(Buffer::copy_of(base_.span())), *round::parse_server_optimizer(optimizer),
        {},      true};
    return finalise(parallel, sum_, models_, std::move(input));
  }

  store::MemoryFileSystem files_;
  store::StagingBudget budget_{1 << 20};
  std::shared_ptr<const round::Schema> schema_;
  store::ModelStore models_;
  Buffer base_;
  transfer::NodeSum sum_;
  round::CommitRecord record_;
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
  EXPECT_TRUE(models_.load({RunId(1), ModelVersion(4)}, next->ref.digest).ok());
}

TEST_F(FinaliseTest, TheSameBytesInWhateverOrderThePiecesRun) {
  Backwards backwards;
  for (const std::string optimizer : {"fedavg", "fedadam", "lamb"}) {
    const Result<NextModel> one = run(serial_, optimizer);
    const Result<NextModel> other = run(backwards, optimizer);
    ASSERT_TRUE(one.ok() && other.ok()) << optimizer;
    EXPECT_EQ(one->ref.digest, other->ref.digest) << optimizer;
    EXPECT_EQ(one->optimizer_state, other->optimizer_state) << optimizer;
    EXPECT_EQ(one->step_norm, other->step_norm) << optimizer;
    EXPECT_EQ(one->sum_digest, other->sum_digest);
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

}  // namespace
}  // namespace fluvial::coordinator
