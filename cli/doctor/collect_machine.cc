#include <dlfcn.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/statvfs.h>
#include <sys/timex.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "cli/doctor/collect.h"
#include "kernels/device.h"
#include "kernels/device_group.h"

namespace fluvial::cli::doctor {
namespace {

constexpr Duration kClockWait = std::chrono::milliseconds(20);

// Small files of /proc and /sys; empty when there is none.
std::string read_text(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

std::optional<std::uint64_t> read_number(const std::string& path) {
  const std::string text = read_text(path);
  std::uint64_t value = 0;
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
  return parsed.ec == std::errc() ? std::optional(value) : std::nullopt;  // "max" is none
}

// The smallest limit from this process's group up to the root: version 2 of control groups, or 1.
std::optional<std::uint64_t> cgroup_limit() {
  std::optional<std::uint64_t> smallest = read_number("/sys/fs/cgroup/memory/memory.limit_in_bytes");
  std::istringstream groups(read_text("/proc/self/cgroup"));
  for (std::string line; std::getline(groups, line);) {
    if (!line.starts_with("0::")) continue;
    std::filesystem::path group = "/sys/fs/cgroup" + line.substr(3);
    for (; group.string().starts_with("/sys/fs/cgroup"); group = group.parent_path()) {
      const auto limit = read_number(group / "memory.max");
      if (limit) smallest = std::min(*limit, smallest.value_or(*limit));
    }
  }
  return smallest;
}

Status try_memfd() {
  const int descriptor = ::memfd_create("fluvial-doctor", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor < 0) return Error{Code::kUnavailable, std::string("memfd_create: ") + std::strerror(errno)};
  ::close(descriptor);
  return {};
}

std::optional<std::uint64_t> size_of_shm() {
  struct statvfs about{};
  std::error_code error;
  if (!std::filesystem::is_directory("/dev/shm", error) || ::statvfs("/dev/shm", &about) != 0) return std::nullopt;
  return static_cast<std::uint64_t>(about.f_blocks) * about.f_frsize;
}

Status try_nccl() {
  void* const library = ::dlopen(kernels::kNcclLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* const why = ::dlerror();
    return Error{Code::kUnavailable, why == nullptr ? kernels::kNcclLibrary : why};
  }
  ::dlclose(library);
  return {};
}

}  // namespace

ClockFacts collect_clock() {
  const SystemClock clock;
  ClockFacts facts{.wall = clock.wall_now()};
  const TimePoint before = clock.now();
  std::this_thread::sleep_for(kClockWait);
  facts.steady_step = clock.now() - before;
  facts.waited = kClockWait;
  struct timex state{};
  facts.is_known = ::adjtimex(&state) >= 0;
  facts.synchronised = facts.is_known && (state.status & STA_UNSYNC) == 0;
  return facts;
}

KernelFacts collect_kernel(const std::optional<tree::Limits>& of_node) {
  KernelFacts facts{.limits = of_node.value_or(tree::own_limits()), .of_node = of_node.has_value()};
  facts.shm_bytes = size_of_shm();
  facts.memfd = try_memfd();
  facts.somaxconn = read_number("/proc/sys/net/core/somaxconn");
  facts.overcommit = read_number("/proc/sys/vm/overcommit_memory");
  facts.cgroup_bytes = cgroup_limit();
  facts.memory_bytes =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  return facts;
}

CpuFacts collect_cpu() {
  CpuFacts facts;
  struct utsname system{};
  if (::uname(&system) == 0) facts.architecture = system.machine;
  facts.cores = std::max(1u, std::thread::hardware_concurrency());
  std::istringstream lines(read_text("/proc/cpuinfo"));
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("flags")) {
      const auto has = [padded = line + " "](const char* flag) {
        return padded.find(fmt::format(" {} ", flag)) != std::string::npos;
      };
      facts.avx2 = has("avx2") && has("f16c") && has("bmi2");
      facts.avx512 = facts.avx2 && has("avx512f") && has("avx512bw") && has("avx512dq") && has("avx512vl");
      break;
    }
  }
  return facts;
}

bool has_gpu_driver() {
  std::error_code error;
  return std::filesystem::exists("/proc/driver/nvidia/version", error);
}

GpuFacts collect_gpus(const std::string& setting) {
  GpuFacts facts{.setting = setting, .built = kernels::cuda_built(), .driver = has_gpu_driver()};
  if (setting == "none") return facts;
  facts.count = kernels::cuda_device_count();
  for (int i = 0; facts.count.ok() && i < *facts.count; ++i) {
    const auto about = kernels::cuda_device(i);
    GpuFacts::Device device{.name = fmt::format("cuda:{}", i), .usable = about.ok() ? Status() : about.error()};
    if (about.ok()) {
      device.name += " " + about->name;
      device.memory_bytes = about->memory_bytes;
      device.exclusive = about->is_exclusive;
    }
    facts.devices.push_back(std::move(device));
  }
  if (facts.devices.size() > 1) facts.nccl = try_nccl();
  return facts;
}

}  // namespace fluvial::cli::doctor
