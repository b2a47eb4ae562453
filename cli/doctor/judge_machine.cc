// Clock, kernel, processor, GPUs.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/doctor/judge.h"
#include "cli/format.h"
#include "core/store/staging.h"

namespace fluvial::cli::doctor {
namespace {

using std::chrono::seconds;

constexpr std::uint64_t kFilesMin = 256;  // sockets, journal, models, and what a library opens
constexpr std::uint64_t kOpenFilesWanted = 1'024;
constexpr std::uint64_t kFilesApart = 64;  // beside the children's sessions
constexpr std::uint64_t kShmWanted = 256 << 20;
constexpr std::uint64_t kLockedWanted = 64 << 20;
constexpr std::uint64_t kBacklogWanted = 1'024;
constexpr std::uint64_t kStrictOvercommit = 2;
constexpr auto kReleased = std::chrono::sys_days(std::chrono::year(2025) / 1 / 1);  // no build of this is older

Finding judge_files(const KernelFacts& facts, const Node& node) {
  const std::uint64_t soft = facts.limits.open_files_soft;
  const std::uint64_t hard = facts.limits.open_files_hard;
  const std::string limit =
      fmt::format("open files: at most {} (hard limit {}){}", soft,
                  hard == tree::kUnlimited ? "none" : std::to_string(hard), facts.of_node ? ", as the node says" : "");
  const char* raise =
      "LimitNOFILE=65536 in the unit, --ulimit nofile=65536 of the container, or ulimit -n before the start";
  if (soft < kFilesMin) {
    return {Severity::kError, fmt::format("{}: less than any node needs", limit), raise};
  }
  if (soft < kOpenFilesWanted) return {Severity::kWarning, fmt::format("{}: little for a node", limit), raise};
  if (node.has_children() && soft < node.sessions_max + kFilesApart) {
    return {Severity::kWarning,
            fmt::format("{}, and session.sessions_max is {}: children beyond the limit are refused", limit,
                        node.sessions_max),
            fmt::format("only with more than {} children: {}", soft - kFilesApart, raise)};
  }
  return {Severity::kOk, limit};
}

// A sum takes 12 bytes a parameter, which is three times a model in fp32; a coordinator's next model comes to it, and a
// site holds model, update, residual and what it encodes. A coordinator that sends differences has what sites train
// from, the next of that, and the difference.
std::uint64_t memory_needed(const Node& node) {
  if (node.model_bytes == 0 || !node.role) return 0;
  const std::uint64_t differences = node.sends_differences && node.role == Role::kCoordinator ? 3 : 0;
  const std::uint64_t times = (node.has_children() ? 5 : 4) + differences;
  const std::uint64_t staging =
      node.staging_bytes_max.value_or(store::staging_bytes_for(node.model_bytes / sizeof(float)));
  return times * node.model_bytes + (node.has_children() ? staging : 0);
}

Finding judge_memory(const KernelFacts& facts, const Node& node) {
  const std::uint64_t limit = std::min(facts.cgroup_bytes.value_or(facts.memory_bytes), facts.memory_bytes);
  const bool is_cgroup = limit < facts.memory_bytes;
  const std::string what =
      fmt::format("memory: {}{}", format_bytes(static_cast<double>(limit)), is_cgroup ? " by the control group" : "");
  const std::uint64_t needed = memory_needed(node);
  if (needed == 0) return {Severity::kOk, what};
  const std::string need =
      fmt::format("{}; a model of {} takes about {}", what, format_bytes(static_cast<double>(node.model_bytes)),
                  format_bytes(static_cast<double>(needed)));
  if (needed <= limit - limit / 5) return {Severity::kOk, need};
  return {needed > limit ? Severity::kError : Severity::kWarning, need,
          is_cgroup ? "raise the memory limit of the container or unit (MemoryMax=)"
                    : "a machine with more memory, or a smaller staging_bytes_max"};
}

Finding judge_shm(const KernelFacts& facts) {
  const char* advice =
      "--shm-size=1g of the container, or a memory-backed emptyDir at /dev/shm; models do not need it, "
      "PyTorch's data loaders and NCCL do";
  if (!facts.shm_bytes) return {Severity::kWarning, "/dev/shm: there is none", advice};
  const std::string what = fmt::format("/dev/shm: {}", format_bytes(static_cast<double>(*facts.shm_bytes)));
  if (*facts.shm_bytes < kShmWanted) return {Severity::kWarning, what + ", which is little for training", advice};
  return {Severity::kOk, what};
}

}  // namespace

Findings judge(const ClockFacts& facts) {
  Findings findings;
  if (facts.wall < kReleased) {
    findings.push_back({Severity::kError,
                        fmt::format("the wall clock says {:%Y-%m-%d}: certificates are not valid yet then",
                                    std::chrono::floor<std::chrono::days>(facts.wall)),
                        "set the clock: timedatectl set-ntp true, or chronyc makestep"});
  }
  if (facts.steady_step < facts.waited / 2 || facts.steady_step > facts.waited * 100 + seconds(1)) {
    findings.push_back({Severity::kError,
                        fmt::format("the monotonic clock went on by {} ms within {} ms",
                                    std::chrono::duration_cast<std::chrono::milliseconds>(facts.steady_step).count(),
                                    std::chrono::duration_cast<std::chrono::milliseconds>(facts.waited).count()),
                        "every deadline depends on it: look at the hypervisor's clock source "
                        "(/sys/devices/system/clocksource)"});
  }
  if (!findings.empty()) return findings;
  if (!facts.is_known) {
    return {{Severity::kOk, "clock: plausible; the kernel does not say whether a time service steers it"}};
  }
  if (!facts.synchronised) {
    return {
        {Severity::kWarning, "clock: plausible, and no time service steers it",
         "run chrony or systemd-timesyncd, here or on the host: a certificate is refused by a clock that is wrong by a "
         "day, and times in logs do not fit together"}};
  }
  return {{Severity::kOk, "clock: plausible, and steered by a time service"}};
}

Findings judge(const KernelFacts& facts, const Node& node) {
  Findings findings = {judge_files(facts, node), judge_memory(facts, node)};
  if (!facts.memfd.ok()) {
    findings.push_back({node.has_children() ? Severity::kWarning : Severity::kError,
                        "shared memory for models cannot be made: " + facts.memfd.error().message,
                        "a seccomp filter may forbid memfd_create: allow it; workers get models through it"});
  }
  if (facts.overcommit == kStrictOvercommit) {
    findings.push_back({Severity::kWarning, "vm.overcommit_memory is 2: memory may be refused though it is free",
                        "sysctl vm.overcommit_memory=0, or a larger vm.overcommit_ratio"});
  }
  if (node.has_children() && facts.somaxconn && *facts.somaxconn < kBacklogWanted) {
    findings.push_back(
        {Severity::kWarning,
         fmt::format("net.core.somaxconn is {}: many children that come at once are turned away", *facts.somaxconn),
         "sysctl net.core.somaxconn=4096"});
  }
  if (node.has_workers()) findings.push_back(judge_shm(facts));
  if (node.has_gpus && facts.limits.locked_bytes < kLockedWanted) {
    findings.push_back(
        {Severity::kWarning,
         fmt::format("locked memory: at most {}", format_bytes(static_cast<double>(facts.limits.locked_bytes))),
         "LimitMEMLOCK=infinity in the unit, or --ulimit memlock=-1 of the container: NCCL locks memory"});
  }
  return findings;
}

Findings judge(const CpuFacts& facts) {
  const std::string what = fmt::format("processor: {} core{}, {}", facts.cores, facts.cores == 1 ? "" : "s",
                                       facts.architecture != "x86_64" ? facts.architecture
                                       : facts.avx512                 ? "AVX-512"
                                       : facts.avx2                   ? "AVX2"
                                                                      : "neither AVX2 nor AVX-512");
  if (facts.architecture == "x86_64" && !facts.avx2) {
    return {{Severity::kWarning, what,
             "encoding and sums are several times slower: give the virtual machine the host's processor (-cpu host)"}};
  }
  return {{Severity::kOk, what}};
}

// ---- GPUs -----------------------------------------------------------------------------------------------------------

namespace {

Findings judge_no_gpu(const GpuFacts& facts) {
  const bool is_named = facts.setting != "auto";
  const std::string what = fmt::format("GPUs: none can be used: {}", facts.count.error().message);
  if (!facts.built && facts.driver) {
    return {{is_named ? Severity::kError : Severity::kWarning, "GPUs: the driver is there, and this build has no CUDA",
             "install the build with CUDA, or say gpus = \"none\"; workers train on GPUs all the same"}};
  }
  if (facts.driver) {
    return {{is_named ? Severity::kError : Severity::kWarning, what,
             "nvidia-smi must see them as this user: the device files' modes, --gpus all of the container, or a driver "
             "that is older than the runtime"}};
  }
  if (is_named) {
    return {{Severity::kError, what,
             fmt::format("there is no driver: install it, or take gpus = \"{}\" out of the "
                         "configuration",
                         facts.setting)}};
  }
  return {{Severity::kOk, "GPUs: none here; results of workers go through host memory"}};
}

}  // namespace

Findings judge(const GpuFacts& facts, const Node& node) {
  if (facts.setting == "none") return {{Severity::kOk, "GPUs: none wanted (gpus = none)"}};
  if (!facts.count.ok()) return judge_no_gpu(facts);
  Findings findings;
  std::size_t usable = 0;
  for (const GpuFacts::Device& device : facts.devices) {
    const std::string name =
        fmt::format("GPU {}, {}", device.name, format_bytes(static_cast<double>(device.memory_bytes)));
    if (!device.usable.ok()) {
      findings.push_back({Severity::kWarning, fmt::format("{}: {}", name, device.usable.error().message),
                          "nvidia-smi and the driver's log (Xid in dmesg) say more"});
    } else if (device.exclusive) {
      findings.push_back({Severity::kWarning, name + ": serves one process alone, and agent and worker are two",
                          "nvidia-smi -c DEFAULT"});
    } else if (node.model_bytes > 0 && 4 * node.model_bytes > device.memory_bytes) {
      findings.push_back(
          {Severity::kWarning,
           fmt::format("{}: little beside a model of {}", name, format_bytes(static_cast<double>(node.model_bytes))),
           "where there is no room the agent works on the host; --gpus none of the agent leaves it all "
           "to the workers"});
    } else {
      findings.push_back({Severity::kOk, name});
      ++usable;
    }
  }
  if (usable > 1 && !facts.nccl.ok()) {
    findings.push_back({Severity::kWarning, "NCCL cannot be loaded: " + facts.nccl.error().message,
                        "sums over several GPUs are copied between them, which is slower: install libnccl2"});
  }
  return findings;
}

}  // namespace fluvial::cli::doctor
