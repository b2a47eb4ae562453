// What lasts for years stays bounded: prunes the journal's old rounds and ended tokens, and entries of the audit log
// where the settings want that. On the node's strand; at the start, after every 64 commits, and every hour. A commit
// waits for one batch at most.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <string_view>

#include "core/config/settings.h"
#include "core/store/journal.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator {

class Retention {
 public:
  Retention(tree::Runtime& runtime, store::CoordinatorJournal& journal, const config::CoordinatorSettings& settings);

  net::Awaitable<void> run();
  void committed();  // a round
  void stop();

 private:
  net::Awaitable<void> sweep();
  net::Awaitable<Result<std::uint64_t>> prune_rounds(WallTime now);
  net::Awaitable<Result<std::uint64_t>> prune_audit_log(WallTime now);
  net::Awaitable<void> measure();
  void note(std::string_view done, std::string_view what, const Result<std::uint64_t>& pruned);

  tree::Runtime& runtime_;
  store::CoordinatorJournal& journal_;
  std::uint64_t keep_rounds_;
  std::chrono::days keep_rounds_days_;
  std::chrono::days keep_tokens_days_;  // 0: for ever
  std::chrono::days keep_audit_days_;   // likewise
  telemetry::Gauge bytes_;
  telemetry::Gauge free_bytes_;
  telemetry::Gauge rounds_;
  boost::asio::steady_timer timer_;
  std::uint64_t commits_ = 0;  // since the last sweep
  bool stopping_ = false;
};

}  // namespace fluvial::coordinator
