// A node's process, its certificate, its folder, and what else it has on this machine.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "cli/doctor/judge.h"
#include "cli/format.h"
#include "core/identity/authority.h"

namespace fluvial::cli::doctor {
namespace {

using std::chrono::days;

constexpr auto kCertificateSoon = days(14);
constexpr int kOverduePart = 4;  // of a certificate's life: it was to be renewed at half of it
constexpr auto kInHours = days(2);
constexpr std::uint64_t kFreeWanted = std::uint64_t{1} << 30;
constexpr std::uint64_t kFreeMin = 64 << 20;
constexpr std::uint64_t kFreeFilesWanted = 1'000;
constexpr std::uint64_t kModelsKept = 4;  // what a folder has to have room for, beside what it holds
constexpr double kFsyncSlowS = 0.05;
constexpr double kWriteSlowBytesPerS = 50e6;
constexpr std::size_t kSocketPathMax = 107;
constexpr unsigned kOthers = 077;

std::string day_of(WallTime time) { return fmt::format("{:%Y-%m-%d}", std::chrono::floor<days>(time)); }
std::string mode_text(unsigned mode) { return fmt::format("{:04o}", mode); }

}  // namespace

Findings judge(const ProcessFacts& facts, const Node& node) {
  if (!facts.answers) {
    return {{Severity::kOk, fmt::format("process: none answers ({})", facts.why)}};
  }
  const std::string what = fmt::format("process: {} answers at {}", facts.name, facts.asked);
  Findings findings;
  if (!facts.fault.empty()) {
    findings.push_back({Severity::kError, fmt::format("{}; {}", what, facts.fault),
                        "free or repair the disk; docs/operations/troubleshooting.md says when to restart"});
  } else if (node.role != Role::kCoordinator && !facts.connected) {
    findings.push_back({Severity::kError, what + ", and has no parent",
                        "the findings about the coordinator and the parent say why; else its log"});
  } else {
    const std::string parent = facts.parent.empty() ? "" : fmt::format(", its parent is {}", facts.parent);
    findings.push_back({Severity::kOk, what + parent});
  }
  if (node.has_workers() && facts.workers == 0) {
    findings.push_back({Severity::kWarning, "workers: none is attached, so this site trains nothing",
                        "start the training script: fluvial.connect() finds the worker socket"});
  } else if (node.has_workers()) {
    findings.push_back({Severity::kOk, fmt::format("workers: {} attached", facts.workers)});
  }
  return findings;
}

// ---- certificates ---------------------------------------------------------------------------------------------------

namespace {

Finding judge_end(const CertificateFacts& facts, const std::string& whose) {
  const std::string until = fmt::format("{}, from {} to {}", whose, day_of(facts.not_before), day_of(facts.not_after));
  const char* renew =
      facts.role
          ? "it renews itself while its process runs and reaches the coordinator, up to 30 days after its end "
            "(renew_ended_max_s): see the log; otherwise a new token for the same name (fluvial token create at the "
            "coordinator), then fluvial enroll"
          : "another authority takes over by a rollover, while this one is still valid: docs/operations/authorities.md";
  if (facts.now >= facts.not_after) return {Severity::kError, fmt::format("{}: expired", until), renew};
  if (facts.now < facts.not_before) {
    return {Severity::kError, fmt::format("{}: not valid yet", until),
            "this machine's clock is behind: run a time service"};
  }
  const auto left = facts.not_after - facts.now;
  const std::string time_left = left < kInHours
                                    ? fmt::format("{} h left", std::chrono::floor<std::chrono::hours>(left).count())
                                    : fmt::format("{} days left", std::chrono::floor<days>(left).count());
  const std::string said = fmt::format("{}: {}{}", until, time_left, facts.role ? ", renews itself" : "");
  const auto life = facts.not_after - facts.not_before - identity::kBackdated;
  if (left < std::min<Duration>(kCertificateSoon, life / kOverduePart)) return {Severity::kWarning, said, renew};
  return {Severity::kOk, said};
}

Finding judge_not_loaded(const CertificateFacts& facts, const Node& node) {
  const Error& why = facts.loaded.error();
  if (why.code != Code::kNotFound) {
    return {Severity::kError, "certificate: " + why.message,
            why.code == Code::kFailedPrecondition ? "chmod 600 of the key file, as the node's user"
                                                  : "restore the folder, or empty it and enrol again with a new token"};
  }
  if (node.role == Role::kCoordinator) {
    return {Severity::kOk,
            fmt::format("certificate authority: none in {} yet; the first start makes it", facts.folder)};
  }
  return {Severity::kError, fmt::format("certificate: none in {}: this machine is not enrolled", facts.folder),
          "fluvial token create at the coordinator, then fluvial enroll here"};
}

}  // namespace

Findings judge(const CertificateFacts& facts, const Node& node) {
  Findings findings;
  if (facts.key_mode && (*facts.key_mode & kOthers) != 0) {
    findings.push_back(
        {Severity::kError,
         fmt::format("key {} has mode {}: others may read it", facts.key_file, mode_text(*facts.key_mode)),
         "chmod 600 " + facts.key_file + "; if others have read it, enrol again"});
  }
  if (!facts.loaded.ok()) {
    if (findings.empty()) findings.push_back(judge_not_loaded(facts, node));
    return findings;
  }
  if (node.role && facts.role && *facts.role != *node.role) {
    findings.push_back({Severity::kError,
                        fmt::format("certificate: {} is enrolled as {}, and this is to be a node of the role {}",
                                    facts.name, role_name(*facts.role), role_name(*node.role)),
                        "another data_dir, or a token of that role"});
  }
  if (facts.folder_mode && (*facts.folder_mode & 022) != 0) {
    findings.push_back(
        {Severity::kWarning,
         fmt::format("{} has mode {}: others may put keys into it", facts.folder, mode_text(*facts.folder_mode)),
         "chmod 700 " + facts.folder});
  }
  const std::string whose = facts.role ? fmt::format("certificate of {} {} in federation {}", role_name(*facts.role),
                                                     facts.name, facts.federation)
                                       : fmt::format("certificate authority of federation {}", facts.federation);
  findings.push_back(judge_end(facts, whose));
  if (facts.role && facts.authority_not_after <= facts.not_after && facts.now < facts.not_after) {
    findings.push_back({Severity::kWarning,
                        fmt::format("the federation's authority ends on {}", day_of(facts.authority_not_after)),
                        "its coordinator rolls over to another one before that day: docs/operations/authorities.md"});
  }
  return findings;
}

// ---- folders --------------------------------------------------------------------------------------------------------

namespace {

std::optional<Finding> judge_access(const FolderFacts& facts, const Node& node) {
  if (!facts.exists) {
    if (!node.role) return Finding{Severity::kOk, fmt::format("folder {}: not there", facts.path)};
    return Finding{Severity::kError, fmt::format("folder {}: not there", facts.path),
                   node.role == Role::kCoordinator ? "the first start makes it; is data_dir the right one?"
                                                   : "fluvial enroll makes it; is data_dir the right one?"};
  }
  if (!facts.is_folder) {
    return Finding{Severity::kError, fmt::format("{} is no folder", facts.path), "data_dir must be one"};
  }
  if (facts.read_only) {
    return Finding{Severity::kError, fmt::format("folder {}: its file system is mounted read-only", facts.path),
                   "after errors of the disk the kernel mounts so (dmesg); else mount it with rw, or give a container "
                   "a volume that may be written"};
  }
  if (!facts.writable) {
    return Finding{Severity::kError,
                   fmt::format("folder {}: user {} may not write to it (mode {}, owner {})", facts.path, facts.user,
                               mode_text(facts.mode), facts.owner),
                   fmt::format("run as {0}, or chown -R {1} {2}", facts.owner, facts.user, facts.path)};
  }
  return std::nullopt;
}

Finding judge_room(const FolderFacts& facts, std::uint64_t model_bytes) {
  const std::string what = fmt::format("disk under {} ({}): {} free", facts.path, facts.file_system,
                                       format_bytes(static_cast<double>(facts.free_bytes)));
  const std::uint64_t wanted = std::max(kFreeWanted, kModelsKept * model_bytes);
  const std::string need =
      model_bytes == 0 ? "" : fmt::format("; a model is {}", format_bytes(static_cast<double>(model_bytes)));
  if (facts.free_bytes < std::max(kFreeMin, model_bytes)) {
    return {Severity::kError, what + need, "free it, or move data_dir to a larger disk: a run pauses when it is full"};
  }
  if (facts.free_bytes < wanted) {
    return {Severity::kWarning, what + need,
            fmt::format("{} should be free: fewer models_kept, or a larger disk",
                        format_bytes(static_cast<double>(wanted)))};
  }
  if (facts.free_files > 0 && facts.free_files < kFreeFilesWanted) {
    return {Severity::kWarning, fmt::format("{}, and room for {} more files", what, facts.free_files),
            "df -i: what fills the disk with small files?"};
  }
  return {Severity::kOk, what + need};
}

std::optional<Finding> judge_file_system(const FolderFacts& facts) {
  if (facts.file_system == "tmpfs" || facts.file_system == "ramfs") {
    return Finding{Severity::kWarning, fmt::format("{} lies in memory ({})", facts.path, facts.file_system),
                   "nothing in it survives a restart of the machine: a disk for data_dir"};
  }
  if (facts.file_system == "overlay") {
    return Finding{Severity::kWarning, fmt::format("{} lies in a container's own layer (overlay)", facts.path),
                   "it goes with the container: a volume for data_dir"};
  }
  if (facts.file_system == "nfs" || facts.file_system == "cifs" || facts.file_system == "fuse") {
    return Finding{Severity::kWarning,
                   fmt::format("{} lies on another machine or in a program ({})", facts.path, facts.file_system),
                   "locks and fsync are not always what they promise there: a local disk for data_dir"};
  }
  return std::nullopt;
}

Finding judge_speed(const FolderFacts& facts) {
  if (!facts.speed.ok()) {
    return {Severity::kError, fmt::format("disk under {}: {}", facts.path, facts.speed.error().message),
            "look at the disk: dmesg, smartctl -a"};
  }
  const DiskSpeed& speed = *facts.speed;
  const std::string what = fmt::format("disk under {}: {}/s written, fsync {} (at most {})", facts.path,
                                       format_bytes(speed.write_bytes_per_s), format_seconds(speed.fsync_median_s),
                                       format_seconds(speed.fsync_max_s));
  if (speed.fsync_median_s > kFsyncSlowS) {
    return {Severity::kWarning, what,
            "every round waits for some fsyncs at every node: a disk with a write cache that "
            "survives power loss, or one that is not shared"};
  }
  if (speed.write_bytes_per_s < kWriteSlowBytesPerS) {
    return {Severity::kWarning, what, "models and updates are written each round: a faster disk shortens it"};
  }
  return {Severity::kOk, what};
}

}  // namespace

Findings judge(const FolderFacts& facts, const Node& node) {
  if (const auto access = judge_access(facts, node)) return {*access};
  Findings findings = {judge_room(facts, node.model_bytes), judge_speed(facts)};
  if (const auto finding = judge_file_system(facts)) findings.push_back(*finding);
  if ((facts.mode & 007) != 0) {
    findings.push_back({Severity::kWarning,
                        fmt::format("folder {} has mode {}: everybody on this machine may look into it", facts.path,
                                    mode_text(facts.mode)),
                        "chmod 750 " + facts.path});
  }
  return findings;
}

Findings judge(const JournalFacts& facts) {
  if (!facts.exists)
    return {{Severity::kOk, fmt::format("journal: {} is not there; the first start makes it", facts.path)}};
  const std::string what = fmt::format("journal: {}", format_bytes(static_cast<double>(facts.bytes)));
  if (facts.held) return {{Severity::kOk, what + ", held by the coordinator that runs"}};
  if (facts.checked.ok()) return {{Severity::kOk, what + ", every page as it should be"}};
  if (facts.checked.error().code == Code::kNotFound) {
    return {{Severity::kOk, fmt::format("{}, {}", what, facts.checked.error().message)}};
  }
  return {{Severity::kError, fmt::format("{}: {}", what, facts.checked.error().message),
           "restore a backup (docs/operations/backup.md), and look at the disk"}};
}

// ---- workers --------------------------------------------------------------------------------------------------------

Findings judge(const WorkerSocketFacts& facts, bool process_answers) {
  if (facts.path.size() > kSocketPathMax) {
    return {{Severity::kError, fmt::format("worker socket {}: longer than {} characters", facts.path, kSocketPathMax),
             "a shorter worker_socket, such as /run/fluvial/worker.sock"}};
  }
  if (!facts.exists || !facts.listening) {
    if (!process_answers) return {{Severity::kOk, fmt::format("worker socket {}: comes with the process", facts.path)}};
    return {{Severity::kError,
             fmt::format("worker socket {}: {}", facts.path, facts.exists ? "nobody listens" : "not there"),
             "the process that answers has another: its worker_socket, or restart it"}};
  }
  if (!facts.is_socket) {
    return {{Severity::kError, fmt::format("worker socket {} is no socket", facts.path),
             "remove it, or choose another path"}};
  }
  const std::string what = fmt::format("worker socket {}: listens, for {}", facts.path,
                                       facts.owner == "root" ? "root" : fmt::format("user {} and root", facts.owner));
  if (facts.user != facts.owner && facts.user != "root") {
    return {{Severity::kWarning, what,
             fmt::format("a worker of user {} cannot attach: run it as {}", facts.user, facts.owner)}};
  }
  return {{Severity::kOk, what}};
}

Findings judge(const PythonFacts& facts) {
  if (facts.interpreter.empty())
    return {{Severity::kOk, "Python: no python3 in PATH; workers may have one of their own"}};
  if (facts.version.empty()) {
    return {{Severity::kOk,
             fmt::format("Python: {} does not know the package fluvial; training scripts need it", facts.interpreter)}};
  }
  if (facts.version != facts.ours) {
    return {
        {Severity::kWarning,
         fmt::format("Python: {} has the package fluvial {}, this is {}", facts.interpreter, facts.version, facts.ours),
         "install the same version of both (pip install --upgrade)"}};
  }
  return {{Severity::kOk, fmt::format("Python: {} has the package fluvial {}", facts.interpreter, facts.version)}};
}

}  // namespace fluvial::cli::doctor
