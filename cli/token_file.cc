#include "cli/token_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

#include "core/identity/token.h"
#include "core/store/file_system.h"

namespace fluvial::cli {
namespace {

constexpr std::uint64_t kTokenBytesMax = 4096;
constexpr std::string_view kContainersSecrets = "/run/secrets/";
constexpr std::string_view kPlaceholder = "none";  // what the packages' units hand over where their file is not there

std::string trimmed(const std::string& text) {
  const auto first = text.find_first_not_of(" \t\r\n");
  return first == std::string::npos ? "" : text.substr(first, text.find_last_not_of(" \t\r\n") - first + 1);
}

Error failed(std::string_view verb, const std::string& path) {
  const int number = errno;
  return {number == EEXIST ? Code::kAlreadyExists : Code::kUnavailable,
          fmt::format("cannot {} {}: {}", verb, path, std::generic_category().message(number))};
}

// The file that a person fills: systemd hands a copy of it to the packages' units.
std::string filled_by_hand(const std::string& path) {
  for (const char* unit : {"edge", "aggregator"}) {
    if (path == fmt::format("/run/credentials/fluvial-{}.service/token", unit)) {
      return fmt::format("/etc/fluvial/{}.token", unit);
    }
  }
  return path;
}

Error no_token(const std::string& path, const std::string& text) {
  const std::string file = filled_by_hand(path);
  const char* state = "holds no token";
  if (!text.empty()) {
    state = file != path ? "is not there"
                         : "holds no token but \"none\", which the packages' units write where "
                           "/etc/fluvial/edge.token or /etc/fluvial/aggregator.token is not there";
  }
  return {Code::kInvalidArgument,
          fmt::format("{} {}: put the line that fluvial token create prints into the file (mode 0600), and start this "
                      "again",
                      file, state)};
}

}  // namespace

Result<GivenToken> read_token_file(const std::string& path) {
  store::PosixFileSystem files;
  FLUVIAL_ASSIGN(const Buffer content, store::read_file(files, path, kTokenBytesMax));
  GivenToken given{.text = trimmed(std::string(as_text(content.span()))), .warning = ""};
  if (given.text.empty() || given.text == kPlaceholder) return no_token(path, given.text);
  if (const auto token = identity::EnrolmentToken::parse(given.text); !token.ok()) {
    return Error{token.error().code, fmt::format("{}: {}", filled_by_hand(path), token.error().message)};
  }
  struct stat status = {};
  if (!path.starts_with(kContainersSecrets) && ::stat(path.c_str(), &status) == 0 && (status.st_mode & 077) != 0) {
    given.warning = fmt::format("{} has mode {:04o}: anyone who can read it can become the member (chmod 600)", path,
                                status.st_mode & 07777);
  }
  return given;
}

Result<GivenToken> token_from(const config::Environment& environment) {
  const std::string file = environment("FLUVIAL_TOKEN_FILE").value_or("");
  const std::string text = trimmed(environment("FLUVIAL_TOKEN").value_or(""));
  if (!file.empty() && !text.empty()) {
    return Error{Code::kInvalidArgument, "FLUVIAL_TOKEN and FLUVIAL_TOKEN_FILE are both set: expected one of them"};
  }
  if (!file.empty()) return read_token_file(file);
  return GivenToken{.text = text, .warning = ""};
}

Result<TokenFile> TokenFile::make(const std::string& path) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return failed("make", path);
  return TokenFile(path, descriptor);
}

TokenFile::TokenFile(TokenFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), written_(other.written_) {}

TokenFile::~TokenFile() {
  if (descriptor_ < 0) return;
  ::close(descriptor_);
  if (!written_) ::unlink(path_.c_str());
}

Status TokenFile::write(const std::string& token) {
  const std::string line = token + "\n";  // shorter than what one write() may be cut to
  if (::write(descriptor_, line.data(), line.size()) != static_cast<ssize_t>(line.size()))
    return failed("write", path_);
  if (::fsync(descriptor_) != 0) return failed("sync", path_);
  written_ = true;
  return {};
}

}  // namespace fluvial::cli
