#include <gtest/gtest.h>

#include "cli/doctor/judge_test_support.h"

namespace fluvial::cli::doctor {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

WallTime day(int year, unsigned month, unsigned of_month) {
  return std::chrono::sys_days(std::chrono::year(year) / std::chrono::month(month) / std::chrono::day(of_month));
}

ClockFacts good_clock() {
  return {.wall = day(2026, 5, 1),
          .steady_step = milliseconds(21),
          .waited = milliseconds(20),
          .synchronised = true,
          .is_known = true};
}

TEST(DoctorClock, SteeredAndPlausible) { EXPECT_THAT(judge(good_clock()), FindsNothing()); }

TEST(DoctorClock, NobodySteersIt) {
  ClockFacts facts = good_clock();
  facts.synchronised = false;
  EXPECT_THAT(judge(facts), Finds(kWarning, "no time service steers it", "chrony"));
  facts.is_known = false;
  EXPECT_THAT(judge(facts), FindsNothing());
}

TEST(DoctorClock, BeforeTheFirstRelease) {
  ClockFacts facts = good_clock();
  facts.wall = day(1970, 1, 2);
  EXPECT_THAT(judge(facts), Finds(kError, "says 1970-01-02", "timedatectl"));
}

TEST(DoctorClock, StandsStillOrJumps) {
  for (const int step : {3, 5000}) {
    ClockFacts facts = good_clock();
    facts.steady_step = milliseconds(step);
    EXPECT_THAT(judge(facts), Finds(kError, "monotonic clock went on by", "clocksource"));
  }
}

KernelFacts good_kernel() {
  KernelFacts facts;
  facts.limits.open_files_soft = facts.limits.open_files_hard = 65'536;
  facts.shm_bytes = std::uint64_t{8} << 30;
  facts.somaxconn = 4096;
  facts.overcommit = 0;
  facts.memory_bytes = std::uint64_t{16} << 30;
  return facts;
}

TEST(DoctorKernel, AllIsWell) {
  for (const Node& node : {Node{}, kSite, kAggregator, kCoordinator}) {
    EXPECT_THAT(judge(good_kernel(), node), FindsNothing());
  }
}

TEST(DoctorKernel, OpenFiles) {
  KernelFacts facts = good_kernel();
  facts.limits.open_files_soft = 64;
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "open files: at most 64 ", "LimitNOFILE"));
  facts.limits.open_files_soft = 512;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "little for a node", "ulimit"));
  facts.limits.open_files_soft = 4096;
  EXPECT_THAT(judge(facts, kSite), FindsNothing());
  EXPECT_THAT(judge(facts, kCoordinator), Finds(kWarning, "session.sessions_max is 20000", "more than 4032 children"));
  facts.limits.open_files_soft = 64;
  facts.limits.open_files_hard = tree::kUnlimited;
  facts.of_node = true;
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "at most 64 (hard limit none), as the node says", "LimitNOFILE"));
}

TEST(DoctorKernel, Memory) {
  KernelFacts facts = good_kernel();
  Node node = kAggregator;
  node.model_bytes = std::uint64_t{1} << 30;  // 5 GiB and a quarter for staging
  EXPECT_THAT(judge(facts, node), FindsNothing());
  facts.cgroup_bytes = std::uint64_t{6} << 30;
  EXPECT_THAT(judge(facts, node), Finds(kWarning, "6.0 GiB by the control group", "MemoryMax"));
  facts.cgroup_bytes = std::uint64_t{4} << 30;
  EXPECT_THAT(judge(facts, node), Finds(kError, "takes about 5.2 GiB", "MemoryMax"));
  facts.cgroup_bytes.reset();
  facts.memory_bytes = std::uint64_t{4} << 30;
  EXPECT_THAT(judge(facts, node), Finds(kError, "memory: 4.0 GiB;", "staging_bytes_max"));
  node.staging_bytes_max.reset();  // by the model: 2 GiB
  EXPECT_THAT(judge(facts, node), Finds(kError, "takes about 7.0 GiB", "staging_bytes_max"));
  node.sends_differences = true;
  EXPECT_THAT(judge(facts, node), Finds(kError, "takes about 7.0 GiB", "")) << "an aggregator keeps none of them";
  node.role = Role::kCoordinator;
  EXPECT_THAT(judge(facts, node), Finds(kError, "takes about 10.0 GiB", "staging_bytes_max"));
}

TEST(DoctorKernel, SharedMemory) {
  KernelFacts facts = good_kernel();
  facts.shm_bytes = 64 << 20;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "/dev/shm: 64.0 MiB, which is little", "--shm-size"));
  EXPECT_THAT(judge(facts, kAggregator), FindsNothing()) << "nobody trains there";
  facts.shm_bytes.reset();
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "/dev/shm: there is none", "--shm-size"));
  facts = good_kernel();
  facts.memfd = Error{Code::kUnavailable, "memfd_create: Operation not permitted"};
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "Operation not permitted", "seccomp"));
}

