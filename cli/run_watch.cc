#include "cli/run_watch.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <chrono>
#include <optional>
#include <thread>

#include "cli/round_view.h"
#include "cli/waits.h"

namespace fluvial::cli {
namespace {

using std::chrono::steady_clock;

bool is_over(const std::string& status) { return status == "done" || status == "stopped"; }

// Asks again while the coordinator does not answer: after 0.2 s, then twice as long each time, up to 2 s.
class Patience {
 public:
  Patience(const Io& io, std::uint64_t for_s) : io_(io), for_(for_s) {}

  // Waits for the next attempt; false when there is none.
  bool wait(const Error& why) {
    const auto now = steady_clock::now();
    if (!since_) {
      since_ = now;
      io_.note(fmt::format("{}; trying again for {} s. Ctrl-C leaves, and stops nothing\n", why.message, for_.count()));
    }
    if (now - *since_ >= for_) return false;
    std::this_thread::sleep_for(pause_);
    pause_ = std::min(pause_ * 2, std::chrono::milliseconds(2000));
    return true;
  }
  void answered() {
    if (!since_) return;
    const auto away = std::chrono::duration_cast<std::chrono::seconds>(steady_clock::now() - *since_);
    io_.note(fmt::format("the coordinator answers again, after {} s\n", away.count()));
    since_.reset();
    pause_ = kFirst;
  }

 private:
  static constexpr std::chrono::milliseconds kFirst{200};
  const Io& io_;
  std::chrono::seconds for_;
  std::chrono::milliseconds pause_ = kFirst;
  std::optional<steady_clock::time_point> since_;
};

class RunWatch {
 public:
  RunWatch(const Io& io, const Watched& watched, const WatchOptions& options, const json::value& run)
      : io_(io),
        watched_(watched),
        options_(options),
        next_(watched.from),
        view_(io, count_member(run, "rounds"), RoundView::Evaluation::kSeparate, RoundView::Waits::kTold) {
    view_.of_plan(member(run, "plan"));
  }

  std::string target() const { return fmt::format("/v1/rounds/watch?run={}&from={}", watched_.run, next_); }
  const std::string& status() const { return status_; }
  bool is_wanted_end() const { return is_over(status_) || (options_.fail_on_pause && status_ == "paused"); }
  const std::optional<Error>& refused() const { return refused_; }
  void finish() { view_.finish(); }

  bool on_event(const json::value& event) {
    const std::string kind = text_member(event, "event");
    if (kind == "committed") next_ = std::max(next_, count_member(event, "round") + 1);
    if (kind == "state") status_ = text_member(event, "status");
    if (kind == "error") refused_ = Error{Code::kInternal, text_member(event, "message")};
    if (watched_.json) {
      io_.print(one_line(event) + "\n");
    } else {
      view_.on_event(event);
    }
    return !is_wanted_end() && !refused_;
  }

 private:
  const Io& io_;
  Watched watched_;
  WatchOptions options_;
  std::uint64_t next_;
  RoundView view_;
  std::string status_;
  std::optional<Error> refused_;
};

int exit_status(const std::string& status) {
  if (status == "stopped") return kRunStopped;
  return status == "paused" ? kRunPaused : kDone;
}

}  // namespace

void add_watch_options(CLI::App& app, WatchOptions& options) {
  app.add_flag("--fail-on-pause", options.fail_on_pause, "end with status 4 as soon as the run is paused");
  app.add_option("--retry-for", options.retry_for_s,
                 "how many seconds to keep asking a coordinator that does not answer; then end with status 5")
      ->type_name("SECONDS")
      ->check(whole_number(0, 86'400))
      ->capture_default_str();
}

std::string watch_footer() {
  return "Watching begins with what the run is and what it waits for. Ctrl-C leaves, and stops nothing.\n"
         "Exit status: 0 the run is done, 3 it was stopped, 4 it is paused (with --fail-on-pause; without it watching\n"
         "goes on until the run is resumed), 5 the coordinator did not answer for --retry-for seconds, 1 anything "
         "else.";
}

int watch_run(const Io& io, std::string_view command, const AdminClient& client, const Watched& watched,
              const WatchOptions& options) {
  Patience patience(io, options.retry_for_s);
  const auto run = client.get(fmt::format("/v1/runs/{}", watched.run));
  if (!run.ok()) {
    return fail(io, command, run.error(), run.error().code == Code::kUnavailable ? kNoCoordinator : kFailed);
  }
  RunWatch watch(io, watched, options, *run);
  if (!watched.json) {
    io.print(fmt::format("run {} {}: {}\n", watched.run, text_member(*run, "name"),
                         committed_words(*run, count_member(*run, "committed"))));
  }
  for (;;) {
    const Status ended = client.watch(watch.target(), [&](const json::value& event) {
      patience.answered();
      return watch.on_event(event);
    });
    if (watch.refused() || watch.is_wanted_end()) break;
    // A stream that ends while the run does not: the coordinator stops, or this watcher lagged too far behind.
    const Error why = ended.ok() ? Error{Code::kUnavailable, "the coordinator has ended the stream"} : ended.error();
    if (why.code != Code::kUnavailable && why.code != Code::kDeadlineExceeded) {
      watch.finish();
      return fail(io, command, why);
    }
    watch.finish();
    if (!patience.wait(why)) return fail(io, command, why, kNoCoordinator);
  }
  watch.finish();
  return watch.refused() ? fail(io, command, *watch.refused()) : exit_status(watch.status());
}

}  // namespace fluvial::cli
