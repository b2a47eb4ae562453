#include "core/tree/measured_files.h"

#include <gtest/gtest.h>

#include "core/store/memory_file_system.h"

namespace fluvial::tree {
namespace {

TEST(MeasuredFiles, CountsByWhatTheFilesAreFor) {
  store::MemoryFileSystem disk;
  telemetry::Metrics metrics(Role::kCoordinator, "test");
  const SystemClock clock;
  MeasuredFiles files(disk, metrics, clock, "/var/lib/fluvial");
  const auto written = [&](const char* what) {
    return metrics.counter("disk_written_bytes_total", {{"what", what}}).value();
  };
  const auto write = [&](const std::string& path, std::size_t bytes) {
    auto file = files.open(path, store::OpenMode::kCreate);
    ASSERT_TRUE(file.ok() && (*file)->write_at(0, Buffer(bytes).span()).ok() && (*file)->sync().ok()) << path;
    EXPECT_EQ((*file)->size().value(), bytes);
  };
  ASSERT_TRUE(files.make_folder("/var/lib/fluvial/models").ok());
  ASSERT_TRUE(files.make_folder("/var/lib/fluvial/spill").ok());
  ASSERT_TRUE(files.make_folder("/var/lib/fluvial-too/models").ok());
  write("/var/lib/fluvial/journal.sqlite", 10);
  write("/var/lib/fluvial/journal.sqlite-wal", 5);
  write("/var/lib/fluvial/models/1-2.safetensors", 1000);
  write("/var/lib/fluvial/metrics.address", 3);
  write("/var/lib/fluvial-too/models/x", 4);
  auto spilled = files.open_unnamed("/var/lib/fluvial/spill");
  ASSERT_TRUE(spilled.ok() && (*spilled)->write_at(0, Buffer(70).span()).ok());
  ASSERT_TRUE(files.sync_folder("/var/lib/fluvial/models").ok());
  EXPECT_EQ(written("journal"), 15);
  EXPECT_EQ(written("models"), 1000);
  EXPECT_EQ(written("spill"), 70);
  EXPECT_EQ(written("other"), 7);
  const std::string text = metrics.render();
  EXPECT_NE(text.find("disk_fsync_seconds_count{what=\"journal\"} 2"), text.npos) << text;
  EXPECT_NE(text.find("disk_fsync_seconds_count{what=\"models\"} 2"), text.npos) << "the file, and its folder";
  EXPECT_NE(text.find("disk_write_seconds_count{what=\"spill\"} 1"), text.npos);
}

TEST(MeasuredFiles, AnErrorIsPassedOn) {
  store::MemoryFileSystem disk;
  telemetry::Metrics metrics(Role::kSite, "test");
  const SystemClock clock;
  MeasuredFiles files(disk, metrics, clock, "/data");
  EXPECT_EQ(files.open("/data/none", store::OpenMode::kRead).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace fluvial::tree
