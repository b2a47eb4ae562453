// The model that sites train from, round by round, against arithmetic of its own.
#include "coordinator/model/trained.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "coordinator/model/finalise.h"
#include "core/digest/model_digest.h"
#include "core/digest/sha256.h"
#include "core/store/memory_file_system.h"
#include "kernels/reference/reference.h"

namespace fluvial::coordinator {
namespace {

constexpr int kTrainedScale = 24;
constexpr std::uint64_t kChunkValues = 256;
constexpr std::uint64_t kTrainedValues = 600;

// Decodes what travelled, by the reference's own reading (docs/formats/model.md).
std::vector<float> by_hand(const SharedForm& form, const std::vector<float>& before) {
  std::vector<float> values = form.form.base ? before : std::vector<float>(kTrainedValues);
  ByteSpan encoded = form.bytes.bytes;
  for (std::size_t first = 0; first < kTrainedValues; first += kChunkValues) {
    const std::size_t count = std::min<std::size_t>(kChunkValues, kTrainedValues - first);
    std::uint32_t size = 0;
    std::memcpy(&size, encoded.data(), sizeof size);
    const auto chunk = kernels::reference::decode(form.form.codec, encoded.subspan(4, size), count);
    EXPECT_TRUE(chunk);
    for (std::size_t i = 0; i < count; ++i) {
      const auto decoded = static_cast<float>((*chunk)[i]);
      values[first + i] = form.form.base ? values[first + i] + decoded + 0.0F : decoded;
    }
    encoded = encoded.subspan(4 + size);
  }
  return values;
}

// A run with two sites, one round after the other.
class DownTest : public testing::Test {
 protected:
  DownTest() : models_(*store::ModelStore::open(files_, "/models")) {
    for (std::size_t i = 0; i < kTrainedValues; ++i) master_[i] = std::sin(static_cast<float>(i));
    trained_ = master_;
    bytes_ = bytes_of(master_);
    last_.ref = {RunId(1), ModelVersion(0), sha256(bytes_.span()), bytes_.size()};
    last_.bytes = SharedBytes::from(Buffer::copy_of(bytes_.span()));
  }
  Buffer bytes_of(const std::vector<float>& values) const {
    Buffer bytes(schema_->model_bytes());
    const std::vector<std::int64_t> integers = {static_cast<std::int64_t>(round_)};
    EXPECT_TRUE(round::join_model(*schema_, values, integers, bytes.span()).ok());
    return bytes;
  }
  // What a site of `weight` gives to this round.
  float update(std::uint64_t weight, std::size_t i) const {
    return 0.01F * std::cos(static_cast<float>(weight * 31 + round_ * 17 + i));
  }
  void add(transfer::NodeSum& sum, round::CommitRecord& record, std::uint32_t site, std::uint64_t weight) {
    transfer::StagedArrival arrival;
    arrival.kind = transfer::UpdateArrival{SiteId(site), *kernels::make_codec(*kernels::parse_codec("fp32")),
                                           round::probe_bytes()};
    arrival.child = SiteId(site);
    arrival.integers = {static_cast<std::int64_t>(round_)};
    ASSERT_TRUE(arrival.what.contributors.add({SiteId(site), Epoch(1), weight, {}, 0, {}}).ok());
    arrival.chunks.emplace(budget_, files_, "/spill", 1 << 20);
    for (std::size_t first = 0; first < kTrainedValues; first += kChunkValues) {
      std::vector<float> chunk(std::min<std::size_t>(kChunkValues, kTrainedValues - first));
      for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = update(weight, first + i);
      ASSERT_TRUE(arrival.chunks->append(Buffer::copy_of(std::as_bytes(std::span(chunk)))).ok());
    }
    const auto with_probes = sum.add(arrival, serial_);
    ASSERT_TRUE(with_probes.ok() && record.contributors.merge(*with_probes).ok());
  }
  Result<NextModel> finalise_round(const aggregate::Down& down, float lr) {
    ++round_;
    transfer::NodeSum sum;
    sum.reset({{kTrainedValues, kChunkValues}, schema_->integer_count(), kTrainedScale});
    round::CommitRecord record;
    record.run = RunId(1);
    record.round = RoundId(round_);
    add(sum, record, 1, 1);
    add(sum, record, 2, 3);
    FinaliseInput input{.record = record,
                        .divisor = round::by_weights(record.contributors),
                        .schema = schema_,
                        .base = SharedBytes::from(Buffer::copy_of(bytes_.span())),
                        .optimizer = *round::parse_server_optimizer("fedavg"),
                        .optimizer_state = {}};
    input.optimizer.lr = lr;
    input.down = {down, kChunkValues};
    input.trained_before = aggregate::BaseModel{last_.ref, last_.bytes.bytes};
    for (std::size_t i = 0; i < kTrainedValues; ++i) {  // in exact integers, as the sum is
      const std::int64_t one = *kernels::reference::fixed_term(update(1, i), 1, kTrainedScale);
      const std::int64_t two = *kernels::reference::fixed_term(update(3, i), 3, kTrainedScale);
      const float mean = kernels::reference::mean(one + two, kTrainedScale, 4);
      master_[i] = static_cast<float>(double{master_[i]} - double{lr} * double{mean});
    }
    ahead_.clear();
    input.ahead = [this](const TrainedModel& model) { ahead_.push_back(model); };
    Result<NextModel> next = finalise(serial_, sum, models_, std::move(input));
    if (next.ok()) expect_told_ahead(next->trained);
    return next;
  }
  // Once, and all but its name.
  void expect_told_ahead(const TrainedModel& trained) {
    ASSERT_EQ(ahead_.size(), 1U);
    const TrainedModel& told = ahead_.front();
    EXPECT_EQ(trained.tree, *model_tree_digest(serial_, trained.bytes.bytes));
    EXPECT_EQ(told.ref, round::called_ahead(trained.ref, *trained.tree));
    EXPECT_TRUE(std::ranges::equal(told.bytes.bytes, trained.bytes.bytes));
    ASSERT_EQ(told.form.has_value(), trained.form.has_value());
    if (told.form) {
      EXPECT_EQ(told.form->form, trained.form->form);
    }
  }

