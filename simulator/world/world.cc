#include "simulator/world/world.h"

#include <algorithm>
#include <utility>

#include "core/base/check.h"

namespace fluvial::simulator {
namespace {

SessionSettings settings_of(const SessionScenario& scenario) {
  return {scenario.heartbeat_timeout, scenario.connect_deadline, scenario.outbox_bytes_max};
}

}  // namespace

std::string_view order_name(Order order) {
  switch (order) {
    case Order::kRevoke: return "revoked";
    case Order::kEnrolAnew: return "enrolled anew";
    case Order::kPause: return "pause";
    case Order::kRollOver: return "rollover";
    case Order::kStop: return "stop";
  }
  return "unknown";
}

World::World(const Scenario& scenario, std::uint64_t seed, std::size_t lines_max)
    : scenario_(scenario),
      chance_(seed),
      trace_(scheduler_, lines_max),
      cores_(scenario.compute.cores),
      network_(scheduler_, trace_, chance_, settings_of(scenario.session)),
      crash_rng_(chance_.stream("crash")) {
  network_.set_byte_cost(scenario.compute.byte_ns, &cores_);
  add_hosts();
}

World::~World() {
  // Processes are destroyed before what they refer to.
  for (auto& machine : machines_) machine->process.reset();
}

void World::add_hosts() {
  const TreeScenario& tree = scenario_.tree;
  add_host({.role = Role::kCoordinator, .name = "coordinator", .home = kRoot});
  std::vector<HostId> above = {kRoot};
  std::vector<HostId> last;
  for (std::uint64_t tier = 1; tier <= tree.depth; ++tier) {
    last.clear();
    for (std::uint64_t i = 0; i < tree.aggregators; ++i) {
      const Host& parent = host(above[i % above.size()]);
      Host aggregator{.role = Role::kAggregator, .home = parent.id, .tier = static_cast<std::uint32_t>(tier)};
      aggregator.name = "aggregator-" + std::to_string(hosts_.size());
      const std::string label = "r" + std::to_string(i);
      aggregator.region = parent.region.empty() ? label : parent.region + "/" + label;
      aggregator.region_index = static_cast<std::uint32_t>(i + 1);
      last.push_back(HostId(static_cast<std::uint32_t>(hosts_.size())));
      add_host(std::move(aggregator));
    }
    above = last;
  }
  const auto add_site = [this](HostId parent_id) {
    const Host& parent = host(parent_id);
    Host site{.role = Role::kSite, .region = parent.region, .region_index = parent.region_index, .home = parent_id};
    site.name = "site-" + std::to_string(hosts_.size());
    site.tier = parent.tier + 1;
    add_host(std::move(site));
  };
  for (const HostId parent : last) {
    for (std::uint64_t i = 0; i < tree.sites; ++i) add_site(parent);
  }
  for (std::uint64_t i = 0; i < (tree.depth == 0 ? tree.sites : tree.sites_at_root); ++i) add_site(kRoot);
}

void World::add_host(Host host) {
  host.id = HostId(static_cast<std::uint32_t>(hosts_.size()));
  network_.add_host(host.id, host.region_index, link_of(host));
  trace_.name(host.id, host.name);
  Disk disk(chance_.stream("disk", host.id.value()), {scenario_.disk.operation});
  // No two machines were booted together: their monotonic clocks have nothing to do with each other.
  const HostClock clock(scheduler_, TimePoint(std::chrono::hours(1) + host.id.value() * std::chrono::seconds(1'009)));
  machines_.push_back(std::make_unique<Machine>(clock, std::move(disk)));
  machines_.back()->crash_rng = chance_.stream("crash_here", host.id.value());
  hosts_.push_back(std::move(host));
}

LinkSettings World::link_of(const Host& host) {
  const LinkScenario& link = host.role == Role::kSite         ? scenario_.site_links
                             : host.role == Role::kAggregator ? scenario_.aggregator_links
                                                              : scenario_.coordinator_links;
  Rng rng = chance_.stream("link", host.id.value());
  const double slow = happens(rng, link.slow_fraction) ? link.slow_factor : 1;
  return {link.delay, link.jitter, link.up_bytes_per_s / slow, link.down_bytes_per_s / slow};
}

bool World::crash_here(HostId id, std::string_view point) {
  Machine& m = machine(id);
  if (m.dying || m.process == nullptr) return true;
  if (m.disk.crashed()) {  // it died in an operation
    trace_.event(id, "crash", 0, 0, [&] { return "in a disk operation before " + std::string(point); });
    kill(id, Death::kMachine);
    return true;
  }
  if (!faults_on_) return false;
  const Faults::Crash& crash = scenario_.faults.crash;
  const Role role = host(id).role;
  const double rate = role == Role::kSite         ? crash.at_effect_site
                      : role == Role::kAggregator ? crash.at_effect_aggregator
                                                  : crash.at_effect_coordinator;
  if (!happens(m.crash_rng, rate)) return false;
  trace_.event(id, "crash", 0, 0, [&] { return "at " + std::string(point); });
  kill(id, happens(m.crash_rng, crash.power) ? Death::kMachine : Death::kProcess);
  return true;
}

EventId World::at(HostId id, TimePoint local, Action action) {
  return scheduler_.at(machine(id).clock.world_time(local), std::move(action), id.value());
}

EventId World::after(HostId id, Duration delay, Action action) {
  // A disk dies only with its machine, so nobody waits for it.
  if (machine(id).disk.crashed()) kill(id, Death::kMachine);
  return scheduler_.after(delay, std::move(action), id.value());
}

void World::install(HostId id, MakeProcess make) { machine(id).make = std::move(make); }

void World::start_all() {
  for (const Host& host : hosts_) start(host.id);
}

void World::start(HostId id) {
  Machine& m = machine(id);
  if (m.process != nullptr || !m.make) return;
  ++m.starts;
  trace_.event(id, "start", m.starts);
  m.process = m.make(*this, id);
  network_.attach(id, m.process.get());
  m.process->start();
}

void World::kill(HostId id, Death death) {
  const Faults::Crash& crash = scenario_.faults.crash;
  kill_for(id, death, between(crash_rng_, crash.down_min, crash.down_max));
}

void World::kill_for(HostId id, Death death, Duration down) {
  Machine& m = machine(id);
  if (m.process == nullptr || m.dying) return;
  trace_.event(id, death == Death::kProcess ? "killed" : "lost power");
  m.dying = true;
  m.death = death;
  m.disk.kill();
  dying_.push_back(id);
  scheduler_.forget(id.value());
  network_.detach(id, death == Death::kProcess ? Ending::kReset : Ending::kSilent);
  scheduler_.after(down, [this, id] { start(id); });
}

// Processes are destroyed in a separate event, when none of their functions is on the stack.
void World::bury() {
  for (const HostId id : dying_) {
    Machine& m = machine(id);
    m.process.reset();
    scheduler_.forget(id.value());  // events that it set after its death
    store::Unsynced unsynced = store::Unsynced::kKept;
    if (m.death == Death::kMachine) {
      unsynced = happens(crash_rng_, scenario_.faults.crash.torn) ? store::Unsynced::kTorn : store::Unsynced::kLost;
      m.clock.reboot();
    }
    if (std::exchange(m.folder_lost, false)) m.disk.empty();
    m.disk.restart(unsynced);
    m.dying = false;
    if (id == kRoot) do_upkeep();
  }
  dying_.clear();
}

void World::order(Order order, HostId id) {
  trace_.event(id, order_name(order));
  if (person_) person_(order, id);
}

void World::lose_folder(HostId id) {
  Machine& m = machine(id);
  if (m.process == nullptr) {  // it is off
    m.disk.empty();
    return m.disk.restart(store::Unsynced::kKept);
  }
  m.folder_lost = true;
  if (!m.dying) kill(id, Death::kMachine);
}

void World::keep_up(Upkeep upkeep) {
  if (upkeep_wanted_ || (upkeep == Upkeep::kRestore && !backup_)) return;
  upkeep_wanted_ = upkeep;
  kill(kRoot, Death::kProcess);
  if (machine(kRoot).process == nullptr) do_upkeep();  // it was down
}

void World::do_upkeep() {
  if (!upkeep_wanted_) return;
  const Upkeep upkeep = *std::exchange(upkeep_wanted_, std::nullopt);
  trace_.event(kRoot, upkeep == Upkeep::kBackUp ? "backed up" : "restored");
  if (upkeep == Upkeep::kBackUp) {
    backup_ = machine(kRoot).disk.back_up();
  } else {
    machine(kRoot).disk.put_back(backup_);
  }
  if (upkeep_) upkeep_(upkeep);
}

void World::violate(std::string invariant, std::string detail) {
  trace_.event(kRoot, "violation", 0, 0, [&] { return invariant + ": " + detail; });
  violations_.push_back({chance_.seed(), std::move(invariant), std::move(detail)});
}

bool World::step(TimePoint until) {
  if (!dying_.empty()) bury();
  if (!scheduler_.step(until)) return false;
  if (!dying_.empty()) bury();
  return true;
}

}  // namespace fluvial::simulator
