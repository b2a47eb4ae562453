// A federation of real processes for a test, with workers that live in the test itself, so that it decides what each
// of them does and when.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "cli/local_federation.h"
#include "cli/local_run.h"
#include "cli/work_folder.h"
#include "core/local/worker_client.h"
#include "core/round/plan.h"

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

class FederationTest : public ::testing::Test {
 protected:
  FederationTest();
  ~FederationTest() override;

  // A federation whose nodes may be killed.
  void start(std::uint64_t sites, std::uint64_t aggregators);
  // The synthetic worker of `fluvial bench`, wrapped by `train` where a test wants something else.
  void add_worker(std::size_t site_index, Train train = {});
  void add_workers();  // for every site
  static Train bench_train(std::uint64_t site_index);

  round::Plan plan(std::uint64_t rounds) const;
  std::uint64_t start_run(const round::Plan& plan, std::uint64_t params);
  // Events until `wanted` is satisfied; the event. A failure of the test when the stream ends before.
  cli::json::value wait_event(std::uint64_t run, const std::function<bool(const cli::json::value&)>& wanted);
  cli::json::value wait_committed(std::uint64_t run, std::uint64_t round);
  cli::json::value wait_state(std::uint64_t run, const std::string& status);
  std::string log_of(const std::string& name) const;

  cli::WorkFolder folder_;
  std::unique_ptr<cli::Supervisor> supervisor_;
  std::unique_ptr<cli::LocalFederation> federation_;
  std::vector<std::unique_ptr<ThreadWorker>> workers_;
};

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

}  // namespace fluvial::integration
