#include "cli/process_counts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>

#include "core/base/testing.h"

namespace fluvial::cli {
namespace {

constexpr pid_t kPid = 17;

class FakeProc {
 public:
  void write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_.path() + "/17/" + name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  }
  std::string path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

std::string stat_of(const std::string& command, std::uint64_t minor, std::uint64_t user, std::uint64_t system) {
  return "17 (" + command + ") S 1 17 17 0 -1 4194560 " + std::to_string(minor) + " 500 3 4 " + std::to_string(user) +
         " " + std::to_string(system) + " 900 901 20 0 9 0 12345 1000000 2000 18446744073709551615 1 1 0 0\n";
}

std::string switches(int voluntary, int involuntary) {
  return "Name:\tx\nvoluntary_ctxt_switches:\t" + std::to_string(voluntary) + "\nnonvoluntary_ctxt_switches:\t" +
         std::to_string(involuntary) + "\n";
}

TEST(ProcessCounts, AreSummedOverTheThreads) {
  const FakeProc proc;
  const auto ticks = static_cast<std::uint64_t>(::sysconf(_SC_CLK_TCK));
  proc.write("stat", stat_of("a) S 9 (b", 4321, 2 * ticks, 3 * ticks));  // a command may be named anything
  proc.write("status", switches(1'000'000, 1'000'000));                  // of its first thread, which is below, too
  proc.write("task/17/status", switches(10, 1));
  proc.write("task/18/status", switches(20, 2));
  proc.write("task/19/stat", "a thread that has just ended");
  const ProcessCounts counts = read_process_counts(kPid, proc.path()).value();
  EXPECT_EQ(counts.minor_faults, 4321U);
  EXPECT_DOUBLE_EQ(counts.cpu_seconds, 5);
  EXPECT_EQ(counts.voluntary_switches, 30U);
  EXPECT_EQ(counts.involuntary_switches, 3U);
}

TEST(ProcessCounts, WhatIsNotUnderstoodIsAnError) {
  const FakeProc proc;
  EXPECT_EQ(read_process_counts(kPid, proc.path()).error().code, Code::kNotFound);
  proc.write("stat", "17 (short) S 1 2 3\n");
  EXPECT_EQ(read_process_counts(kPid, proc.path()).error().code, Code::kDataLoss);
  proc.write("stat", "");
  EXPECT_EQ(read_process_counts(kPid, proc.path()).error().code, Code::kDataLoss);
  EXPECT_EQ(read_own_memory(kPid, proc.path()).error().code, Code::kNotFound);
  proc.write("status", "RssAnon:\t  100 kB\n");
  EXPECT_EQ(read_own_memory(kPid, proc.path()).error().code, Code::kDataLoss);
}

TEST(OwnMemory, IsWithoutTheFilesPages) {
  const FakeProc proc;
  proc.write("status", "VmRSS:\t  1111 kB\nRssAnon:\t  100 kB\nRssFile:\t  1000 kB\nRssShmem:\t      11 kB\n");
  EXPECT_EQ(read_own_memory(kPid, proc.path()).value(), 111U * 1024);
}

TEST(MemoryPeaks, RememberTheMostOfEach) {
  const FakeProc proc;
  proc.write("status", "RssAnon:\t  100 kB\nRssShmem:\t  11 kB\n");
  MemoryPeaks peaks({kPid, 99}, proc.path());
  proc.write("status", "RssAnon:\t  40 kB\nRssShmem:\t  0 kB\n");
  const std::vector<std::uint64_t> most = peaks.stop();
  EXPECT_GE(most.at(0), 40U * 1024) << "one look at least, the last";
  EXPECT_LE(most.at(0), 111U * 1024);
  EXPECT_EQ(most.at(1), 0U);
}

// What the kernel says of this process by another way.
TEST(ProcessCounts, OfThisProcessAreWhatItTook) {
  constexpr std::size_t kBytes = 64 << 20;
  rusage before{};
  ::getrusage(RUSAGE_SELF, &before);
  const std::uint64_t memory = read_own_memory(::getpid()).value();
  void* const pages = ::mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(pages, MAP_FAILED);
  for (std::size_t at = 0; at < kBytes; at += 4096) static_cast<volatile char*>(pages)[at] = 1;
  const ProcessCounts counts = read_process_counts(::getpid()).value();
  EXPECT_GE(read_own_memory(::getpid()).value(), memory + kBytes / 2);
  ::munmap(pages, kBytes);
  rusage after{};
  ::getrusage(RUSAGE_SELF, &after);
  EXPECT_GE(counts.minor_faults, static_cast<std::uint64_t>(before.ru_minflt));
  EXPECT_LE(counts.minor_faults, static_cast<std::uint64_t>(after.ru_minflt));
  EXPECT_LE(counts.voluntary_switches, static_cast<std::uint64_t>(after.ru_nvcsw));
}

}  // namespace
}  // namespace fluvial::cli
