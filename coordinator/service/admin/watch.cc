// `fluvial rounds watch`: what is committed already, what the run is and waits for, then what happens, until the run
// ends.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/admin/waits.h"
#include "coordinator/service/json.h"
#include "core/net/deadline.h"
#include "core/net/run_on.h"

namespace fluvial::coordinator::admin {
namespace {

constexpr std::uint64_t kReplayedAtOnce = 64;  // rounds; other work of the strand goes on between

// How far a watcher has come.
struct Replayed {
  std::shared_ptr<Watcher> watcher;
  RunId run;
  RoundId next;  // round to tell
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
      if (!committed || line.round >= follow->next) lines->push_back(std::move(line.json));
      *ended = *ended || line.ends_run;
    }
    *ended = *ended || follow->watcher->closed;
    if (!*ended) tell_waits(*admin, *follow, *lines);
  }
}

// On the node's strand, as what follows: a watcher from before the journal is read.
net::Awaitable<Status> begin(Context* admin, std::string run_text, Replayed* replayed) {
  replayed->watcher = admin->feed.watch();
  const Result<RunId> run = co_await admin->run_or_latest(std::move(run_text));
  if (!run.ok()) co_return run.error();
  replayed->run = *run;
  co_return Status();
}

// The lines of some more rounds that are committed; none: there are no more.
net::Awaitable<Result<std::vector<std::string>>> replay(Context* admin, Replayed* replayed) {
  const auto name_of = [admin](NodeId node) { return admin->name_of(node); };
  const Result<std::vector<store::CommitRow>> rows = co_await admin->runtime.pool.run(
      [&] { return admin->journal.commits(replayed->run, replayed->next, kReplayedAtOnce); });
  if (!rows.ok()) co_return rows.error();
  std::vector<std::string> lines;
  for (const store::CommitRow& row : *rows) {
    replayed->next = RoundId(row.record.round.value() + 1);
    lines.push_back(committed_line(row, name_of));
    if (!row.evaluation.empty()) lines.push_back(evaluated_line(replayed->run, row.record.round, row.evaluation));
  }
  co_return lines;
}

// What the run is now.
net::Awaitable<Result<std::vector<std::string>>> state_now(Context* admin, Replayed* replayed) {
  const RunId run = replayed->run;
  std::vector<std::string> lines;
  const Result<store::RunRow> row = co_await admin->runtime.pool.run([&] { return admin->journal.run(run); });
  if (!row.ok()) co_return row.error();
  replayed->ended = is_over(row->status) && !admin->feed.holds(run);
  // The journal may say already what the run will be once its open round has closed.
  const ActiveRun* active = admin->root.runs().active();
  if (!replayed->ended && active != nullptr && active->machine.run() == run) {
    const RunMachine& machine = active->machine;
    const bool runs = machine.status() == RunStatus::kRunning;
    if (!is_over(machine.status())) lines.push_back(state_line(run, machine.status(), runs ? "" : machine.reason()));
    tell_waits(*admin, *replayed, lines);
  } else {
    lines.push_back(state_line(run, row->status, row->reason));
  }
  co_return lines;
}

// The client may be gone, also when it is told of an error: either way this ends.
net::Awaitable<bool> write_all(std::shared_ptr<net::LineWriter> out, Result<std::vector<std::string>> lines) {
  if (!lines.ok()) {
    const Status told = co_await out->write_line(error_line(lines.error()));
    (void)told.ok();  // its connection says so
    co_return false;
  }
  for (std::string& line : *lines) {
    const Status written = co_await out->write_line(std::move(line));
    if (!written.ok()) co_return false;
  }
  co_return true;
}

// On the connection's executor.
net::Awaitable<void> write_events(Context* admin, std::string run_text, Result<std::uint64_t> from,
                                  std::shared_ptr<net::LineWriter> out) {
  Replayed replayed;
  Status begun = from.ok() ? Status() : Status(from.error());
  if (begun.ok()) {
    replayed.next = RoundId(std::max<std::uint64_t>(1, *from));
    begun = co_await net::run_on(admin->runtime.strand, begin(admin, std::move(run_text), &replayed));
  }
  if (!begun.ok()) {
    const bool told = co_await write_all(out, begun.error());
    (void)told;  // it ends either way
    co_return;
  }
  // Asked before the rounds are: a run that is over by then has no round that comes later, and what happens from here
  // on the watcher has.
  Result<std::vector<std::string>> now = co_await net::run_on(admin->runtime.strand, state_now(admin, &replayed));
  for (bool more = true; more;) {
    Result<std::vector<std::string>> lines = co_await net::run_on(admin->runtime.strand, replay(admin, &replayed));
    more = !lines.ok() || !lines->empty();
    const bool written = co_await write_all(out, std::move(lines));
    if (!written) co_return;  // its connection says so
  }
  bool goes_on = co_await write_all(out, std::move(now));
  for (bool ended = replayed.ended; goes_on && !ended;) {
    std::vector<std::string> lines;
    co_await net::run_on(admin->runtime.strand, next_lines(admin, &replayed, &lines, &ended));
    goes_on = co_await write_all(out, std::move(lines));
  }
}

net::Awaitable<net::HttpResponse> watch(Context* admin, Call call) {
  Result<std::shared_ptr<void>> place = admin->watches.begin(call.caller.who());
  if (!place.ok()) co_return net::HttpResponse::from_error(place.error());
  net::HttpResponse response;
  response.content_type = "application/x-ndjson";
  response.lines = [admin, place = std::move(*place), run = call.text("run"), from = call.number("from", 1)](
                       std::shared_ptr<net::LineWriter> out) { return write_events(admin, run, from, std::move(out)); };
  co_return response;
}

}  // namespace

void add_watch(Router& router) { router.get("/v1/rounds/watch", watch); }

}  // namespace fluvial::coordinator::admin
