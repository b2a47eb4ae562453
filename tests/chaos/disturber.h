// Carries faults out on a federation. On the thread that made its supervisor.
#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <fstream>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "cli/local_federation.h"
#include "tests/chaos/faults.h"
#include "tests/integration/gate.h"

namespace fluvial::chaos {

class Disturber {
 public:
  enum class State { kUp, kStarting, kStopped, kDown };

  // Where the nodes' folders and disks are, and what stands before each parent.
  struct Surroundings {
    std::string folder;
    std::map<std::string, integration::TcpGate*> gates;
  };
  static std::string shadow_of(const std::string& folder, const std::string& node) { return folder + "/disks/" + node; }

  // faults.log in the folder takes a line an action, with the time as the processes' logs write it.
  Disturber(cli::Supervisor& supervisor, cli::LocalFederation& federation, FaultSource source,
            Surroundings surroundings);

  // Called when a node has ended, before it is started again.
  void on_end(std::function<void(const std::string& node)> ended) { ended_ = std::move(ended); }
  // Called before a node's disk begins to fail, and when it works again.
  void on_disk(std::function<void(const std::string& node, bool fails)> disk) { disk_ = std::move(disk); }

  // What is due by now. An error: a process whose disk has not failed ended of itself, or one does not come back.
  Status step();
  // A person does so.
  Status restart(const std::string& node);
  std::chrono::milliseconds until_next() const;  // at most 50 ms while somebody is starting
  // Nobody may end but those that were killed, and whoever starts must get ready.
  Status watch();
  // No further faults: everybody goes on, or is started again; returns when all are ready.
  Status heal();
  void go_on();  // after heal(): what would have been due meanwhile is left out

  // Each node's name, role and state.
  struct Node {
    std::string role;
    State state = State::kUp;
    std::chrono::steady_clock::time_point starting_since;
    bool disk_fails = false;
    bool in_doubt = false;  // its disk has failed since it was started: it may end of itself
  };
  const std::map<std::string, Node>& nodes() const { return nodes_; }
  // How long of that time the coordinator was stopped, down or starting.
  std::chrono::steady_clock::duration coordinator_out(std::chrono::steady_clock::time_point from,
                                                      std::chrono::steady_clock::time_point until) const;
  const std::deque<std::string>& last_actions() const { return last_actions_; }
  // By role.
  const std::map<std::string, std::uint64_t>& kills() const { return kills_; }
  const std::map<std::string, std::uint64_t>& stops() const { return stops_; }
  const std::map<std::string, std::uint64_t>& power_cuts() const { return power_cuts_; }
  const std::map<std::string, std::uint64_t>& disk_faults() const { return disk_faults_; }
  const std::map<std::string, std::uint64_t>& network_faults() const { return network_faults_; }
  std::uint64_t ended_of_themselves() const { return ended_of_themselves_; }

 private:
  enum class Action { kKill, kCutPower, kStop, kContinue, kStart, kFailDisk, kMendDisk, kFailNetwork, kMendNetwork };
  struct Due {
    std::string node;
    Action action;
    std::uint64_t detail = 0;
  };
  void plan_next();
  Status carry_out(const Due& due);
  Status end(const std::string& name, const Due& due);
  Status start(const std::string& name);
  Status fail_disk(const std::string& name, std::uint64_t detail);
  Status mend_disk(const std::string& name);
  void fail_network(const std::string& name, std::uint64_t detail);
  void mend_network(const std::string& name);
  void ended_of_itself(const std::string& name);
  Status ready(const std::string& name, const Node& node);
  void set_state(const std::string& name, State state);
  void note(std::string_view action, const std::string& node);

  cli::Supervisor& supervisor_;
  cli::LocalFederation& federation_;
  const std::chrono::steady_clock::time_point begun_;
  std::map<std::string, Node> nodes_;
  struct Out {
    std::chrono::steady_clock::time_point from;
    std::chrono::steady_clock::time_point until = std::chrono::steady_clock::time_point::max();
  };
  std::vector<Out> coordinator_outs_;
  FaultSource source_;
  std::multimap<Milliseconds, Due> due_;
  Milliseconds planned_{0};  // faults up to here are in due_
  Surroundings surroundings_;
  std::function<void(const std::string& node)> ended_;
  std::function<void(const std::string& node, bool fails)> disk_;
  std::ofstream log_;
  std::deque<std::string> last_actions_;
  std::map<std::string, std::uint64_t> kills_;
  std::map<std::string, std::uint64_t> stops_;
  std::map<std::string, std::uint64_t> power_cuts_;
  std::map<std::string, std::uint64_t> disk_faults_;
  std::map<std::string, std::uint64_t> network_faults_;
  std::uint64_t ended_of_themselves_ = 0;
};

std::string_view state_name(Disturber::State state);

}  // namespace fluvial::chaos
