// A handful of child processes that live and die together. A thread of its own waits (without polling) for ends, ready
// lines and signals: when a child ends that should not, or Ctrl-C or SIGTERM arrives, all others are told to stop, get
// a bounded grace and are then killed. Whoever waits here, or for an answer from one of the children, then fails, and
// failure() says why. If we are killed ourselves, the kernel kills the children (process.h).
#pragma once

#include <signal.h>

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cli/process.h"

namespace fluvial::cli {

using ProcessId = std::size_t;

struct ProcessUsage {
  std::string name;
  std::string role;
  double cpu_seconds = 0;  // user and system
  std::uint64_t peak_rss_bytes = 0;
};

struct RunningProcess {
  pid_t pid = -1;
  std::string name;
  std::string role;
};

// All functions are called from one thread, the one that made it; at most one Supervisor exists at a time, since it
// takes over SIGINT, SIGTERM and SIGHUP until it is destroyed.
class Supervisor {
 public:
  static Result<std::unique_ptr<Supervisor>> create(std::chrono::milliseconds grace);
  ~Supervisor();  // stop()
  Supervisor(const Supervisor&) = delete;
  Supervisor& operator=(const Supervisor&) = delete;

  Result<ProcessId> spawn(ProcessSpec spec);
  // The line it announced. kDeadlineExceeded; or failure().
  Result<std::string> wait_ready(ProcessId process, std::chrono::milliseconds limit);
  // Until a process that may end has ended. An end with another status than 0 is an error (and failure()).
  Status wait_end(ProcessId process);
  // Of a process that may fail: sends the signal (0: none), waits for its end, returns what waitpid() does.
  int signal_and_wait(ProcessId process, int signal);
  // Of a process that may fail: sends a signal that does not end it (SIGSTOP, SIGCONT). Nothing when it has ended.
  void signal(ProcessId process, int signal);
  // How it ended, as waitpid() says; none while it runs.
  std::optional<int> end_of(ProcessId process) const;
  pid_t pid_of(ProcessId process) const;  // meaningful while it runs
  // spawn() and wait_end() for a short one.
  Status run(ProcessSpec spec);

  // Why everything was stopped: kCancelled after a signal, kInternal after a child's end. Any thread.
  std::optional<Error> failure() const;
  // failure() where there is one, else `error`: for errors that are its consequence.
  Error explain(const Error& error) const;

  // SIGTERM to all, SIGKILL after the grace; returns when all have ended. What happens to the children from here on is
  // no failure.
  void stop();
  std::vector<ProcessUsage> usage() const;  // of those that have ended, in the order they were started
  std::vector<pid_t> living() const;
  std::vector<RunningProcess> running() const;  // the same, with what they are

 private:
  struct Entry {
    ProcessSpec spec;
    Child child;
    std::string ready_text;
    bool ready = false;
    bool ended = false;
    int wait_status = 0;
    ProcessUsage usage;
  };
  enum class Phase { kRunning, kStopping, kKilled };

  explicit Supervisor(std::chrono::milliseconds grace) : grace_(grace) {}
  Status open();
  void watch();
  int poll_timeout_ms() const;
  void on_signal();
  void on_ready_bytes(Entry& entry);
  void on_end(Entry& entry);
  void fail(Error error);
  void begin_stop();
  void kill_all();
  bool all_ended() const;
  void wake();

  const std::chrono::milliseconds grace_;
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  std::vector<std::unique_ptr<Entry>> entries_;
  std::optional<Error> failure_;
  Phase phase_ = Phase::kRunning;
  std::chrono::steady_clock::time_point kill_at_;
  bool closing_ = false;

  sigset_t old_mask_{};
  local::UniqueFd signals_;
  local::UniqueFd wake_;
  std::thread watcher_;
};

}  // namespace fluvial::cli
