// The `fluvial` executable with two emulated GPUs (`gpus = "emulated,emulated:1"`), for tests of whole federations.
#include <csignal>
#include <cstdio>
#include <string>
#include <vector>

#include "cli/command.h"
#include "kernels/cuda/emulated/device.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);
  if (!fluvial::kernels::use_emulated_device(2)) {
    std::fputs("fluvial_emulated: this build has no emulated GPUs\n", stderr);
    return 77;
  }
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  fluvial::store::PosixFileSystem files;
  return fluvial::cli::run_command_line(arguments, {}, fluvial::config::process_environment(), files);
}
