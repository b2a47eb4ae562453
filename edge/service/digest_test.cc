// The digest that a whole site gives its updates, by what its parent takes.
#include "core/digest/submission_digest.h"
#include "edge/service/test_site.h"
#include "edge/service/test_worker.h"

namespace fluvial::edge {
namespace {

constexpr std::uint64_t kChunks = 3;

local::Metrics train_alike(const local::Task& /*task*/, std::span<float> values, std::int64_t& /*steps*/) {
  for (float& value : values) value -= 0.5F;
  return {};
}

// What arrived, hashed once more.
Digest digest_of(const transfer::StagedArrival& arrival, DigestKind kind) {
  SubmissionDigest digest(kind, kChunks);
  Buffer scratch;
  for (std::uint64_t i = 0; i < kChunks; ++i) {
    const ByteSpan chunk = *arrival.chunks->read(i, scratch);
    digest.side_by_side(i, chunk);
    digest.in_order(chunk);
  }
  Buffer trailer(arrival.integers.size() * sizeof(std::int64_t) + round::kProbeBytes);
  std::ranges::copy(std::as_bytes(std::span(arrival.integers)), trailer.data());
  std::ranges::copy(arrival.update()->probe, trailer.data() + arrival.integers.size() * sizeof(std::int64_t));
  return digest.finish(trailer.span());
}
Digest told(const transfer::StagedArrival& arrival) { return arrival.what.contributors.find(kSite)->digest; }

class DigestTest : public SiteTest {
 protected:
  DigestTest() : SiteTest({.codec = "fp32"}) {
    for (std::uint64_t version = 0; version < 3; ++version) old_.hold(model(version));
  }
  ~DigestTest() override { stop_site(); }
  std::uint16_t parent_port() const override { return at_old_ ? old_.port() : parent_.port(); }
  void started() override {
    worker_ = std::thread([this] { (void)work(worker_socket_, train_alike); });
  }
  void stopped() override { worker_.join(); }

  FakeParent old_{pki_, opening({.codec = "fp32"}), DigestKind::kStream};  // as of 0.2
  bool at_old_ = false;
  std::thread worker_;
};

TEST_F(DigestTest, IsATreeForAParentThatTakesOneAndAStreamForAnEarlierVersion) {
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival tree = parent_.arrivals.take();
  EXPECT_EQ(told(tree), digest_of(tree, DigestKind::kTree));
  parent_.commit(kSite, commit_of(1, &tree));
  wait_logged("update counted");
  stop_site();

  at_old_ = true;
  start_site();
  old_.joined.take();
  old_.open_round(kSite, 2, model(1));
  const transfer::StagedArrival stream = old_.arrivals.take();
  EXPECT_EQ(told(stream), digest_of(stream, DigestKind::kStream));
}

// The parent that has it under the stream's digest would hold the same submission with a tree's for a contradiction.
TEST_F(DigestTest, OfASubmissionStaysAsItWasEncodedWhoeverTheParentIs) {
  at_old_ = true;
  start_site();
  old_.joined.take();
  old_.open_round(kSite, 1, model(0));
  const Digest first = told(old_.arrivals.take());
  stop_site();
  at_old_ = false;
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival again = parent_.arrivals.take();
  EXPECT_EQ(told(again), first);
  EXPECT_EQ(told(again), digest_of(again, DigestKind::kStream));
}

TEST_F(DigestTest, OfATreeIsNotSentToAnEarlierVersionAndTheUpdateIsLate) {
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  parent_.arrivals.take();
  stop_site();
  at_old_ = true;
  start_site();
  old_.joined.take();
  old_.open_round(kSite, 1, model(0));
  wait_logged("update not sent: the parent is of a version that does not take its digest");
  EXPECT_EQ(old_.declines.take().round, RoundId(1)) << "so that the round need not wait for it";
  EXPECT_EQ(old_.payload_bytes_in(), 0U);
  old_.commit(kSite, commit_of(1, nullptr));
  wait_logged("update late; it goes into the next one");
  old_.open_round(kSite, 2, model(1));
  const transfer::StagedArrival next = old_.arrivals.take();
  EXPECT_EQ(told(next), digest_of(next, DigestKind::kStream));
}

}  // namespace
}  // namespace fluvial::edge
