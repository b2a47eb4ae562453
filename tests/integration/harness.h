// A federation of real processes for a test, with workers that live in the test itself, so that it decides what each
// of them does and when.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/local_federation.h"
#include "cli/local_run.h"
#include "cli/work_folder.h"
#include "core/local/worker_client.h"
#include "core/round/plan.h"
#include "core/store/safetensors.h"
#include "tests/integration/gate.h"

namespace fluvial::cli {
class Audit;
}

namespace fluvial::integration {

// What a worker makes of a task: fills `local` from `base`; false: it reports that it could not.
using Train = std::function<bool(const local::Task& task, std::span<const float> base, std::span<float> local)>;

// A worker on a thread. When its agent goes away it attaches anew, until it is destroyed.
class ThreadWorker {
 public:
  ThreadWorker(std::string socket, std::uint64_t weight, Train train);
  ~ThreadWorker();  // returns once its agent has gone or detached it
  ThreadWorker(const ThreadWorker&) = delete;
  ThreadWorker& operator=(const ThreadWorker&) = delete;

 private:
  void run();
  void serve(local::WorkerClient client);
  std::string socket_;
  std::uint64_t weight_;
  Train train_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

// Holds workers back in rounds from `from` on, until it is opened.
class RoundGate {
 public:
  explicit RoundGate(std::uint64_t from) : from_(from) {}
  void wait_at(std::uint64_t round);
  void wait_arrival(std::uint64_t round, std::size_t workers = 1);  // in that round or a later one
  void open();

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t from_;
  std::map<std::uint64_t, std::size_t> arrived_;
  bool open_ = false;
};

class FederationTest : public ::testing::Test {
 protected:
  FederationTest();
  ~FederationTest() override;

  // A federation whose nodes may be killed.
  void start(std::uint64_t sites, std::uint64_t aggregators);
  void start(cli::FederationShape shape);
  // What is started later finds `parent` behind the gate: the children of an aggregator, or one child of the
  // coordinator (with its lease requests).
  void put_before_aggregator(TcpGate& gate, cli::FederationShape& shape, const std::string& aggregator);
  void put_before_coordinator(TcpGate& gate, cli::FederationShape& shape, const std::string& child);
  // The synthetic worker of `fluvial bench`, wrapped by `train` where a test wants something else.
  void add_worker(std::size_t site_index, Train train = {});
  void add_workers();  // for every site
  static Train bench_train(std::uint64_t site_index);
  static Train gated(RoundGate& gate, std::uint64_t site_index);  // likewise, once the gate lets it
  RoundGate& hold_from(std::uint64_t round);                      // opened at the end of the test at the latest

  round::Plan plan(std::uint64_t rounds) const;
  std::uint64_t start_run(const round::Plan& plan, std::uint64_t params);
  // Another run that goes on from this one's last model, with the server optimizer's state.
  std::uint64_t continue_run(std::uint64_t run, const round::Plan& plan);
  // A run that is in the folders that the federation was started with.
  void adopt_run(std::uint64_t run, const round::Plan& plan) { plans_[run] = plan; }
  // Events until `wanted` is satisfied; the event. A failure of the test when the stream ends before.
  cli::json::value wait_event(std::uint64_t run, const std::function<bool(const cli::json::value&)>& wanted);
  cli::json::value wait_committed(std::uint64_t run, std::uint64_t round);
  cli::json::value wait_state(std::uint64_t run, const std::string& status);
  std::string log_of(const std::string& name) const;
  void wait_log(const std::string& name, const std::string& text);
  // A site's /status, once `wanted` is satisfied.
  cli::json::value wait_status(std::size_t site_index, const std::function<bool(const cli::json::value&)>& wanted);
  // Until the node says that `sites` sites of the open round are in its sum, or above it.
  void wait_in(const std::string& node, std::uint64_t round, std::uint64_t sites);
  // Of a federation of two sites and one aggregator, and a plan that waits for both: the node is killed while site-2
  // trains for that round, and started again. The run ends, and is exact.
  void survives_in_round(const round::Plan& plan, std::uint64_t round, const std::string& node);
  // Likewise, and a plan that does not wait: site-2 is killed once its update of that round is late.
  void survives_late_in(const round::Plan& plan, std::uint64_t round);
  // A site's worker waits at `hold` in that round of run 1, and the site's uploads pass `gate`: it sends its update, is
  // killed when so many bytes are through and the update is durable, and starts again over a line that is free.
  void kill_in_upload(TcpGate& gate, RoundGate& hold, const std::string& site, std::uint64_t round,
                      std::uint64_t bytes);
  // A gauge of a node, by its name without the role's prefix, and without labels.
  double gauge_of(const std::string& node, const std::string& name);
  // "coordinator" or an aggregator: whose lease the node has.
  std::string parent_of(const std::string& node);
  std::size_t sites_at(const std::string& parent);
  // The rounds committed so far, oldest first.
  cli::json::array committed(std::uint64_t run);
  // Each committed model is its base and the mean of the contributors that the journal names, bit for bit, by an
  // independent loop. Of runs whose workers do what bench_train() does, whenever. With those that it continues.
  void expect_exact(std::uint64_t run);
  void expect_exact(std::uint64_t run, std::size_t rounds);  // and there are exactly `rounds` of them
  // A round that a restored backup has undone, while its base is still there: from the round after `fork` on, the
  // sites' updates of it may be in their residuals.
  void note_undone(std::uint64_t run, std::uint64_t round, std::uint64_t fork);

  cli::WorkFolder folder_;
  std::unique_ptr<cli::Supervisor> supervisor_;
  std::unique_ptr<cli::LocalFederation> federation_;
  std::vector<std::unique_ptr<RoundGate>> holds_;
  std::vector<std::unique_ptr<ThreadWorker>> workers_;

 private:
  Status check_exact(std::uint64_t run);
  Status check_rounds(cli::Audit& audit, std::uint64_t run);
  std::map<std::string, std::vector<TcpGate*>> gates_;  // by whom they stand before
  std::map<std::uint64_t, round::Plan> plans_;          // by run
  std::map<std::uint64_t, std::uint64_t> continues_;    // what a run continues
  struct Undone {
    std::uint64_t round;
    std::uint64_t fork;
    std::vector<float> base;
  };
  std::vector<Undone> undone_;
  Result<store::Model> model_of(std::uint64_t run, std::uint64_t version);
  Result<std::vector<float>> model_values(std::uint64_t run, std::uint64_t version);
};

// Of an event: a round after that one was committed.
bool is_committed(const cli::json::value& event, std::uint64_t after);
// How many of a site's updates ended so, by its /status: "counted", "late", "refused".
std::uint64_t outcomes(const cli::json::value& status, const char* outcome);
// Whether `list` ("contributors", "refused") of a committed round names the site.
bool names(const cli::json::value& round, const char* list, const std::string& site);

// Starts FLUVIAL_EXECUTABLE and waits: its wait status and what it printed (both streams).
struct CommandRun {
  int exit_status = -1;
  std::string output;
};
CommandRun run_fluvial(cli::Supervisor& supervisor, const cli::WorkFolder& folder, std::vector<std::string> arguments);
cli::ProcessSpec fluvial_spec(const cli::WorkFolder& folder, const std::string& name,
                              std::vector<std::string> arguments);
// The ids of processes whose command line mentions `text`.
std::vector<int> processes_that_mention(const std::string& text);
// Files and folders; sockets are those of processes.
void copy_folder(const std::string& from, const std::string& to);

}  // namespace fluvial::integration
