// The three roles of the `fluvial` executable on a disk that remembers what is durable and fails when it is told to
// (shadow_disk.h): in the folder that CHAOS_DISK names. Never installed.
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "cli/command.h"
#include "tests/chaos/shadow_disk.h"

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // a peer or a reader that went away is an error value, no end
  const char* shadow = std::getenv("CHAOS_DISK");
  if (shadow == nullptr) {
    std::fputs("fluvial_chaos_node: CHAOS_DISK names no folder\n", stderr);
    return 2;
  }
  const auto disk = fluvial::chaos::ShadowDisk::open(shadow);
  if (!disk.ok()) {
    std::fprintf(stderr, "fluvial_chaos_node: %s\n", disk.error().message.c_str());
    return 1;
  }
  CLI::App app("fluvial on a disk under chaos");
  fluvial::cli::Commands commands{
      .io = {}, .environment = fluvial::config::process_environment(), .files = **disk, .chosen = {}};
  fluvial::cli::add_role_commands(app, commands);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error);
  }
  return commands.chosen();
}
