// A federation of real processes on loopback that trains without end, for benchmarks of what disturbs it.
#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "cli/local_federation.h"
#include "cli/work_folder.h"
#include "tests/integration/harness.h"

namespace fluvial::attack {

class BenchFederation {
 public:
  explicit BenchFederation(cli::FederationShape shape);
  ~BenchFederation();
  BenchFederation(const BenchFederation&) = delete;
  BenchFederation& operator=(const BenchFederation&) = delete;

  // The processes, a worker a site that leaves the processor to others, and a run of them all. No round waits longer
  // than `soft_deadline` for whom the quorum does not need.
  Status start(std::chrono::milliseconds soft_deadline);
  Result<std::uint64_t> committed() const;  // rounds of the run
  std::uint64_t run() const { return run_; }
  const cli::AdminClient& admin() const { return federation_.admin(); }
  cli::LocalFederation& processes() { return federation_; }
  cli::Supervisor& supervisor() { return *supervisor_; }

 private:
  cli::WorkFolder folder_;
  std::unique_ptr<cli::Supervisor> supervisor_;
  cli::LocalFederation federation_;
  std::vector<std::unique_ptr<integration::ThreadWorker>> workers_;
  std::uint64_t run_ = 0;
};

}  // namespace fluvial::attack
