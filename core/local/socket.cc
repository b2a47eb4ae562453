#include "core/local/socket.h"

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstring>
#include <system_error>

namespace fluvial::local {
namespace {

constexpr int kBacklog = 64;

Result<sockaddr_un> address_of(const std::filesystem::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const std::string& text = path.native();
  if (text.empty() || text.find('\0') != std::string::npos) {
    return Error{Code::kInvalidArgument, "the path of a Unix socket is empty or holds a zero byte"};
  }
  if (text.size() >= sizeof(address.sun_path)) {
    return Error{Code::kInvalidArgument, fmt::format("socket path {} has {} bytes; a Unix socket's has at most {}: "
                                                     "choose a shorter folder",
                                                     text, text.size(), sizeof(address.sun_path) - 1)};
  }
  std::memcpy(address.sun_path, text.data(), text.size());
  return address;
}

int connect_to(int fd, const sockaddr_un& address) {
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): what the socket API takes
  return ::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address);
}

Result<UniqueFd> unix_socket(int flags) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | flags, 0));
  if (!fd.valid()) return system_error(Code::kResourceExhausted, "opening a Unix socket");
  return fd;
}

// Makes the path free, or says what occupies it.
Status remove_stale(const std::filesystem::path& path, const sockaddr_un& address) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) {
    if (errno == ENOENT) return {};
    return system_error(Code::kInvalidArgument, fmt::format("socket path {}", path.native()));
  }
  if (!S_ISSOCK(status.st_mode)) {
    return Error{Code::kAlreadyExists, fmt::format("{} is there already and is no socket", path.native())};
  }
  FLUVIAL_ASSIGN(const UniqueFd probe, unix_socket(SOCK_NONBLOCK));
  if (connect_to(probe.get(), address) == 0 || errno != ECONNREFUSED) {
    return Error{Code::kAlreadyExists, fmt::format("another process listens on {}", path.native())};
  }
  if (::unlink(path.c_str()) != 0 && errno != ENOENT) {
    return system_error(Code::kPermissionDenied, fmt::format("removing the stale socket {}", path.native()));
  }
  return {};
}

Status make_folder(const std::filesystem::path& folder) {
  if (folder.empty()) return {};
  std::error_code error;
  if (std::filesystem::create_directories(folder, error)) {
    std::filesystem::permissions(folder, std::filesystem::perms::owner_all, error);
  }
  if (error) {
    return Error{Code::kInvalidArgument, fmt::format("making the folder {}: {}", folder.native(), error.message())};
  }
  return {};
}

}  // namespace

Error system_error(Code code, std::string_view what) {
  return Error{code, fmt::format("{}: {}", what, std::generic_category().message(errno))};
}

Result<UniqueFd> listen_unix(const std::filesystem::path& path) {
  FLUVIAL_ASSIGN(const sockaddr_un address, address_of(path));
  FLUVIAL_TRY(make_folder(path.parent_path()));
  FLUVIAL_TRY(remove_stale(path, address));
  FLUVIAL_ASSIGN(UniqueFd fd, unix_socket(SOCK_NONBLOCK));
  // Before bind(): the file then never exists with a wider mode.
  if (::fchmod(fd.get(), 0600) != 0) return system_error(Code::kInternal, "a Unix socket's mode");
  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-reinterpret-cast): what the socket API takes
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const Code code = errno == EADDRINUSE ? Code::kAlreadyExists : Code::kInvalidArgument;
    return system_error(code, fmt::format("binding {}", path.native()));
  }
  if (::listen(fd.get(), kBacklog) != 0)
    return system_error(Code::kInternal, fmt::format("listening on {}", path.native()));
  return fd;
}

Result<ino_t> socket_file_inode(const std::filesystem::path& path) {
  struct stat status{};
  if (::lstat(path.c_str(), &status) != 0) return system_error(Code::kNotFound, path.native());
  return status.st_ino;
}

void remove_socket_file(const std::filesystem::path& path, ino_t inode) {
  const Result<ino_t> now = socket_file_inode(path);
  if (now.ok() && *now == inode) ::unlink(path.c_str());
}

Result<UniqueFd> connect_unix(const std::filesystem::path& path) {
  FLUVIAL_ASSIGN(const sockaddr_un address, address_of(path));
  FLUVIAL_ASSIGN(UniqueFd fd, unix_socket(0));
  if (connect_to(fd.get(), address) != 0) {
    const bool absent = errno == ENOENT || errno == ECONNREFUSED || errno == EINTR || errno == EAGAIN;
    return system_error(absent ? Code::kUnavailable : Code::kPermissionDenied,
                        fmt::format("attaching to {}", path.native()));
  }
  return fd;
}

Result<Peer> peer_of(int fd) {
  ucred credentials{};
  socklen_t size = sizeof credentials;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0) {
    return system_error(Code::kUnauthenticated, "asking who connected");
  }
  return Peer{.pid = credentials.pid, .uid = credentials.uid};
}

bool peer_may_attach(uid_t peer, uid_t own) { return peer == own || peer == 0; }

}  // namespace fluvial::local
