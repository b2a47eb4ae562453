// A site whose disk takes its time: its chunks travel while the rest is encoded and all of it is made durable, and its
// trailer does not.
#include <algorithm>
#include <condition_variable>
#include <functional>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "core/round/probe.h"
#include "edge/service/test_site.h"
#include "edge/service/test_worker.h"

namespace fluvial::edge {
namespace {

// When fsyncs of a site's tensors, or writes to them, end, and how.
class Latch {
 public:
  void hold() {
    const std::lock_guard lock(mutex_);
    holds_ = true;
  }
  void let_go(Status how) {
    const std::lock_guard lock(mutex_);
    holds_ = false;
    how_ = std::move(how);
    changed_.notify_all();
  }
  Status pass() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return !holds_; });
    return std::exchange(how_, Status());
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool holds_ = false;
  Status how_;
};

class HeldFile final : public store::File {
 public:
  HeldFile(std::unique_ptr<store::File> file, Latch& latch, Latch& writes)
      : file_(std::move(file)), latch_(latch), writes_(writes) {}
  Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) override {
    return file_->read_at(offset, into);
  }
  Status write_at(std::uint64_t offset, ByteSpan bytes) override {
    FLUVIAL_TRY(writes_.pass());
    return file_->write_at(offset, bytes);
  }
  Status truncate(std::uint64_t size_bytes) override { return file_->truncate(size_bytes); }
  Result<std::uint64_t> size() override { return file_->size(); }
  Status sync() override {
    FLUVIAL_TRY(latch_.pass());
    return file_->sync();
  }
  Status sync_data() override { return file_->sync_data(); }
  Result<bool> try_lock() override { return file_->try_lock(); }
  void unlock() override { file_->unlock(); }

 private:
  std::unique_ptr<store::File> file_;
  Latch& latch_;
  Latch& writes_;
};

