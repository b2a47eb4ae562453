#include "core/telemetry/process.h"

#include <dirent.h>
#include <sys/resource.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>

namespace fluvial::telemetry {
namespace {

double seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

double open_files() {
  const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), &::closedir);
  double count = -3;  // ".", ".." and the descriptor of the listing itself
  if (!folder) return 0;
  while (::readdir(folder.get()) != nullptr) ++count;
  return count;
}

}  // namespace

ProcessUsage process_usage() {
  ProcessUsage usage;
  double pages = 0;
  double resident = 0;
  if (std::ifstream("/proc/self/statm") >> pages >> resident) {
    usage.resident_bytes = resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
  }
  rusage times{};
  if (::getrusage(RUSAGE_SELF, &times) == 0) usage.cpu_seconds = seconds(times.ru_utime) + seconds(times.ru_stime);
  usage.open_files = open_files();
  return usage;
}

double process_start_seconds() {
  std::string stat;
  std::getline(std::ifstream("/proc/self/stat"), stat);
  const std::size_t name_end = stat.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return 0;
  std::istringstream fields(stat.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  double ticks = 0;
  if (!(fields >> ticks)) return 0;
  std::ifstream system("/proc/stat");
  for (std::string line; std::getline(system, line);) {
    if (!line.starts_with("btime ")) continue;
    return std::stod(line.substr(6)) + ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }
  return 0;
}

}  // namespace fluvial::telemetry
