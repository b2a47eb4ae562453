#include "cli/process.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <deque>
#include <fstream>
#include <string_view>

#include "core/config/reader.h"

namespace fluvial::cli {
namespace {

using local::UniqueFd;

constexpr int kReadyDescriptor = 3;  // in the child

Error system_error(const std::string& what) {
  return {Code::kUnavailable, fmt::format("{}: {}", what, ::strerror(errno))};  // NOLINT(concurrency-mt-unsafe)
}

// By its number: the declaration in glibc 2.36 lacks extern "C".
int open_pidfd(pid_t pid) { return static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)); }

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) return system_error("pipe");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

// What the child needs, made before fork(): after it only async-signal-safe calls are allowed.
struct Launch {
  std::vector<char*> argv;
  std::vector<char*> environment;
  pid_t parent;
  int null_input;
  int log;
  int ready;   // -1: none
  int failed;  // takes errno when the child cannot be started
};

[[noreturn]] void become(const Launch& launch) {
  const auto give_up = [&launch] {
    const int error = errno;
    (void)!::write(launch.failed, &error, sizeof error);  // else the parent reads an end, and says so
    ::_exit(127);
  };
  sigset_t none;
  ::sigemptyset(&none);
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::getppid() != launch.parent) give_up();
  ::setpgid(0, 0);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) ::signal(signal, SIG_DFL);
  if (::dup2(launch.null_input, 0) < 0 || ::dup2(launch.log, 1) < 0 || ::dup2(launch.log, 2) < 0) give_up();
  if (launch.ready == kReadyDescriptor) {
    ::fcntl(kReadyDescriptor, F_SETFD, 0);
  } else if (launch.ready >= 0 && ::dup2(launch.ready, kReadyDescriptor) < 0) {
    give_up();
  }
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  ::execve(launch.argv[0], launch.argv.data(), launch.environment.data());
  give_up();
  ::_exit(127);
}

// A setting that is exported here is of a service of this machine: a child would take its folder and its sockets.
std::vector<char*> environment_without_settings() {
  static const std::vector<std::string> settings = config::setting_variables();
  std::vector<char*> kept;
  for (char** entry = ::environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    if (std::ranges::find(settings, text.substr(0, text.find('='))) == settings.end()) kept.push_back(*entry);
  }
  kept.push_back(nullptr);
  return kept;
}

// Above the numbers the child uses itself, so that no dup2() there closes it.
Result<UniqueFd> move_up(UniqueFd fd) {
  UniqueFd higher(::fcntl(fd.get(), F_DUPFD_CLOEXEC, kReadyDescriptor + 1));
  if (!higher.valid()) return system_error("fcntl");
  return higher;
}

}  // namespace

Result<Child> launch(const ProcessSpec& spec) {
  FLUVIAL_CHECK(!spec.argv.empty(), "a process needs an executable");
  UniqueFd null_input(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  UniqueFd log(::open(spec.log_path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  if (!null_input.valid() || !log.valid()) return system_error(fmt::format("cannot open {}", spec.log_path));
  FLUVIAL_ASSIGN(Pipe failed, make_pipe());
  FLUVIAL_ASSIGN(failed.write, move_up(std::move(failed.write)));
  Pipe ready;
  std::vector<std::string> arguments = spec.argv;
  if (spec.announces) {
    FLUVIAL_ASSIGN(ready, make_pipe());
    FLUVIAL_ASSIGN(ready.write, move_up(std::move(ready.write)));
    arguments.insert(arguments.end(), {"--ready-fd", std::to_string(kReadyDescriptor)});
  }
  Launch plan{.argv = {},
              .environment = environment_without_settings(),
              .parent = ::getpid(),
              .null_input = null_input.get(),
              .log = log.get(),
              .ready = ready.write.get(),
              .failed = failed.write.get()};
  for (std::string& argument : arguments) plan.argv.push_back(argument.data());
  plan.argv.push_back(nullptr);

  Child child;
  child.pid = ::fork();
  if (child.pid < 0) return system_error("fork");
  if (child.pid == 0) become(plan);
  ::setpgid(child.pid, child.pid);  // here too: whoever is first
  failed.write.reset();
  int error = 0;
  if (::read(failed.read.get(), &error, sizeof error) == sizeof error) {
    ::waitpid(child.pid, nullptr, 0);
    errno = error;
    return system_error(fmt::format("cannot start {}", spec.argv[0]));
  }
  child.pidfd = UniqueFd(open_pidfd(child.pid));
  if (!child.pidfd.valid()) {
    const Error cause = system_error("pidfd_open");
    ::kill(child.pid, SIGKILL);
    ::waitpid(child.pid, nullptr, 0);
    return cause;
  }
  child.ready = std::move(ready.read);
  return child;
}

std::string describe_end(int wait_status) {
  if (WIFSIGNALED(wait_status)) {
    const int signal = WTERMSIG(wait_status);
    return fmt::format("was killed by signal {} ({})", signal, ::strsignal(signal));  // NOLINT(concurrency-mt-unsafe)
  }
  return fmt::format("ended with status {}", WEXITSTATUS(wait_status));
}

std::string tail_of(const std::string& path, std::size_t lines_max) {
  constexpr std::streamoff kTailBytes = 16 << 10;
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  file.seekg(std::max<std::streamoff>(0, static_cast<std::streamoff>(file.tellg()) - kTailBytes));
  std::deque<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    lines.push_back(std::move(line));
    if (lines.size() > lines_max) lines.pop_front();
  }
  return fmt::format("{}", fmt::join(lines, "\n"));
}

Result<std::string> own_executable() {
  std::array<char, PATH_MAX> path{};
  const ssize_t size = ::readlink("/proc/self/exe", path.data(), path.size());
  if (size <= 0) return system_error("cannot read /proc/self/exe");
  return std::string(path.data(), static_cast<std::size_t>(size));
}

std::string companion_executable(const std::string& own, const std::string& name) {
  return own.substr(0, own.rfind('/') + 1) + name;
}

}  // namespace fluvial::cli
