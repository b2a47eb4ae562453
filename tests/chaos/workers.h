// The sites' workers, on threads of ours, so that it is known which updates were made at all: the audit need not guess.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "cli/local_federation.h"
#include "core/base/rng.h"
#include "core/local/worker_client.h"

namespace fluvial::chaos {

class Workers {
 public:
  Workers(const std::vector<cli::LocalSite>& sites, std::uint64_t seed);
  ~Workers();  // returns once the agents have gone
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  void stop() { stopping_ = true; }  // they leave when their agents go
  // Whether the site's worker ever handed over a model of that round. Any thread.
  bool has_trained(std::uint64_t site_index, std::uint64_t round) const;
  std::uint64_t walked_out() const { return walked_out_; }

 private:
  void run(std::string socket, std::uint64_t site_index);
  void serve(local::WorkerClient client, std::uint64_t site_index, Rng& rng);

  const std::uint64_t seed_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> walked_out_{0};
  mutable std::mutex mutex_;
  std::set<std::pair<std::uint64_t, std::uint64_t>> trained_;
  std::vector<std::thread> threads_;
};

}  // namespace fluvial::chaos
