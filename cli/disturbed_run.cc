#include "cli/disturbed_run.h"

#include <fmt/format.h>

#include <chrono>
#include <optional>

#include "cli/format.h"

namespace fluvial::cli {
namespace {

// Until the run is over or paused, or a round is open in which the next node is to die: that round.
Result<std::optional<std::uint64_t>> watch_until_kill(const AdminClient& admin, std::uint64_t run, const Kill* next,
                                                      RoundView& view) {
  std::optional<std::uint64_t> open;
  const Status watched = admin.watch(
      fmt::format("/v1/rounds/watch?run={}&from={}", run, view.committed() + 1), [&](const json::value& event) {
        view.on_event(event);
        const std::uint64_t round = count_member(event, "round");
        if (next != nullptr && text_member(event, "event") == "opened" && round >= next->round) open = round;
        return !open && view.status() != "paused";
      });
  if (!watched.ok()) return watched.error();
  return open;
}

}  // namespace

Status watch_disturbed_run(LocalFederation& federation, std::uint64_t run, std::uint64_t rounds,
                           std::vector<Kill> kills, RoundView& view,
                           const std::function<void(const std::string&)>& say) {
  for (const Kill& kill : kills) {
    FLUVIAL_ASSIGN(const std::optional<std::uint64_t> open, watch_until_kill(federation.admin(), run, &kill, view));
    if (!open) break;
    federation.kill(kill.node);
    const auto killed = std::chrono::steady_clock::now();
    view.finish();
    say(fmt::format("round {} is open: kill -9 {}", *open, kill.node));
    FLUVIAL_TRY(federation.restart(kill.node));
    const std::chrono::duration<double> away = std::chrono::steady_clock::now() - killed;
    say(fmt::format("{} is started again and ready after {}", kill.node, format_seconds(away.count())));
  }
  FLUVIAL_TRY(watch_until_kill(federation.admin(), run, nullptr, view));
  if (view.committed() == rounds) return {};
  view.finish();
  return Error{Code::kInternal, fmt::format("the run {} after {} of {} rounds: {}", view.status(), view.committed(),
                                            rounds, view.reason())};
}

}  // namespace fluvial::cli
