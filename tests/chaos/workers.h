// The sites' workers, on threads of ours, so that it is known which updates were made at all: the audit need not guess.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <set>
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
  // While the site's disk fails it may lose an update that it was handed, and live on.
  void disk_fails(const std::string& site, bool fails);
  cli::Audit::Made made(std::uint64_t run, std::uint64_t site_index, std::uint64_t round, std::uint64_t next) const;
  std::uint64_t walked_out() const { return walked_out_; }

 private:
  struct Life {
    std::uint64_t deaths = 0;    // of the site so far
    std::uint64_t troubles = 0;  // of its disk, and in trouble one an update: none of them is taken for certain
    bool operator==(const Life&) const = default;
  };
  void run(std::string socket, std::uint64_t site_index);
  void serve(local::WorkerClient client, std::uint64_t site_index, std::uint64_t deaths, Rng& rng);
  Life life_of(std::uint64_t site_index) const;
  bool is_in_trouble(std::uint64_t site_index) const;

  const std::uint64_t seed_;
  std::atomic<bool> stopping_{false};
  std::atomic<std::uint64_t> walked_out_{0};
  std::map<std::string, std::uint64_t> indices_;
  mutable std::mutex mutex_;
  std::map<std::uint64_t, Life> lives_;  // by site
  std::set<std::uint64_t> in_trouble_;   // sites whose disk fails
  // By run, site and round: in which of its lives the site was handed an update last. An update is made (encoded or
  // folded) before the site trains for another round, unless it dies.
  std::map<std::array<std::uint64_t, 3>, Life> trained_;
  std::vector<std::thread> threads_;
};

}  // namespace fluvial::chaos
