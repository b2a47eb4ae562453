#include "cli/process_counts.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

namespace fluvial::cli {
namespace {

constexpr std::chrono::milliseconds kLook{25};
constexpr int kPauseOverLook = 50;  // the looks take at most a fiftieth of a core

Result<std::string> text_of(const std::string& path) {
  std::ifstream file(path);
  if (!file) return Error{Code::kNotFound, path + " cannot be read"};
  return std::string(std::istreambuf_iterator<char>(file), {});
}

// The number behind "key:" at the beginning of a line.
std::optional<std::uint64_t> number_of(const std::string& text, std::string_view key) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(key) || line.size() <= key.size() || line[key.size()] != ':') continue;
    std::istringstream value(line.substr(key.size() + 1));
    std::uint64_t number = 0;
    if (value >> number) return number;
    return std::nullopt;
  }
  return std::nullopt;
}

// The fields of stat after the command's name, which may hold anything, brackets and blanks too: proc(5) counts them
// from 3.
Result<std::vector<std::uint64_t>> stat_fields(const std::string& text, const std::string& path) {
  const Error odd{Code::kDataLoss, path + " is not as proc(5) has it"};
  const std::size_t name_ends = text.rfind(')');
  if (name_ends == std::string::npos) return odd;
  std::istringstream rest(text.substr(name_ends + 1));
  std::string state;
  rest >> state;
  std::vector<std::uint64_t> fields;
  for (std::int64_t field = 0; fields.size() < 20 && rest >> field;) {
    fields.push_back(static_cast<std::uint64_t>(std::max<std::int64_t>(0, field)));
  }
  if (fields.size() < 20) return odd;
  return fields;
}

}  // namespace

Result<ProcessCounts> read_process_counts(pid_t pid, const std::string& proc) {
  constexpr std::size_t kFirst = 4, kMinorFaults = 10 - kFirst, kUser = 14 - kFirst, kSystem = 15 - kFirst;
  const std::string folder = proc + "/" + std::to_string(pid);
  FLUVIAL_ASSIGN(const std::string stat, text_of(folder + "/stat"));
  FLUVIAL_ASSIGN(const std::vector<std::uint64_t> fields, stat_fields(stat, folder + "/stat"));
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  ProcessCounts counts{.cpu_seconds = static_cast<double>(fields[kUser] + fields[kSystem]) / ticks,
                       .minor_faults = fields[kMinorFaults]};
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(folder + "/task", gone)) {
    const Result<std::string> status = text_of(task.path() / "status");
    if (!status.ok()) continue;  // a thread that has just ended
    counts.voluntary_switches += number_of(*status, "voluntary_ctxt_switches").value_or(0);
    counts.involuntary_switches += number_of(*status, "nonvoluntary_ctxt_switches").value_or(0);
  }
  return counts;
}

Result<std::uint64_t> read_own_memory(pid_t pid, const std::string& proc) {
  const std::string path = proc + "/" + std::to_string(pid) + "/status";
  FLUVIAL_ASSIGN(const std::string status, text_of(path));
  const auto anonymous = number_of(status, "RssAnon");
  const auto shared = number_of(status, "RssShmem");
  if (!anonymous || !shared) return Error{Code::kDataLoss, path + " has no RssAnon and RssShmem"};
  return (*anonymous + *shared) * 1024;
}

MemoryPeaks::MemoryPeaks(std::vector<pid_t> pids, std::string proc)
    : pids_(std::move(pids)), proc_(std::move(proc)), peaks_(pids_.size(), 0) {
  watcher_ = std::thread([this] { watch(); });
}

MemoryPeaks::~MemoryPeaks() { (void)stop(); }

std::vector<std::uint64_t> MemoryPeaks::stop() {
  stopping_ = true;
  if (watcher_.joinable()) watcher_.join();
  return peaks_;
}

void MemoryPeaks::look() {
  for (std::size_t i = 0; i < pids_.size(); ++i) {
    const Result<std::uint64_t> now = read_own_memory(pids_[i], proc_);
    if (now.ok()) peaks_[i] = std::max(peaks_[i], *now);
  }
}

void MemoryPeaks::watch() {
  using std::chrono::steady_clock;
  while (!stopping_) {
    const auto begun = steady_clock::now();
    look();
    const auto pause = std::max<steady_clock::duration>(kLook, kPauseOverLook * (steady_clock::now() - begun));
    const auto until = steady_clock::now() + std::min<steady_clock::duration>(pause, std::chrono::seconds(1));
    while (!stopping_ && steady_clock::now() < until) {
      std::this_thread::sleep_for(std::min<steady_clock::duration>(kLook, until - steady_clock::now()));
    }
  }
  look();
}

}  // namespace fluvial::cli
