#include "cli/supervisor.h"

#include <fmt/format.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

namespace fluvial::cli {
namespace {

constexpr std::size_t kReadyBytesMax = 64 << 10;
constexpr std::size_t kTailLines = 12;

double seconds_of(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
}

}  // namespace

Result<std::unique_ptr<Supervisor>> Supervisor::create(std::chrono::milliseconds grace) {
  std::unique_ptr<Supervisor> supervisor(new Supervisor(grace));
  FLUVIAL_TRY(supervisor->open());
  return supervisor;
}

Status Supervisor::open() {
  sigset_t mask;
  sigemptyset(&mask);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&mask, signal);
  pthread_sigmask(SIG_BLOCK, &mask, &old_mask_);
  signals_ = local::UniqueFd(::signalfd(-1, &mask, SFD_CLOEXEC | SFD_NONBLOCK));
  wake_ = local::UniqueFd(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!signals_.valid() || !wake_.valid()) {
    return Error{Code::kUnavailable, fmt::format("cannot watch for signals: {}", std::strerror(errno))};
  }
  watcher_ = std::thread([this] { watch(); });
  return {};
}

Supervisor::~Supervisor() {
  if (watcher_.joinable()) {
    stop();
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake();
    watcher_.join();
  }
  pthread_sigmask(SIG_SETMASK, &old_mask_, nullptr);
}

Result<ProcessId> Supervisor::spawn(ProcessSpec spec) {
  const std::lock_guard lock(mutex_);
  if (failure_) return *failure_;
  if (phase_ != Phase::kRunning) return Error{Code::kCancelled, "stopping"};
  FLUVIAL_ASSIGN(Child child, launch(spec));
  auto entry = std::make_unique<Entry>();
  entry->usage = {.name = spec.name, .role = spec.role};
  entry->spec = std::move(spec);
  entry->child = std::move(child);
  entries_.push_back(std::move(entry));
  wake();
  return entries_.size() - 1;
}

Result<std::string> Supervisor::wait_ready(ProcessId process, std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  const Entry& entry = *entries_.at(process);
  const bool in_time = changed_.wait_for(lock, limit, [&] { return entry.ready || entry.ended || failure_; });
  if (failure_) return *failure_;
  if (entry.ready) return entry.ready_text;
  if (!in_time) {
    return Error{Code::kDeadlineExceeded, fmt::format("{} was not ready within {} s; its log is {}", entry.spec.name,
                                                      limit.count() / 1000, entry.spec.log_path)};
  }
  return Error{Code::kInternal, fmt::format("{} {}", entry.spec.name, describe_end(entry.wait_status))};
}

Status Supervisor::wait_end(ProcessId process) {
  std::unique_lock lock(mutex_);
  const Entry& entry = *entries_.at(process);
  changed_.wait(lock, [&] { return entry.ended; });
  if (failure_) return *failure_;
  if (entry.wait_status == 0) return {};
  return Error{Code::kInternal, fmt::format("{} {}", entry.spec.name, describe_end(entry.wait_status))};
}

int Supervisor::signal_and_wait(ProcessId process, int signal) {
  std::unique_lock lock(mutex_);
  const Entry& entry = *entries_.at(process);
  FLUVIAL_CHECK(entry.spec.may_fail, "only a process that may fail is ended one by one");
  if (!entry.ended && signal != 0) ::kill(entry.child.pid, signal);
  changed_.wait(lock, [&] { return entry.ended; });
  return entry.wait_status;
}

void Supervisor::signal(ProcessId process, int signal) {
  const std::lock_guard lock(mutex_);
  const Entry& entry = *entries_.at(process);
  FLUVIAL_CHECK(entry.spec.may_fail, "only a process that may fail is disturbed");
  if (!entry.ended) ::kill(entry.child.pid, signal);
}

std::optional<int> Supervisor::end_of(ProcessId process) const {
  const std::lock_guard lock(mutex_);
  const Entry& entry = *entries_.at(process);
  return entry.ended ? std::optional(entry.wait_status) : std::nullopt;
}

pid_t Supervisor::pid_of(ProcessId process) const {
  const std::lock_guard lock(mutex_);
  return entries_.at(process)->child.pid;
}

Status Supervisor::run(ProcessSpec spec) {
  spec.may_end = true;
  FLUVIAL_ASSIGN(const ProcessId process, spawn(std::move(spec)));
  return wait_end(process);
}

std::optional<Error> Supervisor::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

Error Supervisor::explain(const Error& error) const {
  // A child's end reaches whoever talks to it a moment before it reaches the watcher.
  constexpr std::chrono::milliseconds kMoment{500};
  if (error.code != Code::kUnavailable) return failure().value_or(error);
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, kMoment, [this] { return failure_.has_value(); });
  return failure_.value_or(error);
}

void Supervisor::stop() {
  std::unique_lock lock(mutex_);
  begin_stop();
  wake();
  changed_.wait(lock, [this] { return all_ended(); });
}

std::vector<ProcessUsage> Supervisor::usage() const {
  const std::lock_guard lock(mutex_);
  std::vector<ProcessUsage> usages;
  for (const auto& entry : entries_) {
    if (entry->ended) usages.push_back(entry->usage);
  }
  return usages;
}

