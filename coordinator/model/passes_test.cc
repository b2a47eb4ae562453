// A round of two passes, from the sites' matrices to the next model and state. The oracle is kernels/reference, in
// fp64, and the sums are made again by a loop of their own.
#include "coordinator/model/passes.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <thread>

#include "coordinator/model/finalise.h"
#include "core/digest/sha256.h"
#include "core/store/memory_file_system.h"
#include "kernels/reference/powersgd.h"
#include "kernels/stream_key.h"

namespace fluvial::coordinator {
namespace {

namespace reference = kernels::reference;

constexpr int kPassScale = 30;
constexpr std::size_t kRows = 30, kCols = 40, kPlain = 7, kRank = 2;
constexpr std::uint64_t kChunk = 256;
constexpr aggregate::MeanOf kFirst{Epoch(5), AttemptId(2), 0};

class PassesBackwards final : public Parallel {
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

struct Site {
  SiteId id;
  std::uint64_t weight = 0;
  std::vector<float> update;
  Buffer state;
};

std::span<const float> floats(ByteSpan bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};  // NOLINT
}

class PassesTest : public testing::Test {
 protected:
  PassesTest()
      : schema_(std::make_shared<const round::Schema>(
            *round::Schema::make({{"w", round::DType::kF32, {kRows, kCols}}, {"b", round::DType::kF32, {kPlain}}}))),
        shapes_(*schema_, kChunk),
        codec_(*kernels::make_codec(*kernels::parse_codec("powersgd:rank=2"))),
        models_(*store::ModelStore::open(files_, "/models")) {
    for (std::uint32_t i = 1; i <= 3; ++i) {
      Site site{SiteId(i), 2 * i - 1, std::vector<float>(kRows * kCols + kPlain), {}};
      for (std::size_t k = 0; k < site.update.size(); ++k) {
        site.update[k] = static_cast<float>(std::sin(static_cast<double>(k * i + 7 * i)) / 8);
      }
      site.state = Buffer(codec_->state_bytes(shapes_.schema()));
      std::memset(site.state.data(), 0, site.state.size());
      sites_.push_back(std::move(site));
    }
  }