class HeldFiles final : public store::FileSystem {
 public:
  Result<std::unique_ptr<store::File>> open(const std::string& path, store::OpenMode mode) override {
    Result<std::unique_ptr<store::File>> file = files_.open(path, mode);
    if (!file.ok() || path.find("/tensors/") == std::string::npos) return file;
    return std::unique_ptr<store::File>(std::make_unique<HeldFile>(std::move(*file), latch, writes));
  }
  Result<std::unique_ptr<store::File>> open_unnamed(const std::string& folder) override {
    return files_.open_unnamed(folder);
  }
  Status rename(const std::string& from, const std::string& to) override { return files_.rename(from, to); }
  Status remove(const std::string& path) override { return files_.remove(path); }
  Result<bool> exists(const std::string& path) override { return files_.exists(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override { return files_.list(folder); }
  Status make_folder(const std::string& path) override { return files_.make_folder(path); }
  Status sync_folder(const std::string& path) override { return files_.sync_folder(path); }

  Latch latch;
  Latch writes;

 private:
  store::PosixFileSystem files_;
};

class EarlyUploadTest : public SiteTest {
 protected:
  // The writes that are held take two threads of the pool: one that writes, and one that waits for it. The others serve
  // the session.
  static constexpr std::uint32_t kThreads = 4;
  static constexpr std::size_t kAll = kThreads * 256 + 88;  // values: one chunk more than are encoded at once
  static constexpr std::uint64_t kChunkBytes = kAll * sizeof(float);
  static constexpr std::uint64_t kTrailerBytes = sizeof(std::int64_t) + round::kProbeBytes;
  EarlyUploadTest() : SiteTest({.values = kAll, .codec = "fp32"}) {}
  ~EarlyUploadTest() override {
    held_.latch.let_go({});
    held_.writes.let_go({});
    stop_site();
  }
  static HeldModel model(std::uint64_t version) { return edge::model(version, kAll); }
  static wire::Commit commit_of(std::uint64_t round, const transfer::StagedArrival* arrival) {
    return edge::commit_of(round, arrival, kAll);
  }
  void start() {
    start_site([](config::EdgeSettings& settings) { settings.compute_threads = kThreads; });
    parent_.joined.take();
  }
  store::FileSystem& files() override { return held_; }
  void started() override {
    worker_ = std::thread([this] {
      (void)work(worker_socket_, [this](const local::Task& task, std::span<float> values, std::int64_t&) {
        train_(task, values);
        return local::Metrics{};
      });
    });
  }
  void stopped() override { worker_.join(); }

  // Every chunk of the first round's update is at the parent, and nothing of it is durable.
  void send_all_but_the_trailer() {
    start();
    held_.latch.hold();
    parent_.open_round(kSite, 1, model(0));
    while (parent_.payload_bytes_in() < kChunkBytes) std::this_thread::yield();
  }
  void expect_no_trailer() {
    for (int i = 0; i < 5; ++i) EXPECT_EQ(status().at("doing").as_string(), "encoding");
    EXPECT_EQ(parent_.payload_bytes_in(), kChunkBytes);
    EXPECT_TRUE(parent_.arrivals.empty());
  }

  // The chunks that are encoded at once are at the parent, and the site cannot write them. The last chunk is encoded
  // meanwhile and waits for them.
  static constexpr std::uint64_t kFirstBytes = kThreads * 256 * sizeof(float);
  void send_what_is_encoded() {
    start();
    open_and_send_what_is_encoded(1);
  }
  void open_and_send_what_is_encoded(std::uint64_t round) {
    const std::uint64_t before = parent_.payload_bytes_in();
    held_.writes.hold();
    parent_.open_round(kSite, round, model(round - 1));
    wait_for(before + kFirstBytes);
  }
  void wait_for(std::uint64_t payload_bytes) {
    while (parent_.payload_bytes_in() < payload_bytes) std::this_thread::yield();
  }
  void reopen_round(std::uint64_t chunks_there) {
    parent_.received.take();
    parent_.joined.take();
    parent_.open_round(kSite, 1, model(0));
    EXPECT_EQ(parent_.received.take(), chunks_there);
    while (opened() < 2) std::this_thread::yield();  // the site has read that
  }
  // The first round is declined, and the next one's update is another submission than that of its chunks.
  void expect_declined() {
    EXPECT_EQ(parent_.declines.take().round, RoundId(1));
    parent_.commit(kSite, commit_of(1, nullptr));
    parent_.open_round(kSite, 2, model(1));
    const transfer::StagedArrival next = parent_.arrivals.take();
    EXPECT_EQ(next.round, RoundId(2));
    EXPECT_GT(next.what.contributors.find(kSite)->submission, 1U);
  }
  std::ptrdiff_t opened() const {
    return std::ranges::count(log_->records(), "round open", &telemetry::Record::message);
  }

  HeldFiles held_;
  std::thread worker_;
  std::function<void(const local::Task&, std::span<float>)> train_ = [](const local::Task&, std::span<float> values) {
    for (float& value : values) value -= 0.5F;
  };
};

TEST_F(EarlyUploadTest, ChunksTravelWhileTheyAreMadeDurableAndTheTrailerAfterwards) {
  send_all_but_the_trailer();
  expect_no_trailer();
  held_.latch.let_go({});
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(arrival.chunks->total_bytes(), kChunkBytes);
  EXPECT_EQ(parent_.payload_bytes_in(), kChunkBytes + kTrailerBytes) << "each byte came once";
  parent_.commit(kSite, commit_of(1, &arrival));
  wait_logged("update counted");
}

TEST_F(EarlyUploadTest, WhatCouldNotBeMadeDurableIsNotCounted) {
  send_all_but_the_trailer();
  held_.latch.let_go(Error{Code::kResourceExhausted, "the disk is full"});
  expect_declined();
}

// Refused for want of room, say: what was left out of the early transfer is sent to the next attempt.
TEST_F(EarlyUploadTest, RefusedMeanwhileAllOfItIsSentOnceItIsDurable) {
  send_all_but_the_trailer();
  parent_.refuse_update(kSite, 1, Code::kUnavailable);
  wait_logged("update refused by the parent");
  held_.latch.let_go({});
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(arrival.round, RoundId(1));
  EXPECT_EQ(arrival.chunks->total_bytes(), kChunkBytes);
}

TEST_F(EarlyUploadTest, OfARoundThatClosesMeanwhileNoTrailerIsSent) {
  send_all_but_the_trailer();
  parent_.commit(kSite, commit_of(1, nullptr));
  wait_logged("model_version=1");
  held_.latch.let_go({});
  wait_logged("update late");
  parent_.open_round(kSite, 2, model(1));
  EXPECT_EQ(parent_.arrivals.take().round, RoundId(2));
  EXPECT_EQ(status().at("outcomes").at("late").to_number<int>(), 1);
}

TEST_F(EarlyUploadTest, AfterACutAllOfItIsSentOnceItIsDurable) {
  send_all_but_the_trailer();
  parent_.cut(kSite);
  EXPECT_EQ(parent_.left.take(), kSite);
  held_.latch.let_go({});
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(arrival.round, RoundId(1));
  EXPECT_EQ(arrival.chunks->total_bytes(), kChunkBytes);
}

TEST_F(EarlyUploadTest, ChunksTravelWhileTheRestIsEncoded) {
  send_what_is_encoded();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(status().at("doing").as_string(), "encoding");
  EXPECT_EQ(parent_.payload_bytes_in(), kFirstBytes);
  held_.latch.hold();
  held_.writes.let_go({});
  wait_for(kChunkBytes);
  expect_no_trailer();
  held_.latch.let_go({});
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(parent_.payload_bytes_in(), kChunkBytes + kTrailerBytes) << "each byte came once";
  for (const float value : values_of(arrival, kAll)) EXPECT_NEAR(value, 0.5F, 1e-6F);
  parent_.commit(kSite, commit_of(1, &arrival));
  wait_logged("update counted");
}

TEST_F(EarlyUploadTest, AfterACutWhileItIsEncodedItGoesOnWhereItStopped) {
  send_what_is_encoded();
  parent_.cut(kSite);
  EXPECT_EQ(parent_.left.take(), kSite);
  reopen_round(kThreads);
  held_.writes.let_go({});
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(arrival.chunks->total_bytes(), kChunkBytes);
  EXPECT_EQ(parent_.payload_bytes_in(), kChunkBytes + kTrailerBytes) << "each byte came once";
}

TEST_F(EarlyUploadTest, RefusedWhileItIsEncodedAllOfItIsSentOnceItIsDurable) {
  send_what_is_encoded();
  parent_.refuse_update(kSite, 1, Code::kUnavailable);
  wait_logged("update refused by the parent");
  held_.writes.let_go({});
  EXPECT_EQ(parent_.arrivals.take().chunks->total_bytes(), kChunkBytes);
}

// What the parent had then is gone on with once: it has let it go since.
TEST_F(EarlyUploadTest, RefusedAfterItWentOnAllOfItIsSentOnceItIsDurable) {
  send_what_is_encoded();
  parent_.cut(kSite);
  EXPECT_EQ(parent_.left.take(), kSite);
  reopen_round(kThreads);
  parent_.refuse_update(kSite, 1, Code::kUnavailable);
  wait_logged("update refused by the parent");
  held_.writes.let_go({});
  EXPECT_EQ(parent_.arrivals.take().chunks->total_bytes(), kChunkBytes);
}

TEST_F(EarlyUploadTest, OfARoundThatClosesWhileItIsEncodedNothingMoreIsSent) {
  send_what_is_encoded();
  parent_.commit(kSite, commit_of(1, nullptr));
  wait_logged("model_version=1");
  held_.writes.let_go({});
  wait_logged("update late");
  EXPECT_EQ(parent_.payload_bytes_in(), kFirstBytes);
  parent_.open_round(kSite, 2, model(1));
  EXPECT_EQ(parent_.arrivals.take().round, RoundId(2));
}

TEST_F(EarlyUploadTest, WhatCouldNotBeWrittenIsNotCounted) {
  send_what_is_encoded();
  held_.writes.let_go(Error{Code::kResourceExhausted, "the disk is full"});
  expect_declined();
}

// What the parent has of it by then is followed by no trailer.
TEST_F(EarlyUploadTest, AnUpdateWhoseEndIsNoNumberIsDeclined) {
  train_ = [](const local::Task& task, std::span<float> values) {
    if (task.round == RoundId(1)) values[kAll - 1] = std::numeric_limits<float>::quiet_NaN();
  };
  send_what_is_encoded();
  held_.writes.let_go({});
  expect_declined();
  EXPECT_TRUE(parent_.refusals.empty());
}

// The first round is late. With its residual the second one's last chunk is beyond the bound: it is sent anew, fitted.
TEST_F(EarlyUploadTest, WhatIsFittedReplacesWhatWasSentBefore) {
  parent_.set_plan([](round::Plan& plan) { plan.value_abs_max = 0.75; });
  train_ = [](const local::Task&, std::span<float> values) { values[kAll - 1] -= 0.5F; };
  start();
  parent_.open_round(kSite, 1, model(0));
  const std::uint64_t first = parent_.arrivals.take().what.contributors.find(kSite)->submission;
  parent_.commit(kSite, commit_of(1, nullptr));
  wait_logged("update late");
  const std::uint64_t before = parent_.payload_bytes_in();
  open_and_send_what_is_encoded(2);
  held_.writes.let_go({});
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(arrival.round, RoundId(2));
  EXPECT_EQ(parent_.payload_bytes_in(), before + kFirstBytes + kChunkBytes + kTrailerBytes);
  EXPECT_EQ(arrival.what.contributors.find(kSite)->submission, first + 2);
  EXPECT_EQ(values_of(arrival, kAll)[kAll - 1], 0.75F);
  EXPECT_TRUE(parent_.refusals.empty());
}

}  // namespace
}  // namespace fluvial::edge
