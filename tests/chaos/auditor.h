// Follows a run from outside while it goes on: hears of each commit, reads the model files from the coordinator's
// folder, and makes every sum again. On a thread of its own, since a coordinator that is stopped answers late.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/admin_client.h"
#include "cli/bench_audit.h"
#include "core/store/model_store.h"
#include "tests/chaos/commit_log.h"

namespace fluvial::chaos {

struct Audited {
  std::uint64_t run = 0;
  round::Plan plan;
  std::uint64_t seed = 0;
  std::vector<cli::AuditSite> sites;
  std::string models_folder;
  round::Schema schema;
  cli::Audit::Known known;
};

struct Gap {  // without a commit
  std::chrono::steady_clock::time_point from;
  std::chrono::steady_clock::time_point until;
  std::uint64_t round = 0;  // that ended it
  std::uint64_t attempt = 0;
};

struct Progress {
  std::uint64_t committed = 0;
  std::string model_sha256;                           // of that round
  std::chrono::steady_clock::time_point last_commit;  // or the beginning
  std::chrono::steady_clock::duration longest_gap{};
  std::size_t contributors = 0;  // of the last one
  std::uint64_t attempt = 0;
  std::vector<std::uint64_t> complete;  // rounds with every site
  std::string status;                   // of the run, when it is not running
  std::string reason;
  std::optional<Error> violation;
};

class Auditor {
 public:
  // `audit`: of a run before, at rest, that this one continues; none: this is a new one.
  Auditor(cli::AdminClient admin, Audited what, std::optional<cli::Audit> audit);
  ~Auditor();  // returns once the coordinator has gone
  Auditor(const Auditor&) = delete;
  Auditor& operator=(const Auditor&) = delete;

  void stop() { stopping_ = true; }
  void finish();  // once the run is over: returns when nothing more is heard of it
  // Waits for something new, no longer than the limit.
  Progress wait(std::chrono::milliseconds limit);
  Progress progress() const;

  // When the run is at rest and this has ended: the whole journal again, as it is now.
  Status check_journal(const cli::AdminClient& admin);
  // What a site holds at the end.
  Status check_residual(std::uint64_t site_index, std::span<const float> held);
  // After finish(): for a run that continues this one. Nothing is checked here any more.
  cli::Audit take_audit() { return std::move(audit_); }
  const CommitLog& log() const { return log_; }           // this and the gaps: once stopped, or at rest
  const std::vector<Gap>& gaps() const { return gaps_; }  // between every two commits

 private:
  void follow();
  Status on_event(const cli::json::value& event);
  Status on_commit(const cli::json::value& round);
  struct ModelValues {
    std::vector<float> values;
    std::vector<std::int64_t> integers;
  };
  Result<ModelValues> read_model(std::uint64_t version, const std::string& sha256) const;
  Status check_integers(const cli::json::value& round, const ModelValues& committed) const;

  cli::AdminClient admin_;
  Audited what_;
  store::PosixFileSystem files_;
  store::ModelStore models_;
  cli::Audit audit_;
  CommitLog log_;
  std::vector<Gap> gaps_;
  ModelValues base_;
  std::atomic<bool> stopping_{false};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Progress progress_;
  std::uint64_t changes_ = 0;
  std::uint64_t seen_ = 0;
  std::thread thread_;
};

}  // namespace fluvial::chaos
