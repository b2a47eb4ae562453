// Following a run until it ends: `fluvial run start --watch`, `fluvial rounds watch`.
#pragma once

#include <cstdint>
#include <string>

#include "cli/admin_client.h"
#include "cli/command.h"

namespace fluvial::cli {

// How the watching ended, as the exit status; 0 when the run is done, 1 when watching failed.
inline constexpr int kRunStopped = 3;
inline constexpr int kRunPaused = 4;      // with --fail-on-pause
inline constexpr int kNoCoordinator = 5;  // it does not answer, or not any more for --retry-for seconds

struct WatchOptions {
  bool fail_on_pause = false;
  std::uint64_t retry_for_s = 300;
};
void add_watch_options(CLI::App& app, WatchOptions& options);
std::string watch_footer();  // for --help: what the exit status says

struct Watched {
  std::uint64_t run = 0;
  std::uint64_t from = 1;  // the first round that is told, also when it is committed
  bool json = false;       // events as they come, for scripts
};
// Begins with what the run is and waits for. While the coordinator does not answer it asks again, and says so.
int watch_run(const Io& io, std::string_view command, const AdminClient& client, const Watched& watched,
              const WatchOptions& options);

}  // namespace fluvial::cli
