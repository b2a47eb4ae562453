// The parts of `fluvial demo`.
#pragma once

#include <string>
#include <vector>

#include "cli/json.h"
#include "cli/local_federation.h"
#include "cli/terminal.h"
#include "cli/work_folder.h"

namespace fluvial::cli {

struct DemoOptions {
  FederationShape shape{.sites = 4, .aggregators = 2};
  // For softmax; demo.cc changes what the cnn needs otherwise. With these the federation ends within one percentage
  // point of the central model whatever the seed: 24 seeds of 24, at most 0.83 below. The mlp is more accurate on most
  // seeds and further behind on some (examples/digits/README.md).
  std::uint64_t rounds = 60;
  std::uint64_t local_steps = 10;
  std::uint64_t batch_size = 64;
  double learning_rate = 0.2;
  double server_learning_rate = 1;
  double server_momentum = 0.8;  // 0: plain averaging (fedavg)
  std::uint64_t seed = 1;
  std::string codec = "int8";
  std::string down = "fp32";
  std::string mode = "rounds";
  std::string late = "residual";
  std::uint64_t slow_ms = 0;  // the last site takes about so long before it trains
  std::string model = "softmax";
  std::string json;
  std::string work_dir;
  bool keep = false;
  bool open = false;     // a console in the browser, and stay
  bool no_open = false;  // the same, its address printed instead
  bool kill = false;     // a second run, in which nodes are killed in the middle of rounds
  bool stays() const { return open || no_open; }
};

struct DemoOutcome {
  json::value last_round;  // with its evaluation
  std::uint64_t rounds_committed = 0;
  std::uint64_t contributions = 0;
  std::uint64_t late_updates = 0;
  std::uint64_t old_updates = 0;  // that entered a later round or window than the one they were made for
  double test_accuracy = 0;
  double test_loss = 0;
  double central_test_accuracy = 0;
  double central_test_loss = 0;
  double bytes_up = 0;  // by the sites, to their parents
  double bytes_up_fp32 = 0;
  double bytes_to_coordinator = 0;  // by its children
  double seconds = 0;
  std::string model_sha256;
  std::vector<std::string> site_model_sha256;
  std::vector<std::string> killed;  // with --kill: the nodes, in order
  std::string disturbed_sha256;     // and the last model of the run in which they were
};

json::object demo_json(const DemoOptions& options, const DemoOutcome& outcome);
// Whether the killed nodes left no trace in the model; true without --kill.
bool left_no_trace(const DemoOutcome& outcome);
std::string demo_summary(const DemoOptions& options, const DemoOutcome& outcome, const Terminal& terminal);
std::string demo_pointers(const DemoOptions& options, const WorkFolder& folder, const Terminal& terminal);

}  // namespace fluvial::cli
