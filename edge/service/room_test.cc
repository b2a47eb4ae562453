// A site whose disk is full, on a file system of its own: what was trained is kept, and nothing is trained for nothing.
#include <sys/mount.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>

#include "edge/service/test_site.h"
#include "edge/service/test_worker.h"

namespace fluvial::edge {
namespace {

constexpr std::uint64_t kRoomValues = 200'000;

class RoomTest : public SiteTest {
 protected:
  RoomTest() : SiteTest({.values = kRoomValues, .chunk_values = 65'536, .codec = "fp32"}) {}
  ~RoomTest() override {
    stop_site();
    if (worker_.joinable()) worker_.join();
    if (is_mounted_) EXPECT_EQ(::umount(disk_.c_str()), 0);
  }
  void SetUp() override {
    std::filesystem::create_directory(disk_);
    is_mounted_ = ::mount("tmpfs", disk_.c_str(), "tmpfs", 0, "size=8m,mode=700") == 0;
    if (!is_mounted_) GTEST_SKIP() << "a file system of its own is root's to mount";
    const identity::Credentials own = pki_.credentials(Role::kSite, kSite, "hospital-a");
    ASSERT_TRUE(identity::save_credentials(own, disk_ + "/identity").ok());
    start_site([this](config::EdgeSettings& settings) { settings.data_dir = disk_; });
    parent_.joined.take();
  }
  void fill(std::uint64_t left) {
    std::ofstream file(disk_ + "/fill", std::ios::binary);
    for (std::string page(4096, 'x'); std::filesystem::space(disk_).available > left && file;) {
      file << page << std::flush;
    }
  }
  void make_room() { std::filesystem::remove(disk_ + "/fill"); }
  void serve(std::function<void()> while_training = [] {}) {
    worker_ = std::thread([this, while_training] {
      (void)work(worker_socket_, [&](const local::Task&, std::span<float> values, std::int64_t&) {
        values[0] += 1;
        ++trainings_;
        while_training();
        return local::Metrics{};
      });
    });
  }

  std::string disk_ = folder_.path() + "/disk";
  bool is_mounted_ = false;
  std::thread worker_;
  std::atomic<int> trainings_ = 0;
};

TEST_F(RoomTest, NobodyTrainsBeforeThereIsRoomForAnUpdate) {
  fill(512 << 10);
  serve();
  parent_.open_round(kSite, 1, model(0, kRoomValues));
  wait_logged("the round waits for room on the disk");
  EXPECT_EQ(trainings_, 0);
  make_room();
  parent_.arrivals.take();
  EXPECT_EQ(trainings_, 1);
  EXPECT_TRUE(parent_.declines.empty());
}

TEST_F(RoomTest, WhatWasTrainedIsKeptUntilThereIsRoomForIt) {
  serve([this] { fill(0); });
  parent_.open_round(kSite, 1, model(0, kRoomValues));
  wait_logged("the round waits for room on the disk");
  make_room();
  parent_.arrivals.take();
  EXPECT_EQ(trainings_, 1);
  EXPECT_TRUE(parent_.declines.empty());
}

TEST_F(RoomTest, ARoundThatIsOverIsNotWaitedWith) {
  fill(512 << 10);
  serve();
  parent_.open_round(kSite, 1, model(0, kRoomValues));
  wait_logged("the round waits for room on the disk");
  wire::Commit commit = commit_of(1, nullptr, kRoomValues);
  parent_.commit(kSite, commit);
  make_room();
  parent_.open_round(kSite, 2, model(1, kRoomValues));
  EXPECT_EQ(parent_.arrivals.take().round, RoundId(2));
  EXPECT_EQ(trainings_, 1);
}

}  // namespace
}  // namespace fluvial::edge