  store::MemoryFileSystem files_;
  store::StagingBudget budget_{1 << 20};
  std::shared_ptr<const round::Schema> schema_ = std::make_shared<const round::Schema>(
      *round::Schema::make({{"w", round::DType::kF32, {30, 20}}, {"steps", round::DType::kI64, {1}}}));
  store::ModelStore models_;
  Serial serial_;
  std::uint64_t round_ = 0;
  std::vector<float> master_ = std::vector<float>(kTrainedValues);
  std::vector<float> trained_;
  Buffer bytes_;                     // of the master
  TrainedModel last_;                // of the round before
  std::vector<TrainedModel> ahead_;  // that were told of before they had a name
};

TEST_F(DownTest, MasterAndTrainedModelFollowTheirDefinitions) {
  const auto initial = master_;
  for (const std::string text : {"fp32", "fp16", "bf16", "delta:int8", "delta:topk:ratio=0.1"}) {
    round_ = 0;
    master_ = trained_ = initial;
    bytes_ = bytes_of(master_);
    last_ = {{RunId(1), ModelVersion(0), sha256(bytes_.span()), bytes_.size()},
             SharedBytes::from(Buffer::copy_of(bytes_.span())),
             {},
             {}};
    const aggregate::Down down = aggregate::parse_down(text).value();
    for (int i = 0; i < 5; ++i) {
      Result<NextModel> next = finalise_round(down, 0.5F);
      ASSERT_TRUE(next.ok()) << text << ": " << next.error().to_string();
      bytes_ = bytes_of(master_);
      EXPECT_EQ(next->master, sha256(bytes_.span())) << text << " round " << round_;
      EXPECT_TRUE(std::ranges::equal(next->bytes.bytes, ByteSpan(bytes_.span()))) << text;
      ASSERT_EQ(next->trained.form.has_value(), text != "fp32") << next->trained.whole_because;
      trained_ = text == "fp32" ? master_ : by_hand(*next->trained.form, trained_);
      const Buffer trained = bytes_of(trained_);
      EXPECT_EQ(next->trained.ref.digest, sha256(trained.span())) << text << " round " << round_;
      EXPECT_EQ(next->trained.ref.version, ModelVersion(round_));
      double left_out = 0;
      for (std::size_t k = 0; k < kTrainedValues; ++k)
        left_out += std::pow(double{master_[k]} - double{trained_[k]}, 2);
      EXPECT_NEAR(next->trained.left_out_norm, std::sqrt(left_out), 1e-12) << text;
      if (down.kind == aggregate::Down::Kind::kDelta) {
        EXPECT_EQ(next->trained.form->form.base, last_.ref) << "from what sites trained from before";
      }
      last_ = std::move(next->trained);
    }
  }
}

// After a crash both are there, or neither.
TEST_F(DownTest, WhatADifferenceBeginsAtIsOnTheDisk) {
  const aggregate::Down down = aggregate::parse_down("delta:int8").value();
  const Result<NextModel> next = finalise_round(down, 1);
  ASSERT_TRUE(next.ok());
  files_.restart(store::Unsynced::kLost);
  const round::ModelKey key{RunId(1), ModelVersion(1)};
  ASSERT_NE(next->master, next->trained.ref.digest);
  EXPECT_TRUE(models_.load(key, next->master).ok());
  const auto trained = models_.load(key, next->trained.ref.digest, store::ModelFile::kTrained);
  ASSERT_TRUE(trained.ok());
  EXPECT_TRUE(std::ranges::equal(trained->bytes.span(), next->trained.bytes.bytes));
  // What travels is made again of the two, to the same bytes.
  const Result<TrainedModel> again =
      make_trained(serial_, {down, kChunkValues}, *schema_, {key, next->master, next->bytes},
                   aggregate::BaseModel{last_.ref, last_.bytes.bytes});
  ASSERT_TRUE(again.ok() && again->form);
  EXPECT_EQ(again->ref, next->trained.ref);
  EXPECT_TRUE(std::ranges::equal(again->form->bytes.bytes, next->trained.form->bytes.bytes));
}

// The journal's number of a run decides nothing: the same plan twice comes to the same models.
TEST_F(DownTest, WhatIsDrawnGoesByThePlansSeedAndNotByTheRunsNumber) {
  for (const std::string text : {"delta:int8", "delta:int4", "delta:randk:ratio=0.1"}) {
    const aggregate::Down down = aggregate::parse_down(text).value();
    const auto made = [&](RunId run, std::uint64_t seed, std::uint64_t version) {
      const Buffer next = bytes_of(std::vector<float>(kTrainedValues, 0.37F));
      const Master master{
          {run, ModelVersion(version)}, sha256(next.span()), SharedBytes::from(Buffer::copy_of(next.span()))};
      const aggregate::BaseModel before{last_.ref, last_.bytes.bytes};
      return make_trained(serial_, {down, kChunkValues, seed}, *schema_, master, before).value().ref.digest;
    };
    EXPECT_EQ(made(RunId(1), 7, 1), made(RunId(2), 7, 1)) << text;
    EXPECT_NE(made(RunId(1), 7, 1), made(RunId(1), 8, 1)) << text;
    EXPECT_NE(made(RunId(1), 7, 1), made(RunId(1), 7, 2)) << text;
  }
}

TEST_F(DownTest, ARoundedModelNeedsNoFileOfItsOwn) {
  ASSERT_TRUE(finalise_round(aggregate::parse_down("bf16").value(), 1).ok());
  EXPECT_FALSE(*files_.exists("/models/run-1/round-1.trained.safetensors"));
}

TEST_F(DownTest, WhatTheCodecDoesNotHoldTravelsWhole) {
  master_[7] = 1e6F;
  bytes_ = bytes_of(master_);
  const Result<NextModel> next = finalise_round(aggregate::parse_down("fp16").value(), 1);
  ASSERT_TRUE(next.ok());
  EXPECT_FALSE(next->trained.form);
  EXPECT_EQ(next->trained.ref.digest, next->master);
  EXPECT_NE(next->trained.whole_because.find("does not hold"), std::string::npos) << next->trained.whole_because;
}

TEST_F(DownTest, ADifferenceThatIsNoSmallerTravelsWhole) {
  for (const auto& [text, is_smaller] : {std::pair{"delta:topk:ratio=0.5", true}, {"delta:topk:ratio=1", false}}) {
    const Result<NextModel> next = finalise_round(aggregate::parse_down(text).value(), 1);
    ASSERT_TRUE(next.ok());
    EXPECT_EQ(next->trained.form.has_value(), is_smaller) << text;
    EXPECT_EQ(next->trained.ref.digest == next->master, !is_smaller) << text;
    EXPECT_EQ(next->trained.whole_because.empty(), is_smaller) << text;
    last_ = std::move(next->trained);
  }
}

TEST_F(DownTest, TheInitialModelTravelsWhole) {
  const Master initial{{RunId(1), ModelVersion(0)}, last_.ref.digest, last_.bytes};
  const Result<TrainedModel> trained =
      make_trained(serial_, {aggregate::parse_down("fp16").value(), kChunkValues}, *schema_, initial, {});
  ASSERT_TRUE(trained.ok());
  EXPECT_EQ(trained->ref, last_.ref);
  EXPECT_FALSE(trained->form);
}

}  // namespace
}  // namespace fluvial::coordinator