std::vector<pid_t> Supervisor::living() const {
  const std::lock_guard lock(mutex_);
  std::vector<pid_t> pids;
  for (const auto& entry : entries_) {
    if (!entry->ended) pids.push_back(entry->child.pid);
  }
  return pids;
}

std::vector<RunningProcess> Supervisor::running() const {
  const std::lock_guard lock(mutex_);
  std::vector<RunningProcess> processes;
  for (const auto& entry : entries_) {
    if (!entry->ended) processes.push_back({entry->child.pid, entry->spec.name, entry->spec.role});
  }
  return processes;
}

void Supervisor::watch() {
  std::unique_lock lock(mutex_);
  while (!(closing_ && all_ended())) {
    std::vector<pollfd> watched = {{wake_.get(), POLLIN, 0}, {signals_.get(), POLLIN, 0}};
    std::vector<Entry*> owners = {nullptr, nullptr};
    for (const auto& entry : entries_) {
      if (entry->child.ready.valid())
        watched.push_back({entry->child.ready.get(), POLLIN, 0}), owners.push_back(entry.get());
      if (!entry->ended) watched.push_back({entry->child.pidfd.get(), POLLIN, 0}), owners.push_back(entry.get());
    }
    const int timeout = poll_timeout_ms();
    lock.unlock();
    ::poll(watched.data(), watched.size(), timeout);
    lock.lock();
    std::uint64_t drained = 0;
    if (watched[0].revents != 0) (void)!::read(wake_.get(), &drained, sizeof drained);
    if (watched[1].revents != 0) on_signal();
    for (std::size_t i = 2; i < watched.size(); ++i) {
      if (watched[i].revents == 0) continue;
      if (watched[i].fd == owners[i]->child.ready.get()) {
        on_ready_bytes(*owners[i]);
      } else {
        on_end(*owners[i]);
      }
    }
    if (phase_ == Phase::kStopping && std::chrono::steady_clock::now() >= kill_at_) kill_all();
    changed_.notify_all();
  }
}

int Supervisor::poll_timeout_ms() const {
  if (phase_ != Phase::kStopping || all_ended()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(kill_at_ - std::chrono::steady_clock::now());
  return static_cast<int>(std::max<std::int64_t>(0, left.count()));
}

void Supervisor::on_signal() {
  signalfd_siginfo info{};
  while (::read(signals_.get(), &info, sizeof info) == sizeof info) {
    const bool again = phase_ == Phase::kStopping;
    fail({Code::kCancelled, info.ssi_signo == SIGINT ? "interrupted" : "told to stop"});
    if (again) kill_all();  // asked twice: at once
  }
}

void Supervisor::on_ready_bytes(Entry& entry) {
  std::array<char, 4096> bytes;
  const ssize_t count = ::read(entry.child.ready.get(), bytes.data(), bytes.size());
  if (count < 0 && errno == EINTR) return;
  if (count > 0) entry.ready_text.append(bytes.data(), static_cast<std::size_t>(count));
  const std::size_t line_end = entry.ready_text.find('\n');
  if (line_end != std::string::npos) {
    entry.ready_text.resize(line_end);
    entry.ready = true;
  }
  if (count <= 0 || entry.ready || entry.ready_text.size() > kReadyBytesMax) entry.child.ready.reset();
}

void Supervisor::on_end(Entry& entry) {
  if (entry.ended) return;
  ::kill(-entry.child.pid, SIGKILL);  // what it may have started itself; its own number is ours until it is reaped
  rusage usage{};
  if (::wait4(entry.child.pid, &entry.wait_status, WNOHANG, &usage) != entry.child.pid) return;
  entry.ended = true;
  entry.usage.cpu_seconds = seconds_of(usage.ru_utime) + seconds_of(usage.ru_stime);
  entry.usage.peak_rss_bytes = static_cast<std::uint64_t>(usage.ru_maxrss) * 1024;
  entry.child.pidfd.reset();
  if (phase_ != Phase::kRunning || entry.spec.may_fail || (entry.spec.may_end && entry.wait_status == 0)) return;
  const std::string tail = tail_of(entry.spec.log_path, kTailLines);
  fail({Code::kInternal, fmt::format("{} {}{}{}", entry.spec.name, describe_end(entry.wait_status),
                                     tail.empty() ? "" : "; the end of its log:\n", tail)});
}

void Supervisor::fail(Error error) {
  if (!failure_) failure_ = std::move(error);
  begin_stop();
}

void Supervisor::begin_stop() {
  if (phase_ != Phase::kRunning) return;
  phase_ = Phase::kStopping;
  kill_at_ = std::chrono::steady_clock::now() + grace_;
  for (const auto& entry : entries_) {
    if (!entry->ended) ::kill(-entry->child.pid, SIGTERM);
  }
}

void Supervisor::kill_all() {
  phase_ = Phase::kKilled;
  for (const auto& entry : entries_) {
    if (!entry->ended) ::kill(-entry->child.pid, SIGKILL);
  }
}

bool Supervisor::all_ended() const {
  return std::all_of(entries_.begin(), entries_.end(), [](const auto& entry) { return entry->ended; });
}

void Supervisor::wake() {
  const std::uint64_t one = 1;
  (void)!::write(wake_.get(), &one, sizeof one);  // a counter that is full wakes as well
}

}  // namespace fluvial::cli
