#include "tests/chaos/disturber.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <utility>

#include "tests/chaos/power_cut.h"
#include "tests/chaos/shadow_disk.h"

namespace fluvial::chaos {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr std::size_t kActionsShown = 30;
constexpr auto kStartedAgainAfter = 300ms;  // by whoever keeps it running

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
                     Surroundings surroundings)
    : supervisor_(supervisor),
      federation_(federation),
      begun_(steady_clock::now()),
      source_(std::move(source)),
      surroundings_(std::move(surroundings)),
      log_(surroundings_.folder + "/faults.log") {
  for (const auto& [name, role] : federation.roles()) nodes_[name] = {.role = role, .starting_since = begun_};
  plan_next();
}

void Disturber::plan_next() {
  const Fault fault = source_.next();
  planned_ = fault.at;
  const auto plan = [&](Milliseconds at, Action action) { due_.emplace(at, Due{fault.node, action, fault.detail}); };
  const Milliseconds then = fault.at + fault.stopped;
  switch (fault.kind) {
    case FaultKind::kKill: plan(fault.at, Action::kKill); break;
    case FaultKind::kPowerCut: plan(fault.at, Action::kCutPower); break;
    case FaultKind::kStop: plan(fault.at, Action::kStop), plan(then, Action::kContinue); break;
    case FaultKind::kStopAndKill: plan(fault.at, Action::kStop), plan(then, Action::kKill); break;
    case FaultKind::kDisk: plan(fault.at, Action::kFailDisk), plan(then, Action::kMendDisk); break;
    case FaultKind::kNetwork: plan(fault.at, Action::kFailNetwork), plan(then, Action::kMendNetwork); break;
  }
  if (ends_process(fault.kind)) plan(fault.end(), Action::kStart);
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

// What ended of itself meanwhile is out of reach until it is started again.
Status Disturber::carry_out(const Due& due) {
  const Node& node = nodes_.at(due.node);
  const bool down = node.state == State::kDown;
  switch (due.action) {
    case Action::kStop:
      if (down) return {};
      note("stop", due.node);
      ++stops_[node.role];
      supervisor_.signal(federation_.process_of(due.node), SIGSTOP);
      set_state(due.node, State::kStopped);
      return {};
    case Action::kContinue:
      if (down) return {};
      note("continue", due.node);
      supervisor_.signal(federation_.process_of(due.node), SIGCONT);
      set_state(due.node, State::kStarting);  // it may have been stopped before it was ready
      return {};
    case Action::kKill:
    case Action::kCutPower: return end(due.node, due);
    case Action::kStart: return start(due.node);
    case Action::kFailDisk: return fail_disk(due.node, due.detail);
    case Action::kMendDisk: return mend_disk(due.node);
    case Action::kFailNetwork: fail_network(due.node, due.detail); return {};
    case Action::kMendNetwork: mend_network(due.node); return {};
  }
  return {};
}

Status Disturber::end(const std::string& name, const Due& due) {
  Node& node = nodes_.at(name);
  const bool cut = due.action == Action::kCutPower;
  const Unsynced unsynced = due.detail % 2 == 0 ? Unsynced::kLost : Unsynced::kTorn;
  note(cut ? fmt::format("power cut ({})", unsynced_name(unsynced)) : "kill -9", name);
  ++(cut ? power_cuts_ : kills_)[node.role];
  if (node.state != State::kDown) {
    federation_.kill(name);
    if (ended_) ended_(name);
    set_state(name, State::kDown);
  }
  const std::string shadow = shadow_of(surroundings_.folder, name);
  return cut ? cut_power(surroundings_.folder + "/" + name, shadow, unsynced, due.detail) : Status();
}

Status Disturber::start(const std::string& name) {
  Node& node = nodes_.at(name);
  if (node.state != State::kDown) return {};
  note("start", name);
  node.in_doubt = node.disk_fails;
  set_state(name, State::kStarting);
  return federation_.respawn(name);
}

Status Disturber::restart(const std::string& name) {
  FLUVIAL_TRY(end(name, {name, Action::kKill}));
  return start(name);
}

Status Disturber::fail_disk(const std::string& name, std::uint64_t detail) {
  Node& node = nodes_.at(name);
  DiskFaults faults{.seed = detail};
  switch (detail % 4) {
    case 0: faults.kind = DiskFault::kIo, faults.one_in = 2; break;
    case 1: faults.kind = DiskFault::kIo, faults.one_in = 40; break;
    case 2: faults.kind = DiskFault::kFull, faults.one_in = 1; break;
    default: faults.kind = DiskFault::kShort, faults.one_in = 8; break;
  }
  note(fmt::format("disk fails ({}, one in {})", disk_fault_name(faults.kind), faults.one_in), name);
  ++disk_faults_[node.role];
  node.disk_fails = node.in_doubt = true;
  if (disk_) disk_(name, true);
  return set_disk_faults(shadow_of(surroundings_.folder, name), faults);
}

Status Disturber::mend_disk(const std::string& name) {
  Node& node = nodes_.at(name);
  if (!node.disk_fails) return {};
  note("disk works", name);
  node.disk_fails = false;
  FLUVIAL_TRY(set_disk_faults(shadow_of(surroundings_.folder, name), std::nullopt));
  if (disk_) disk_(name, false);
  return {};
}

void Disturber::fail_network(const std::string& name, std::uint64_t detail) {
  using integration::Way;
  constexpr std::uint64_t kBytesMax = 400'000;  // within an update or a partial, mostly
  const auto found = surroundings_.gates.find(name);
  if (found == surroundings_.gates.end()) return;
  integration::TcpGate& gate = *found->second;
  ++network_faults_[nodes_.at(name).role];
  const Way way = detail % 2 == 0 ? Way::kUp : Way::kDown;
  const std::string_view which = way == Way::kUp ? "up" : "down";
  switch (detail / 2 % 4) {
    case 0:
      note("refuses connections", name);
      gate.refuse(true);
      gate.cut_all(way);
      return;
    case 1:
      note(fmt::format("half open, {} is lost", which), name);
      gate.set(way, {.forwards = false});
      return;
    case 2:
      note("hears and says nothing", name);
      gate.set({.forwards = false});
      return;
    default: note(fmt::format("cut within what goes {}", which), name); gate.cut_after(way, detail / 8 % kBytesMax);
  }
}

void Disturber::mend_network(const std::string& name) {
  const auto found = surroundings_.gates.find(name);
  if (found == surroundings_.gates.end()) return;
  note("network works", name);
  found->second->set({});
  found->second->refuse(false);
}

void Disturber::ended_of_itself(const std::string& name) {
  note("ended of itself", name);
  ++ended_of_themselves_;
  if (ended_) ended_(name);
  set_state(name, State::kDown);
  const auto now = std::chrono::duration_cast<Milliseconds>(steady_clock::now() - begun_);
  due_.emplace(now + kStartedAgainAfter, Due{name, Action::kStart});
}

Status Disturber::watch() {
  for (const auto& [name, node] : nodes_) {
    if (node.state == State::kDown) continue;
    if (const auto end = supervisor_.end_of(federation_.process_of(name))) {
      if (!node.in_doubt) {
        return Error{Code::kInternal, fmt::format("{} {}, and nobody told it to", name, cli::describe_end(*end))};
      }
      if (WIFSIGNALED(*end)) {
        return Error{Code::kInternal, fmt::format("{} {} when its disk failed", name, cli::describe_end(*end))};
      }
      ended_of_itself(name);
    } else if (node.state == State::kStarting) {
      FLUVIAL_TRY(ready(name, node));
    }
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
  if (node.in_doubt || (is_ready.error().code == Code::kDeadlineExceeded && may_wait)) return {};
  return is_ready;
}

// Whose disk has failed is started again, as a person would do.
Status Disturber::heal() {
  due_.clear();
  for (const auto& [name, node] : nodes_) {
    mend_network(name);
    FLUVIAL_TRY(mend_disk(name));
    if (node.state == State::kStopped) FLUVIAL_TRY(carry_out({name, Action::kContinue}));
    if (node.in_doubt && node.state != State::kDown) FLUVIAL_TRY(end(name, {name, Action::kKill}));
    FLUVIAL_TRY(start(name));
  }
  for (const auto& [name, node] : nodes_) {
    FLUVIAL_TRY(federation_.wait_restarted(name));
    set_state(name, State::kUp);
  }
  return {};
}

void Disturber::go_on() {
  const auto now = std::chrono::duration_cast<Milliseconds>(steady_clock::now() - begun_);
  do {
    due_.clear();
    plan_next();
  } while (planned_ <= now);
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
