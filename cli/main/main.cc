#include <csignal>
#include <string>
#include <vector>

#include "cli/command.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a peer or a reader that went away is an error value, no end
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  fluvial::store::PosixFileSystem files;
  return fluvial::cli::run_command_line(arguments, {}, fluvial::config::process_environment(), files);
}
