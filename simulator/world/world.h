// A world: hosts, their clocks, disks and links, and one process a host, all of it driven by one scheduler from one
// seed. Roles implement Process; the world starts them, kills them and starts them again.
//
// A process that dies does not unwind: crash_here() says that it is dead, and it returns. From then on nothing that it
// does has an effect: its sends and disk operations fail, its timers are gone. It is destroyed after the event.
// One thread a world.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "simulator/scenario/chance.h"
#include "simulator/scenario/scenario.h"
#include "simulator/world/clock.h"
#include "simulator/world/cores.h"
#include "simulator/world/disk.h"
#include "simulator/world/network.h"
#include "simulator/world/scheduler.h"
#include "simulator/world/trace.h"

namespace fluvial::simulator {

class World;

class Process : public Endpoint {
 public:
  virtual void start() = 0;  // once, after it was attached
};
using MakeProcess = std::function<std::unique_ptr<Process>(World& world, HostId host)>;

struct Violation {
  std::uint64_t seed = 0;
  std::string invariant;  // a short name, for grouping
  std::string detail;
};

enum class Death {
  kProcess,  // kill -9: written data stays, peers get a reset
  kMachine,  // power: unsynced data is lost or torn, peers notice by silence
};

enum class Order { kRevoke, kEnrolAnew, kPause, kStop, kRollOver };
std::string_view order_name(Order order);

class World {
 public:
  World(const Scenario& scenario, std::uint64_t seed, std::size_t lines_max);
  World(const World&) = delete;
  World& operator=(const World&) = delete;
  ~World();

  const Scenario& scenario() const { return scenario_; }
  const Chance& chance() const { return chance_; }
  Scheduler& scheduler() { return scheduler_; }
  Network& network() { return network_; }
  Trace& trace() { return trace_; }

  const std::vector<Host>& hosts() const { return hosts_; }
  const Host& host(HostId id) const { return hosts_[id.value()]; }
  HostClock& clock(HostId id) { return machine(id).clock; }
  Disk& disk(HostId id) { return machine(id).disk; }
  bool is_up(HostId id) const { return machines_[id.value()]->process != nullptr && !machines_[id.value()]->dying; }
  std::uint64_t starts(HostId id) const { return machines_[id.value()]->starts; }
  Process* process(HostId id) { return machine(id).process.get(); }  // null while it is down

  // ---- for processes ----
  // Called between any two effects: true if the process dies here. It then returns and does nothing more.
  bool crash_here(HostId id, std::string_view point);
  // When this host's monotonic clock shows `local`; gone with the process.
  EventId at(HostId id, TimePoint local, Action action);
  EventId after(HostId id, Duration delay, Action action);
  // How long work takes that needs `cost` of a processor, when it begins now.
  Duration compute(Duration cost) { return cores_.take(scheduler_.now(), cost); }
  bool cancel(EventId event) { return scheduler_.cancel(event); }
  // After the time that this host's disk needs for the operations since the last call.
  EventId after_disk(HostId id, Action action) { return after(id, disk(id).take_latency(), std::move(action)); }

  // ---- for the driver of the world ----
  void install(HostId id, MakeProcess make);  // and start_all(), or start(), begins it
  void start_all();                           // in the order of their numbers
  void start(HostId id);
  void kill(HostId id, Death death);                     // does nothing when it is down
  void kill_for(HostId id, Death death, Duration down);  // and start it again
  // Off: crash_here() kills nobody, and roles do no harm themselves (corrupt and malicious updates).
  void set_faults_on(bool on) { faults_on_ = on; }
  bool faults_on() const { return faults_on_; }
  // A person's orders to the coordinator or a host; the roles carry them out.
  void set_person(std::function<void(Order, HostId)> person) { person_ = std::move(person); }
  void order(Order order, HostId id);
  void lose_folder(HostId id);  // its disk is empty when it comes up again
  // Stops the coordinator and copies its disk; or stops it and puts the last copy back (nothing without one). It starts
  // again as after any crash. The roles do the rest.
  enum class Upkeep { kBackUp, kRestore };
  void set_upkeep(std::function<void(Upkeep)> upkeep) { upkeep_ = std::move(upkeep); }
  void keep_up(Upkeep upkeep);

  void violate(std::string invariant, std::string detail);
  const std::vector<Violation>& violations() const { return violations_; }

  // Runs one event, then removes dead processes. False: nothing to do before `until`.
  bool step(TimePoint until);

 private:
  struct Machine {
    Machine(HostClock c, Disk d) : clock(c), disk(std::move(d)) {}
    HostClock clock;
    Disk disk;
    MakeProcess make;
    std::unique_ptr<Process> process;
    bool dying = false;
    Death death = Death::kProcess;
    bool folder_lost = false;
    std::uint64_t starts = 0;
    Rng crash_rng{0};
  };
  Machine& machine(HostId id) { return *machines_[id.value()]; }
  void add_hosts();
  void add_host(Host host);
  LinkSettings link_of(const Host& host);
  void bury();

  Scenario scenario_;
  Chance chance_;
  Scheduler scheduler_;
  Trace trace_;
  Cores cores_;
  Network network_;
  std::vector<Host> hosts_;
  std::vector<std::unique_ptr<Machine>> machines_;
  std::vector<HostId> dying_;
  bool faults_on_ = true;
  std::function<void(Order, HostId)> person_;
  void do_upkeep();
  std::function<void(Upkeep)> upkeep_;
  std::optional<Upkeep> upkeep_wanted_;  // once the coordinator's process is buried
  Disk::Backup backup_;
  Rng crash_rng_;
  std::vector<Violation> violations_;
};

}  // namespace fluvial::simulator
