#include "tests/chaos/disturber.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace fluvial::chaos {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr std::size_t kActionsShown = 30;

}  // namespace

std::string_view state_name(Disturber::State state) {
  switch (state) {
    case Disturber::State::kUp: return "up";
    case Disturber::State::kStarting: return "starting";
    case Disturber::State::kStopped: return "stopped";
    case Disturber::State::kDown: return "down";
  }
  return "unknown";
}

Disturber::Disturber(cli::Supervisor& supervisor, cli::LocalFederation& federation, FaultSource source,
                     const std::string& log_path)
    : supervisor_(supervisor),
      federation_(federation),
      begun_(steady_clock::now()),
      source_(std::move(source)),
      log_(log_path) {
  for (const auto& [name, role] : federation.roles()) nodes_[name] = {.role = role, .starting_since = begun_};
  plan_next();
}

void Disturber::plan_next() {
  const Fault fault = source_.next();
  planned_ = fault.at;
  const bool stops = fault.kind != FaultKind::kKill;
  const bool kills = fault.kind != FaultKind::kStop;
  if (stops) due_.emplace(fault.at, Due{fault.node, Action::kStop});
  due_.emplace(fault.at + fault.stopped, Due{fault.node, kills ? Action::kKill : Action::kContinue});
  if (kills) due_.emplace(fault.end(), Due{fault.node, Action::kStart});
}

std::chrono::milliseconds Disturber::until_next() const {
  const auto now = std::chrono::duration_cast<Milliseconds>(steady_clock::now() - begun_);
  return std::clamp(due_.begin()->first - now, 0ms, 50ms);
}

Status Disturber::step() {
  FLUVIAL_TRY(watch());
  for (;;) {
    const auto now = std::chrono::duration_cast<Milliseconds>(steady_clock::now() - begun_);
    while (planned_ <= now) plan_next();
    if (due_.begin()->first > now) return {};
    const Due due = due_.begin()->second;
    due_.erase(due_.begin());
    FLUVIAL_TRY(carry_out(due));
  }
}

Status Disturber::carry_out(const Due& due) {
  const Node& node = nodes_.at(due.node);
  switch (due.action) {
    case Action::kStop:
      note("stop", due.node);
      ++stops_[node.role];
      supervisor_.signal(federation_.process_of(due.node), SIGSTOP);
      set_state(due.node, State::kStopped);
      return {};
    case Action::kContinue:
      note("continue", due.node);
      supervisor_.signal(federation_.process_of(due.node), SIGCONT);
      set_state(due.node, State::kStarting);  // it may have been stopped before it was ready
      return {};
    case Action::kKill:
      note("kill -9", due.node);
      ++kills_[node.role];
      federation_.kill(due.node);
      if (killed_) killed_(due.node);
      set_state(due.node, State::kDown);
      return {};
    case Action::kStart:
      note("start", due.node);
      set_state(due.node, State::kStarting);
      return federation_.respawn(due.node);
  }
  return {};
}

Status Disturber::watch() {
  for (const auto& [name, node] : nodes_) {
    if (node.state == State::kDown) continue;
    if (const auto end = supervisor_.end_of(federation_.process_of(name))) {
      return Error{Code::kInternal, fmt::format("{} {}, and nobody told it to", name, cli::describe_end(*end))};
    }
    if (node.state == State::kStarting) FLUVIAL_TRY(ready(name, node));
  }
  return {};
}

Status Disturber::ready(const std::string& name, const Node& node) {
  const Status is_ready = federation_.wait_restarted(name, 0ms);
  if (is_ready.ok()) {
    set_state(name, State::kUp);
    return {};
  }
  const bool may_wait = steady_clock::now() - node.starting_since < cli::kReadyLimit;
  if (is_ready.error().code == Code::kDeadlineExceeded && may_wait) return {};
  return is_ready;
}

Status Disturber::heal() {
  due_.clear();
  for (const auto& [name, node] : nodes_) {
    if (node.state == State::kStopped) FLUVIAL_TRY(carry_out({name, Action::kContinue}));
    if (node.state == State::kDown) FLUVIAL_TRY(carry_out({name, Action::kStart}));
  }
  for (const auto& [name, node] : nodes_) {
    FLUVIAL_TRY(federation_.wait_restarted(name));
    set_state(name, State::kUp);
  }
  return {};
}

void Disturber::set_state(const std::string& name, State state) {
  Node& node = nodes_.at(name);
  const auto now = steady_clock::now();
  if (node.role == "coordinator" && node.state == State::kUp && state != State::kUp) coordinator_outs_.push_back({now});
  if (node.role == "coordinator" && state == State::kUp && !coordinator_outs_.empty()) {
    coordinator_outs_.back().until = std::min(coordinator_outs_.back().until, now);
  }
  if (state == State::kStarting) node.starting_since = now;
  node.state = state;
}

steady_clock::duration Disturber::coordinator_out(steady_clock::time_point from, steady_clock::time_point until) const {
  steady_clock::duration sum{};
  for (const Out& out : coordinator_outs_) {
    sum += std::max(steady_clock::duration(0), std::min(out.until, until) - std::max(out.from, from));
  }
  return sum;
}

void Disturber::note(std::string_view action, const std::string& node) {
  const auto now = std::chrono::floor<Milliseconds>(std::chrono::system_clock::now());
  last_actions_.push_back(fmt::format("{:%Y-%m-%dT%H:%M}:{:%S}Z {:8} {}", now, now.time_since_epoch(), action, node));
  log_ << last_actions_.back() << std::endl;
  if (last_actions_.size() > kActionsShown) last_actions_.pop_front();
}

}  // namespace fluvial::chaos
