// `fluvial rounds watch`: what is committed already, what the run is and waits for, then what happens, until the run
// ends.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <cstdlib>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/admin/waits.h"
#include "coordinator/service/json.h"
#include "core/net/deadline.h"
#include "core/net/run_on.h"

namespace fluvial::coordinator::admin {
namespace {

constexpr std::uint64_t kReplayedMax = 1'000'000;

// How far a watcher has come.
struct Replayed {
  std::shared_ptr<Watcher> watcher;
  RunId run;
  RoundId last;
  bool ended = false;
  std::string waits;  // as this watcher was told last
  std::uint32_t silent_looks = 0;
};

constexpr Duration kLook = std::chrono::seconds(1);  // between two looks at what is waited for
constexpr std::uint32_t kSilentLooksMax = 15;  // then it is told again: so each side notices that the other is gone

// Says what the run waits for, when that is another thing than what this watcher knows.
void tell_waits(const Context& admin, Replayed& follow, std::vector<std::string>& lines) {
  const ActiveRun* active = admin.root.runs().active();
  if (active == nullptr || active->machine.run() != follow.run || is_over(active->machine.status())) return;
  std::string line = waits_line(admin, active->machine);
  follow.silent_looks = lines.empty() ? follow.silent_looks + 1 : 0;
  if (line == follow.waits && follow.silent_looks < kSilentLooksMax) return;
  follow.silent_looks = 0;
  follow.waits = line;
  lines.push_back(std::move(line));
}

// The next lines for this watcher; empty when the feed has ended.
net::Awaitable<void> next_lines(Context* admin, Replayed* follow, std::vector<std::string>* lines, bool* ended) {
  while (lines->empty() && !*ended) {
    const Status woken = co_await net::with_deadline(follow->watcher->wait(), kLook);
    (void)woken.ok();  // or there is nothing but the time
    while (!follow->watcher->lines.empty()) {
      FeedLine line = std::move(follow->watcher->lines.front());
      follow->watcher->lines.pop_front();
      if (line.run != follow->run) continue;
      const bool committed = line.json.find("\"event\":\"committed\"") != std::string::npos;
      if (!committed || line.round > follow->last) lines->push_back(std::move(line.json));
      *ended = *ended || line.ends_run;
    }
    *ended = *ended || follow->watcher->closed;
    if (!*ended) tell_waits(*admin, *follow, *lines);
  }
}

// On the node's strand: the lines of what is committed, and a watcher from before they were read.
net::Awaitable<Result<std::vector<std::string>>> replay(Context* admin, std::string run_text, RoundId from,
                                                        Replayed* replayed) {
  replayed->watcher = admin->feed.watch();
  const Result<RunId> run = co_await admin->run_or_latest(std::move(run_text));
  if (!run.ok()) co_return run.error();
  replayed->run = *run;
  const auto name_of = [admin](NodeId node) { return admin->name_of(node); };
  const Result<std::vector<store::CommitRow>> rows =
      co_await admin->runtime.pool.run([&] { return admin->journal.commits(*run, from, kReplayedMax); });
  if (!rows.ok()) co_return rows.error();
  std::vector<std::string> lines;
  for (const store::CommitRow& row : *rows) {
    replayed->last = row.record.round;
    lines.push_back(committed_line(row, name_of));
    if (!row.evaluation.empty()) lines.push_back(evaluated_line(*run, row.record.round, row.evaluation));
  }
  const Result<store::RunRow> row = co_await admin->runtime.pool.run([&] { return admin->journal.run(*run); });
  if (!row.ok()) co_return row.error();
  replayed->ended = is_over(row->status) && !admin->feed.holds(*run);
  // The journal may say already what the run will be once its open round has closed.
  const ActiveRun* active = admin->root.runs().active();
  if (!replayed->ended && active != nullptr && active->machine.run() == *run) {
    const RunMachine& machine = active->machine;
    const bool runs = machine.status() == RunStatus::kRunning;
    if (!is_over(machine.status())) lines.push_back(state_line(*run, machine.status(), runs ? "" : machine.reason()));
    tell_waits(*admin, *replayed, lines);
  } else {
    lines.push_back(state_line(*run, row->status, row->reason));
  }
  co_return lines;
}

// On the connection's executor.
net::Awaitable<void> write_events(Context* admin, std::string run_text, std::string from_text,
                                  std::shared_ptr<net::LineWriter> out) {
  const std::uint64_t from = std::max<std::uint64_t>(1, std::strtoull(from_text.c_str(), nullptr, 10));
  Replayed replayed;
  Result<std::vector<std::string>> first =
      co_await net::run_on(admin->runtime.strand, replay(admin, run_text, RoundId(from), &replayed));
  if (!first.ok()) {
    const Status told = co_await out->write_line(error_line(first.error()));
    (void)told.ok();  // the client may be gone: either way this ends
    co_return;
  }
  std::vector<std::string> lines = std::move(*first);
  for (bool ended = replayed.ended;;) {
    for (std::string& line : lines) {
      const Status written = co_await out->write_line(std::move(line));
      if (!written.ok()) co_return;
    }
    if (ended) co_return;
    lines.clear();
    co_await net::run_on(admin->runtime.strand, next_lines(admin, &replayed, &lines, &ended));
  }
}

net::Awaitable<net::HttpResponse> watch(Context* admin, Call call) {
  net::HttpResponse response;
  response.content_type = "application/x-ndjson";
  response.lines = [admin, run = call.text("run"), from = call.text("from")](std::shared_ptr<net::LineWriter> out) {
    return write_events(admin, run, from, std::move(out));
  };
  co_return response;
}

}  // namespace

void add_watch(Router& router) { router.get("/v1/rounds/watch", watch); }

}  // namespace fluvial::coordinator::admin
