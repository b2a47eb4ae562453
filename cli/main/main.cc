#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "cli/command.h"
#include "core/tree/heap.h"

namespace {

void end(int signal) { std::_Exit(128 + signal); }

}  // namespace

int main(int argc, char** argv) {
  fluvial::tree::settle_heap();
  std::signal(SIGPIPE, SIG_IGN);  // a peer or a reader that went away is an error value, no end
  if (::getpid() == 1) {  // of a container: the kernel gives process 1 no default action, and it could not be stopped
    std::signal(SIGTERM, end);
    std::signal(SIGINT, end);
  }
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  fluvial::store::PosixFileSystem files;
  return fluvial::cli::run_command_line(arguments, {}, fluvial::config::process_environment(), files);
}
