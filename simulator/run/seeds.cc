#include "simulator/run/seeds.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "core/digest/sha256.h"

namespace fluvial::simulator {
namespace {

class Seeds {
 public:
  Seeds(const ScenarioFile& file, const Settle& settle, const SeedsOptions& options, const SeedsProgress& progress)
      : file_(file), settle_(settle), options_(options), progress_(progress) {}

  Result<SeedsResult> run() {
    std::vector<std::thread> threads;
    for (unsigned i = 1; i < options_.threads; ++i) threads.emplace_back([this] { work(); });
    work();
    for (std::thread& thread : threads) thread.join();
    if (error_) return *error_;
    return collect();
  }

 private:
  void work() {
    while (!stop_) {
      const std::uint64_t index = next_.fetch_add(1);
      if (index >= options_.seeds) return;
      finish(one(options_.first_seed + index, index < options_.twice));
    }
  }

  Result<SeedResult> one(std::uint64_t seed, bool twice) {
    FLUVIAL_ASSIGN(SeedResult result, run_seed(file_, seed, settle_, 0));
    if (twice && result.violations.empty()) {
      FLUVIAL_ASSIGN(const SeedResult again, run_seed(file_, seed, settle_, 0));
      ++again_;
      if (again.trace_hash != result.trace_hash) {
        result.violations.push_back(
            {seed, "determinism",
             "the second run's trace hash is " + again.trace_hash + ", the first one's " + result.trace_hash});
      }
    }
    if (!result.violations.empty() && options_.lines_max > 0) {
      // Log lines cost time and are made only now: the same seed fails again in the same way.
      FLUVIAL_ASSIGN(SeedResult told, run_seed(file_, seed, settle_, options_.lines_max));
      result.log = std::move(told.log);
    }
    return result;
  }

  void finish(Result<SeedResult> result) {
    const std::lock_guard lock(mutex_);
    if (!result.ok()) {
      if (!error_) error_ = result.error();
      stop_ = true;
      return;
    }
    if (!result->violations.empty() && ++failed_ >= options_.failures_max) stop_ = true;
    const std::uint64_t seed = result->seed;
    results_.emplace(seed, std::move(*result));
    if (progress_) progress_(results_.size(), failed_);
  }

  SeedsResult collect() {
    SeedsResult all;
    all.again = again_;
    Sha256 hash;
    for (auto& [seed, result] : results_) {
      ++all.seeds;
      all.events += result.events;
      all.rounds_committed += result.rounds_committed;
      hash.update(as_byte_span(result.trace_hash));
      if (!result.violations.empty()) all.failures.push_back(std::move(result));
    }
    // The hash of a single seed is its own, to compare it with the same seed among others.
    all.trace_hash = results_.size() == 1 ? results_.begin()->second.trace_hash : to_hex(hash.finish());
    return all;
  }

  const ScenarioFile& file_;
  const Settle& settle_;
  const SeedsOptions& options_;
  const SeedsProgress& progress_;
  std::atomic<std::uint64_t> next_{0};
  std::atomic<std::uint64_t> again_{0};
  std::atomic<bool> stop_{false};
  std::mutex mutex_;
  std::uint64_t failed_ = 0;
  std::optional<Error> error_;
  std::map<std::uint64_t, SeedResult> results_;
};

}  // namespace

Result<SeedsResult> run_seeds(const ScenarioFile& file, const Settle& settle, const SeedsOptions& options,
                              const SeedsProgress& progress) {
  return Seeds(file, settle, options, progress).run();
}

}  // namespace fluvial::simulator
