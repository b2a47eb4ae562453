// The sites' workers, on threads of ours, so that it is known which updates were made at all: the audit need not guess.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cli/bench_audit.h"
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
  // The site's process has ended, and its next one is not started yet. Any thread, like the next.
  void died(const std::string& site);
  cli::Audit::Made made(std::uint64_t site_index, std::uint64_t round, std::uint64_t next) const;
  std::uint64_t walked_out() const { return walked_out_; }

 private:
  void run(std::string socket, std::uint64_t site_index);
  void serve(local::WorkerClient client, std::uint64_t site_index, std::uint64_t life, Rng& rng);
  std::uint64_t life_of(std::uint64_t site_index) const;

  const std::uint64_t seed_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> walked_out_{0};
  std::map<std::string, std::uint64_t> indices_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, std::uint64_t> lives_;  // by site: how often it has died
  // By site and round: in which of its lives the site was handed an update last. An update is made (encoded or folded)
  // before the site trains for another round, unless it dies.
  std::map<std::pair<std::uint64_t, std::uint64_t>, std::uint64_t> trained_;
  std::vector<std::thread> threads_;
};

}  // namespace fluvial::chaos