  // What these sites send in the pass, in a sum.
  round::ContributorSet gather(std::uint32_t pass, std::span<const float> mean, std::initializer_list<std::size_t> in) {
    const kernels::ChunkLayout layout = codec_->pass_layout(shapes_.schema(), pass);
    sum_.reset({layout, 0, kPassScale});
    sent_.clear();
    round::ContributorSet set;
    for (const std::size_t i : in) {
      Site& site = sites_[i];
      Buffer workspace(codec_->workspace_bytes(shapes_.schema()));
      const auto plan = codec_->prepare(shapes_.schema(), site.update, key_, {.pass = pass, .reduced = mean},
                                        site.state.span(), workspace.span());
      EXPECT_TRUE(plan.ok()) << plan.error().to_string();
      for (std::size_t part = 0; part < plan->parts; ++part) EXPECT_TRUE(codec_->prepare_part(*plan, part).ok());
      transfer::StagedArrival arrival;
      arrival.kind = transfer::UpdateArrival{site.id, codec_, round::probe_bytes()};
      arrival.child = site.id;
      EXPECT_TRUE(arrival.what.contributors.add({site.id, Epoch(1), site.weight, {}, 0, {}}).ok());
      arrival.chunks.emplace(budget_, files_, "/spill", 1 << 20);
      for (std::size_t chunk = 0; chunk < layout.chunk_count(); ++chunk) {
        const std::span<const float> values = layout.of(plan->values, chunk);
        Buffer bytes(codec_->encoded_bytes_max(values.size()));
        const std::size_t size = *codec_->encode_chunk(*plan, chunk, values, bytes.span());
        EXPECT_TRUE(arrival.chunks->append(Buffer::copy_of(bytes.span().first(size))).ok());
      }
      sent_.push_back({site.weight, {plan->values.begin(), plan->values.end()}});
      const auto added = sum_.add(arrival, serial_);
      EXPECT_TRUE(added.ok() && set.merge(*added).ok());
    }
    return set;
  }
  // As docs/design/fixed-point.md says.
  std::vector<float> expected_mean() const {
    std::vector<float> mean(sent_.front().second.size());
    for (std::size_t k = 0; k < mean.size(); ++k) {
      std::int64_t sum = 0;
      std::uint64_t weights = 0;
      for (const auto& [weight, values] : sent_) {
        weights += weight;
        sum += std::llrint(static_cast<double>(values[k]) * std::ldexp(static_cast<double>(weight), kPassScale));
      }
      mean[k] = static_cast<float>(std::ldexp(static_cast<double>(sum), -kPassScale) / static_cast<double>(weights));
    }
    return mean;
  }
  Result<NextModel> finish(const round::ContributorSet& set, const SharedBytes& mean, Parallel& parallel,
                           SharedBytes state = {}, const std::string& optimizer = "fedavg") {
    round::CommitRecord record{RunId(1), RoundId(4), AttemptId(1), set, {}, {}, {}};
    Buffer base(schema_->model_bytes());
    std::memset(base.data(), 0, base.size());
    FinaliseInput input{record,
                        round::by_weights(set),
                        schema_,
                        SharedBytes::from(std::move(base)),
                        *round::parse_server_optimizer(optimizer),
                        {}};
    input.passes = PassesInput{codec_, {mean}, key_, std::move(state)};
    return finalise(parallel, sum_, models_, std::move(input));
  }
  // -P Q^T of the means, in fp64 from the matrices themselves: of those that are in each pass.
  std::vector<double> expected_model(std::initializer_list<std::size_t> first,
                                     std::initializer_list<std::size_t> last) {
    const auto mean_of = [&](std::initializer_list<std::size_t> in, std::size_t from, std::size_t count) {
      std::vector<double> mean(count);
      double weights = 0;
      for (const std::size_t i : in) weights += static_cast<double>(sites_[i].weight);
      for (const std::size_t i : in) {
        for (std::size_t k = 0; k < count; ++k) {
          mean[k] += static_cast<double>(sites_[i].update[from + k]) * static_cast<double>(sites_[i].weight) / weights;
        }
      }
      return mean;
    };
    const reference::Matrix of_first{kRows, kCols, mean_of(first, 0, kRows * kCols)};
    const reference::Matrix of_last{kRows, kCols, mean_of(last, 0, kRows * kCols)};
    const std::vector<double> q = reference::drawn_factors(key_.run, 0, kCols, kRank);
    const std::vector<double> p = reference::orthonormal(reference::times(of_first, q, kRank), kRows, kRank);
    const reference::Matrix update =
        reference::outer(p, reference::transposed_times(of_last, p, kRank), kRows, kCols, kRank);
    std::vector<double> model;
    for (const double value : update.values) model.push_back(-value);
    for (const double value : mean_of(last, kRows * kCols, kPlain)) model.push_back(-value);
    return model;
  }

