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

namespace fluvial::chaos {

class Disturber {
 public:
  enum class State { kUp, kStarting, kStopped, kDown };

  // `log_path` takes a line an action, with the time as the processes' logs write it.
  Disturber(cli::Supervisor& supervisor, cli::LocalFederation& federation, FaultSource source,
            const std::string& log_path);

  // Called when a node has been killed, before it is started again.
  void on_kill(std::function<void(const std::string& node)> killed) { killed_ = std::move(killed); }

  // What is due by now. An error: a process ended of itself, or does not come back.
  Status step();
  std::chrono::milliseconds until_next() const;  // at most 50 ms while somebody is starting
  // Nobody may end but those that were killed, and whoever starts must get ready.
  Status watch();
  // No further faults: everybody goes on, or is started again; returns when all are ready.
  Status heal();

  // Each node's name, role and state.
  struct Node {
    std::string role;
    State state = State::kUp;
    std::chrono::steady_clock::time_point starting_since;
  };
  const std::map<std::string, Node>& nodes() const { return nodes_; }
  // How long of that time the coordinator was stopped, down or starting.
  std::chrono::steady_clock::duration coordinator_out(std::chrono::steady_clock::time_point from,
                                                      std::chrono::steady_clock::time_point until) const;
  const std::deque<std::string>& last_actions() const { return last_actions_; }
  // By role.
  const std::map<std::string, std::uint64_t>& kills() const { return kills_; }
  const std::map<std::string, std::uint64_t>& stops() const { return stops_; }

 private:
  enum class Action { kKill, kStop, kContinue, kStart };
  struct Due {
    std::string node;
    Action action;
  };
  void plan_next();
  Status carry_out(const Due& due);
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
  std::function<void(const std::string& node)> killed_;
  std::ofstream log_;
  std::deque<std::string> last_actions_;
  std::map<std::string, std::uint64_t> kills_;
  std::map<std::string, std::uint64_t> stops_;
};

std::string_view state_name(Disturber::State state);

}  // namespace fluvial::chaos
