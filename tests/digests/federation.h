// A federation of real processes that takes one entry of a table after the other.
#pragma once

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "cli/local_federation.h"
#include "cli/work_folder.h"
#include "core/round/plan.h"
#include "tests/digests/table.h"

namespace fluvial::digests {

inline constexpr std::uint64_t kSites = 5;

struct Tree {
  std::string executable;
  std::uint64_t aggregators = 0;
  std::uint64_t tiers = 1;
};

class DigestFederation {
 public:
  static Result<std::unique_ptr<DigestFederation>> start(const Tree& tree);
  ~DigestFederation();

  // One run, from its start to its end. kFailedPrecondition when a round did without a site.
  Result<Digests> run(const Entry& entry);

 private:
  DigestFederation(cli::WorkFolder folder, std::unique_ptr<cli::Supervisor> supervisor, const Tree& tree);
  Status start_workers();
  Result<round::Plan> plan_of(const Entry& entry) const;
  Status write_initial_model() const;
  Result<Digests> digests_of(std::uint64_t run, const round::Plan& plan) const;

  cli::WorkFolder folder_;
  std::unique_ptr<cli::Supervisor> supervisor_;
  cli::LocalFederation federation_;
  std::atomic<std::uint64_t> seed_{1};  // of the run in progress
  std::vector<std::jthread> workers_;
};

}  // namespace fluvial::digests