  store::MemoryFileSystem files_;
  store::StagingBudget budget_{1 << 20};
  std::shared_ptr<const round::Schema> schema_;
  aggregate::Shapes shapes_;
  std::shared_ptr<const kernels::Codec> codec_;
  store::ModelStore models_;
  kernels::StreamKey key_ = kernels::stream_key(9, 4, "");
  std::vector<Site> sites_;
  transfer::NodeSum sum_;
  std::vector<std::pair<std::uint64_t, std::vector<float>>> sent_;  // by site: weight and values
  Serial serial_;
};

TEST_F(PassesTest, TheMeanOfAPassIsThatOfItsIntegers) {
  const round::ContributorSet set = gather(0, {}, {0, 1, 2});
  const auto mean = mean_of_pass(serial_, sum_, set, kFirst);
  ASSERT_TRUE(mean.ok()) << mean.error().to_string();
  const std::vector<float> expected = expected_mean();
  const std::span<const float> values = aggregate::mean_values(mean->bytes.bytes);
  ASSERT_EQ(values.size(), kRows * kRank);
  EXPECT_EQ(std::memcmp(values.data(), expected.data(), values.size_bytes()), 0);
  EXPECT_TRUE(aggregate::check_mean(kFirst, mean->bytes.bytes).ok());
  EXPECT_NE(mean_of_pass(serial_, sum_, set, {Epoch(5), AttemptId(3), 0})->ref, mean->ref)
      << "each attempt has its own";
  EXPECT_EQ(mean->ref, (round::VectorRef{sha256(mean->bytes.bytes), mean->bytes.bytes.size()}));
  PassesBackwards backwards;
  EXPECT_EQ(mean_of_pass(backwards, sum_, set, kFirst)->ref, mean->ref);
}

TEST_F(PassesTest, ThereIsNoMeanOfASumThatDisagreesWithItsSet) {
  gather(0, {}, {0, 1, 2});
  const round::ContributorSet of_two = [&] {
    transfer::NodeSum all = std::move(sum_);
    round::ContributorSet set = gather(0, {}, {0, 1});
    sum_ = std::move(all);
    return set;
  }();
  const auto mean = mean_of_pass(serial_, sum_, of_two, kFirst);
  ASSERT_FALSE(mean.ok());
  EXPECT_EQ(mean.error().code, Code::kDataLoss);
}

TEST_F(PassesTest, TheModelIsTheProductOfTheMeans) {
  const NamedVector p = *mean_of_pass(serial_, sum_, gather(0, {}, {0, 1, 2}), kFirst);
  const auto set = gather(1, aggregate::mean_values(p.bytes.bytes), {0, 1, 2});
  const auto next = finish(set, p.bytes, serial_);
  ASSERT_TRUE(next.ok()) << next.error().to_string();
  const std::vector<double> expected = expected_model({0, 1, 2}, {0, 1, 2});
  const std::span<const float> model = floats(next->bytes.bytes);
  ASSERT_EQ(model.size(), expected.size());
  for (std::size_t i = 0; i < model.size(); ++i) ASSERT_NEAR(model[i], expected[i], 2e-6) << i;
  PassesBackwards backwards;
  const auto again = finish(set, p.bytes, backwards);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(again->master, next->master) << "in whatever order the pieces run";
  EXPECT_EQ(again->codec_state->ref, next->codec_state->ref);
}

// Its share of P is in; what the others give is projected on that, and they alone are divided by.
TEST_F(PassesTest, WhoDropsOutHasHelpedToChooseTheBasis) {
  const NamedVector p = *mean_of_pass(serial_, sum_, gather(0, {}, {0, 1, 2}), kFirst);
  const auto next = finish(gather(1, aggregate::mean_values(p.bytes.bytes), {0, 2}), p.bytes, serial_);
  ASSERT_TRUE(next.ok());
  const std::vector<double> expected = expected_model({0, 1, 2}, {0, 2});
  const std::span<const float> model = floats(next->bytes.bytes);
  for (std::size_t i = 0; i < model.size(); ++i) ASSERT_NEAR(model[i], expected[i], 2e-6) << i;
}

TEST_F(PassesTest, OptimizersThatLookAtLayersSeeTheMeanUpdate) {
  const NamedVector p = *mean_of_pass(serial_, sum_, gather(0, {}, {0, 1, 2}), kFirst);
  const auto set = gather(1, aggregate::mean_values(p.bytes.bytes), {0, 1, 2});
  for (const std::string optimizer : {"fedadam", "lamb"}) {
    const auto next = finish(set, p.bytes, serial_, {}, optimizer);
    ASSERT_TRUE(next.ok()) << optimizer << ": " << next.error().to_string();
    EXPECT_EQ(next->optimizer_state.size(), 2 * (kRows * kCols + kPlain));
    EXPECT_EQ(models_.load_optimizer(next->optimizer_file, next->optimizer_state.size()).value(),
              next->optimizer_state);
    EXPECT_TRUE(models_.load_codec_state(next->optimizer_file, next->codec_state->ref.digest).ok());
  }
}

TEST_F(PassesTest, TheStateIsWhatAnybodySettlesAndIsOnTheDisk) {
  const NamedVector p = *mean_of_pass(serial_, sum_, gather(0, {}, {0, 1, 2}), kFirst);
  const auto set = gather(1, aggregate::mean_values(p.bytes.bytes), {0, 1, 2});
  const std::vector<float> q = expected_mean();
  const auto next = finish(set, p.bytes, serial_);
  ASSERT_TRUE(next.ok());
  Site& site = sites_.front();  // it holds that of this round
  ASSERT_TRUE(codec_->settle(shapes_.schema(), key_, q, site.state.span()).ok());
  EXPECT_TRUE(std::ranges::equal(next->codec_state->bytes.bytes, site.state.span()));
  EXPECT_EQ(next->codec_state->ref, (round::VectorRef{sha256(site.state.span()), site.state.size()}));
  files_.restart(store::Unsynced::kLost);
  const auto kept = models_.load_codec_state(next->optimizer_file, next->codec_state->ref.digest);
  ASSERT_TRUE(kept.ok()) << kept.error().to_string();
  EXPECT_TRUE(std::ranges::equal(kept->span(), site.state.span()));
  EXPECT_EQ(models_.load_codec_state(next->optimizer_file, {}).error().code, Code::kDataLoss);
  EXPECT_TRUE(models_.load_optimizer(next->optimizer_file, 0).value().empty()) << "the optimizer has none";
}

// With another seed, so under another name; that run's first round steps from it.
TEST_F(PassesTest, ARunThatGoesOnBeginsWithTheStateSettledForIt) {
  const NamedVector p = *mean_of_pass(serial_, sum_, gather(0, {}, {0, 1, 2}), kFirst);
  auto set = gather(1, aggregate::mean_values(p.bytes.bytes), {0, 1, 2});
  const NamedVector left = *finish(set, p.bytes, serial_)->codec_state;
  round::Plan plan;
  plan.seed = 10;
  plan.chunk_values = kChunk;
  const auto begun = continued_state(*codec_, *schema_, plan, left.bytes.bytes);
  ASSERT_TRUE(begun.ok()) << begun.error().to_string();
  EXPECT_TRUE(std::ranges::equal(begun->bytes.bytes.subspan(32), left.bytes.bytes.subspan(32)));
  EXPECT_EQ(begun->ref, (round::VectorRef{sha256(begun->bytes.bytes), left.ref.bytes}));
  EXPECT_NE(begun->ref, left.ref);
  key_ = kernels::stream_key(plan.seed, 1, "");
  EXPECT_TRUE(finish(set, p.bytes, serial_, begun->bytes).ok());
  EXPECT_FALSE(finish(set, p.bytes, serial_, left.bytes).ok()) << "that is another run's";
  EXPECT_FALSE(continued_state(*codec_, *schema_, plan, left.bytes.bytes.first(12)).ok());
}

TEST(GoesOnFrom, TheSameCodecAndOneBitAdamThatHasNoWarmUpOfItsOwn) {
  const auto goes_on = [](const char* before, const char* next) {
    return goes_on_from(*kernels::parse_codec(before), *kernels::parse_codec(next));
  };
  EXPECT_TRUE(goes_on("powersgd:rank=2", "powersgd:rank=2"));
  EXPECT_FALSE(goes_on("powersgd:rank=2", "powersgd:rank=3"));
  EXPECT_TRUE(goes_on("onebit_adam:freeze=9", "onebit_adam:freeze=0"));
  EXPECT_TRUE(goes_on("onebit_adam:freeze=0", "onebit_adam:freeze=0,beta1=0.5"));
  EXPECT_FALSE(goes_on("onebit_adam:freeze=9", "onebit_adam:freeze=9"));
  EXPECT_FALSE(goes_on("onebit_adam:freeze=9", "onebit_adam:freeze=0,block=128"));
  EXPECT_FALSE(goes_on("sign", "onebit_adam:freeze=0"));
}

TEST_F(PassesTest, AStateOfAnotherRunOrLengthIsRefused) {
  const NamedVector p = *mean_of_pass(serial_, sum_, gather(0, {}, {0, 1, 2}), kFirst);
  const auto set = gather(1, aggregate::mean_values(p.bytes.bytes), {0, 1, 2});
  EXPECT_FALSE(finish(set, p.bytes, serial_, SharedBytes::from(Buffer(12))).ok());
  Buffer other = Buffer::copy_of(sites_.front().state.span());
  other.span()[8] ^= std::byte{1};  // its run
  EXPECT_FALSE(finish(set, p.bytes, serial_, SharedBytes::from(std::move(other))).ok());
  EXPECT_TRUE(finish(set, p.bytes, serial_, SharedBytes::from(Buffer::copy_of(sites_.front().state.span()))).ok());
}

}  // namespace
}  // namespace fluvial::coordinator
