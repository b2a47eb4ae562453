// A whole site whose owner has rules, against a parent on loopback.
#include <chrono>
#include <filesystem>

#include "edge/service/test_site.h"
#include "edge/service/test_worker.h"

namespace fluvial::edge {
namespace {

using std::chrono::steady_clock;

local::Metrics train_once(const local::Task& /*task*/, std::span<float> values, std::int64_t& /*steps*/) {
  for (float& value : values) value -= 0.5F;
  return {};
}

class PolicyTest : public SiteTest {
 protected:
  PolicyTest() : SiteTest({.codec = "fp32"}) {}  // 3 chunks of 1,024, 1,024 and 352 bytes
  ~PolicyTest() override { stop_site(); }
  void started() override {
    worker_ = std::thread([this] { (void)work(worker_socket_, train_once); });
  }
  void stopped() override { worker_.join(); }

  std::thread worker_;
};

TEST_F(PolicyTest, AForbiddenRunIsDeclinedWithTheReasonEachTimeItIsOffered) {
  start_site([](config::EdgeSettings& settings) { settings.policy.runs = "other"; });
  parent_.joined.take();
  for (std::uint64_t round = 1; round <= 2; ++round) {
    parent_.open_round(kSite, round, model(round - 1));
    const round::Decline declined = parent_.declines.take();
    EXPECT_EQ(declined.round, RoundId(round));
    EXPECT_EQ(declined.refusal.error.code, Code::kFailedPrecondition);
    EXPECT_EQ(declined.refusal.error.message, "the site's owner allows only runs named other");
  }
  EXPECT_FALSE(log_->contains("model held")) << "nothing was fetched for it";
}

TEST_F(PolicyTest, ACohortThatNobodySignedIsNotEnough) {
  start_site([](config::EdgeSettings& settings) { settings.policy.cohort_min = 1; });
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  EXPECT_NE(parent_.declines.take().refusal.error.message.find("nobody has signed"), std::string::npos);
}

TEST_F(PolicyTest, APendingUpdateIsSentWhateverTheOwnerSaysMeanwhile) {
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival first = parent_.arrivals.take();
  stop_site();
  start_site([](config::EdgeSettings& settings) { settings.policy.runs = "other"; });
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival again = parent_.arrivals.take();
  EXPECT_EQ(again.what.contributors.find(kSite)->digest, first.what.contributors.find(kSite)->digest);
  parent_.commit(kSite, commit_of(1, &again));
  wait_logged("update counted");
  parent_.open_round(kSite, 2, model(1));
  EXPECT_EQ(parent_.declines.take().round, RoundId(2));
}

TEST_F(PolicyTest, AnUpdateIsSentNoFasterThanTheOwnerAllows) {
  start_site([](config::EdgeSettings& settings) { settings.policy.upload_bytes_per_s = 8'000; });
  parent_.joined.take();
  const auto begun = steady_clock::now();
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(arrival.chunks->total_bytes(), kValues * sizeof(float));
  EXPECT_GE(steady_clock::now() - begun, std::chrono::milliseconds(300)) << "2,400 bytes at 8,000 bytes/s";
}

// Its files are gone while it is being sent, which takes half a second: nobody reads them.
TEST_F(PolicyTest, AnUpdateIsSentFromMemory) {
  start_site([](config::EdgeSettings& settings) { settings.policy.upload_bytes_per_s = 5'000; });
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  while (parent_.payload_bytes_in() < 1'024) std::this_thread::yield();
  for (const auto& file : std::filesystem::directory_iterator(folder_.path() + "/state/tensors")) {
    std::filesystem::resize_file(file.path(), 0);
  }
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(arrival.chunks->total_bytes(), kValues * sizeof(float)) << "whole, and with its digest";
}

// Each chunk is owed for a quarter of an hour.
TEST_F(PolicyTest, ASlowUploadGoesOnAfterACutAndStopsAtOnce) {
  start_site([](config::EdgeSettings& settings) { settings.policy.upload_bytes_per_s = 1; });
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  while (parent_.payload_bytes_in() < 1'024) std::this_thread::yield();
  parent_.cut(kSite);
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  while (parent_.payload_bytes_in() < 2'048) std::this_thread::yield();
  stop_site();
}

}  // namespace
}  // namespace fluvial::edge
