// One child process: started so that it cannot outlive us, described so that a person understands its end.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/local/fd.h"

namespace fluvial::cli {

struct ProcessSpec {
  std::string name;               // "site-1", for people
  std::string role;               // "coordinator", "aggregator", "site", "worker", "tool"
  std::vector<std::string> argv;  // argv[0]: the executable's path
  std::string log_path;           // its standard output and error, appended
  bool announces = false;         // it is given --ready-fd and writes one line there when it is ready
  bool may_end = false;           // ending with status 0 is what it should do
  bool may_fail = false;          // however it ends is its caller's matter
};

struct Child {
  pid_t pid = -1;
  local::UniqueFd pidfd;  // readable when it has ended
  local::UniqueFd ready;  // where its ready line arrives; invalid unless it announces
};

// Starts it in a process group of its own (a terminal's Ctrl-C reaches us alone), with the kernel's order to kill it
// when the calling thread ends: call from a thread that lives as long as the process should. It has our environment
// without the settings in it: FLUVIAL_DATA_DIR and the like are another process'. The error names the executable.
Result<Child> launch(const ProcessSpec& spec);

std::string describe_end(int wait_status);  // "ended with status 1", "was killed by signal 9 (Killed)"
std::string tail_of(const std::string& path, std::size_t lines_max);

// The folder of our own executable: its companions lie beside it. And its path.
Result<std::string> own_executable();
std::string companion_executable(const std::string& own, const std::string& name);

}  // namespace fluvial::cli
