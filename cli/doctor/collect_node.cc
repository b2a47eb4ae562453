#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <pwd.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cli/admin_client.h"
#include "cli/doctor/collect.h"
#include "core/config/toml_file.h"
#include "core/identity/authority.h"
#include "core/identity/credentials.h"
#include "core/identity/verify.h"
#include "core/net/http.h"
#include "core/tree/process.h"
#include "core/tree/version.h"

extern char** environ;

namespace fluvial::cli::doctor {
namespace {

constexpr Duration kAskedFor = std::chrono::seconds(3);
constexpr std::chrono::milliseconds kPythonMax{5'000};
constexpr std::size_t kAnswerBytesMax = 4096;

std::optional<unsigned> mode_of(const std::string& path) {
  struct stat about{};
  if (::stat(path.c_str(), &about) != 0) return std::nullopt;
  return about.st_mode & 07777;
}

Result<json::value> ask(const net::HttpAddress& address, const std::string& target) {
  const auto reply = net::http_request(address, "GET", target, "", kAskedFor);
  if (!reply.ok()) return reply.error();
  if (reply->status != 200) return Error{Code::kUnavailable, fmt::format("HTTP status {}", reply->status)};
  return parse_json(reply->body, "the process's answer");
}

std::optional<tree::Limits> limits_of(const json::value& status) {
  const json::value* const said = status.is_object() ? status.as_object().if_contains("limits") : nullptr;
  if (said == nullptr || !said->is_object()) return std::nullopt;
  const auto number = [said](const char* name) {
    const json::value* const limit = said->as_object().if_contains(name);
    return limit == nullptr || limit->is_null() ? tree::kUnlimited : count_member(*said, name);
  };
  return tree::Limits{number("open_files"), number("open_files_hard"), number("locked_bytes")};
}

void ask_coordinator(const config::CoordinatorSettings& settings, ProcessFacts& facts) {
  facts.asked = settings.admin_socket;
  const auto status = ask(net::UnixAddress{settings.admin_socket}, "/v1/status");
  if (!status.ok()) {
    facts.why = status.error().message;
    return;
  }
  facts.answers = facts.connected = true;
  facts.name = "coordinator";
  facts.fault = text_member(*status, "fault");
  facts.member_port = static_cast<std::uint16_t>(count_member(*status, "member_port"));
  facts.enrol_port = static_cast<std::uint16_t>(count_member(*status, "enrol_port"));
  facts.metrics_port = static_cast<std::uint16_t>(count_member(*status, "metrics_port"));
  facts.limits = limits_of(*status);
}

// By what the process left in its folder. Whoever answers there now may be another: its name tells.
void ask_member(const Subject& subject, const std::string& name, ProcessFacts& facts) {
  const auto noted = config::read_text_file(subject.data_dir + "/" + tree::kMetricsAddressFile);
  if (!noted.ok()) {
    facts.why = "it was not started with this folder, or metrics_listen is off";
    return;
  }
  const auto at = config::parse_host_port(noted->substr(0, noted->find('\n')));
  if (!at.ok()) {
    facts.why = at.error().message;
    return;
  }
  const std::string host = at->host == "0.0.0.0" ? "127.0.0.1" : at->host == "::" ? "::1" : at->host;
  facts.asked = config::format_host_port({host, at->port});
  const auto status = ask(net::TcpAddress{host, at->port}, "/status");
  if (!status.ok() || text_member(*status, "name") != name) {
    facts.why = status.ok() ? facts.asked + " is another node's" : status.error().message;
    return;
  }
  facts.answers = true;
  facts.name = name;
  facts.metrics_port = at->port;
  facts.connected = bool_member(*status, "connected");
  facts.parent = facts.connected ? text_member(*status, "parent") : "";
  facts.parent_address = facts.connected ? text_member(*status, "parent_address") : "";
  facts.workers = count_member(*status, "workers");
  facts.limits = limits_of(*status);
}

}  // namespace

std::string user_name(unsigned uid) {
  struct passwd entry{};
  struct passwd* found = nullptr;
  std::array<char, 4096> buffer{};
  if (::getpwuid_r(uid, &entry, buffer.data(), buffer.size(), &found) == 0 && found != nullptr) return entry.pw_name;
  return fmt::format("{}", uid);
}

ProcessFacts collect_process(const Subject& subject) {
  ProcessFacts facts;
  if (subject.coordinator) {
    ask_coordinator(*subject.coordinator, facts);
  } else {
    const auto chain = identity::Certificate::load_chain(subject.data_dir + "/identity/cert.pem");
    const auto member = chain.ok() ? identity::identity_of(chain->front()) : chain.error();
    if (member.ok()) {
      ask_member(subject, member->name, facts);
    } else {
      facts.why = "it is not enrolled";
    }
  }
  return facts;
}

CertificateFacts collect_certificates(const Subject& subject) {
  const bool is_root = subject.role == Role::kCoordinator;
  CertificateFacts facts{.folder = subject.data_dir + (is_root ? "/ca" : "/identity"), .now = SystemClock().wall_now()};
  facts.key_file = facts.folder + (is_root ? "/ca-key.pem" : "/key.pem");
  facts.key_mode = mode_of(facts.key_file);
  facts.folder_mode = mode_of(facts.folder);
  const auto chain = identity::Certificate::load_chain(facts.folder + (is_root ? "/ca.pem" : "/cert.pem"));
  if (!chain.ok()) {
    facts.loaded = chain.error();
    return facts;
  }
  const auto authority = is_root ? chain : identity::Certificate::load_authorities(facts.folder + "/ca.pem");
  auto key = identity::PrivateKey::load(facts.key_file);
  if (!authority.ok() || !key.ok()) {
    facts.loaded = authority.ok() ? key.error() : authority.error();
    if (facts.loaded.error().code == Code::kNotFound) {  // half of them
      facts.loaded = Error{Code::kDataLoss, facts.loaded.error().message};
    }
    return facts;
  }
  const identity::Credentials credentials{std::move(*key), *chain, *authority};
  facts.loaded = identity::check_credentials(credentials, facts.folder + (is_root ? "/ca.pem" : "/cert.pem"));
  facts.federation = is_root ? identity::federation_of(chain->front()) : identity::federation_of(credentials);
  facts.not_before = chain->front().not_before();
  facts.not_after = chain->front().not_after();
  const auto root = identity::root_of(*chain, *authority);
  facts.authority_not_after = (root.ok() ? *root : authority->front()).not_after();
  if (is_root) return facts;
  const auto member = identity::identity_of(chain->front());
  if (!member.ok()) {
    facts.loaded = member.error();
    return facts;
  }
  facts.role = member->role;
  facts.name = member->name;
  return facts;
}

namespace {

// "Num RefCount Protocol Flags Type St Inode Path" of /proc/net/unix.
struct UnixLine {
  std::string flags;
  std::string inode;
  std::string path;
};

UnixLine unix_line(const std::string& line) {
  std::istringstream words(line);
  UnixLine read;
  std::string skipped;
  words >> skipped >> skipped >> skipped >> read.flags >> skipped >> skipped >> read.inode >> std::ws;
  std::getline(words, read.path);
  return read;
}

// Where whoever bound the socket means it to be: a relative path is of that process' working folder.
std::filesystem::path bound_at(const UnixLine& line) {
  const std::filesystem::path path = line.path;
  if (path.is_absolute()) return path;
  const auto holder = holder_of(line.inode);
  std::error_code hidden;
  if (!holder) return path;  // perhaps it is ours
  return std::filesystem::read_symlink(fmt::format("/proc/{}/cwd", *holder), hidden) / path;
}

// std::filesystem::equivalent() knows no sockets.
bool is_same_file(const std::filesystem::path& one, const std::filesystem::path& other) {
  struct stat a{};
  struct stat b{};
  return ::stat(one.c_str(), &a) == 0 && ::stat(other.c_str(), &b) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

// A connection would be seen by the agent: the kernel is asked instead.
bool is_listening(const std::filesystem::path& path) {
  constexpr std::string_view kAccepts = "00010000";
  std::ifstream sockets("/proc/net/unix");
  for (std::string text; std::getline(sockets, text);) {
    const UnixLine line = unix_line(text);
    if (line.flags != kAccepts || std::filesystem::path(line.path).filename() != path.filename()) continue;
    if (is_same_file(bound_at(line), path)) return true;
  }
  return false;
}

}  // namespace

WorkerSocketFacts collect_worker_socket(const std::string& path) {
  WorkerSocketFacts facts{.path = path, .user = user_name(::geteuid())};
  struct stat about{};
  if (::lstat(path.c_str(), &about) != 0) return facts;
  facts.exists = true;
  facts.is_socket = S_ISSOCK(about.st_mode);
  facts.mode = about.st_mode & 07777;
  facts.owner = user_name(about.st_uid);
  facts.listening = is_listening(path);
  return facts;
}

// ---- Python ---------------------------------------------------------------------------------------------------------

namespace {

// What a command prints, up to kAnswerBytesMax and within kPythonMax. Empty when it fails.
std::string output_of(std::vector<std::string> command) {
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return "";
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, pipe[1], STDOUT_FILENO);
  ::posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, "/dev/null", O_WRONLY, 0);
  ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  std::vector<char*> arguments;
  for (std::string& word : command) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = 0;
  const int failed = ::posix_spawnp(&child, arguments[0], &actions, nullptr, arguments.data(), environ);
  ::posix_spawn_file_actions_destroy(&actions);
  ::close(pipe[1]);
  std::string output;
  const SystemClock clock;
  const TimePoint end = clock.now() + kPythonMax;
  while (failed == 0 && output.size() < kAnswerBytesMax) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock.now());
    pollfd waiting{.fd = pipe[0], .events = POLLIN, .revents = 0};
    if (left.count() <= 0 || ::poll(&waiting, 1, static_cast<int>(left.count())) <= 0) break;
    std::array<char, 512> bytes{};
    const ssize_t count = ::read(pipe[0], bytes.data(), bytes.size());
    if (count <= 0) break;
    output.append(bytes.data(), static_cast<std::size_t>(count));
  }
  ::close(pipe[0]);
  if (failed != 0) return "";
  ::kill(child, SIGKILL);  // it has said what it had to say, or hangs
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return output;
}

}  // namespace

PythonFacts collect_python() {
  PythonFacts facts{.ours = tree::kVersion};
  const std::string script =
      "import sys; print(sys.executable, flush=True); import fluvial; print(fluvial.__version__, flush=True)";
  const std::string output = output_of({"python3", "-c", script});
  const std::size_t end = output.find('\n');
  if (end == std::string::npos) return facts;
  facts.interpreter = output.substr(0, end);
  facts.version = output.substr(end + 1, output.find('\n', end + 1) - end - 1);
  return facts;
}

}  // namespace fluvial::cli::doctor