TEST(DoctorKernel, OvercommitAndBacklog) {
  KernelFacts facts = good_kernel();
  facts.overcommit = 2;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "vm.overcommit_memory is 2", "sysctl"));
  facts = good_kernel();
  facts.somaxconn = 128;
  EXPECT_THAT(judge(facts, kCoordinator), Finds(kWarning, "net.core.somaxconn is 128", "sysctl"));
  EXPECT_THAT(judge(facts, kSite), FindsNothing());
}

TEST(DoctorKernel, LockedMemory) {
  KernelFacts facts = good_kernel();
  facts.limits.locked_bytes = 64 << 10;
  EXPECT_THAT(judge(facts, kSite), FindsNothing());
  Node node = kSite;
  node.has_gpus = true;
  EXPECT_THAT(judge(facts, node), Finds(kWarning, "locked memory: at most 64.0 KiB", "LimitMEMLOCK"));
  facts.limits.locked_bytes = ~std::uint64_t{0};
  EXPECT_THAT(judge(facts, node), FindsNothing());
}

TEST(DoctorProcessor, WhatItHas) {
  EXPECT_THAT(text_of(judge(CpuFacts{.architecture = "x86_64", .cores = 1, .avx2 = true})), HasSubstr("1 core, AVX2"));
  EXPECT_THAT(text_of(judge(CpuFacts{.architecture = "x86_64", .cores = 8, .avx2 = true, .avx512 = true})),
              HasSubstr("8 cores, AVX-512"));
  EXPECT_THAT(judge(CpuFacts{.architecture = "aarch64", .cores = 8}), FindsNothing());
  EXPECT_THAT(judge(CpuFacts{.architecture = "x86_64", .cores = 8}), Finds(kWarning, "neither AVX2", "-cpu host"));
}

GpuFacts two_gpus() {
  GpuFacts facts{.setting = "auto", .built = true, .driver = true, .count = 2};
  facts.devices = {{.name = "cuda:0 NVIDIA H100", .memory_bytes = std::uint64_t{80} << 30, .usable = {}},
                   {.name = "cuda:1 NVIDIA H100", .memory_bytes = std::uint64_t{80} << 30, .usable = {}}};
  facts.nccl = {};
  return facts;
}

TEST(DoctorGpus, UsableOnes) {
  EXPECT_THAT(judge(two_gpus(), kSite), FindsNothing());
  EXPECT_THAT(text_of(judge(two_gpus(), kSite)), HasSubstr("GPU cuda:1 NVIDIA H100, 80.0 GiB"));
  EXPECT_THAT(judge(GpuFacts{.setting = "none", .driver = true}, kSite), FindsNothing());
}

TEST(DoctorGpus, OneThatIsOfNoUse) {
  GpuFacts facts = two_gpus();
  facts.devices[0].usable = Error{Code::kUnavailable, "uncorrectable ECC error"};
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "uncorrectable ECC error", "Xid"));
  facts = two_gpus();
  facts.devices[1].exclusive = true;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "serves one process alone", "nvidia-smi -c DEFAULT"));
  Node node = kSite;
  node.model_bytes = std::uint64_t{30} << 30;
  facts.devices.pop_back();
  facts.devices[0] = two_gpus().devices[0];
  EXPECT_THAT(judge(facts, node), Finds(kWarning, "little beside a model of 30.0 GiB", "--gpus none"));
}

TEST(DoctorGpus, NcclIsMissing) {
  GpuFacts facts = two_gpus();
  facts.nccl = Error{Code::kUnavailable, "libnccl.so.2: cannot open shared object file"};
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "libnccl.so.2", "install libnccl2"));
}

TEST(DoctorGpus, NoneCanBeUsed) {
  GpuFacts facts{.setting = "auto", .built = true, .count = Error{Code::kUnavailable, "no driver"}};
  EXPECT_THAT(judge(facts, kSite), FindsNothing()) << "a site without";
  facts.driver = true;
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "none can be used: no driver", "nvidia-smi"));
  facts.setting = "cuda:0";
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "none can be used", "nvidia-smi"));
  facts.driver = false;
  EXPECT_THAT(judge(facts, kSite), Finds(kError, "none can be used", "gpus = \"cuda:0\""));
  facts.driver = true;
  facts.built = false;
  facts.setting = "auto";
  EXPECT_THAT(judge(facts, kSite), Finds(kWarning, "this build has no CUDA", "with CUDA"));
}

}  // namespace
}  // namespace fluvial::cli::doctor
