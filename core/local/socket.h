// Unix stream sockets as the local protocol uses them, and the one way errno becomes an Error here.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string_view>

#include "core/base/result.h"
#include "core/local/fd.h"

namespace fluvial::local {

Error system_error(Code code, std::string_view what);  // "what: " and errno in words

// Listening, non-blocking, the socket file with mode 0600. WorkerServer::listen says what is refused.
Result<UniqueFd> listen_unix(const std::filesystem::path& path);
// Removes the socket file unless it belongs to another server by now.
void remove_socket_file(const std::filesystem::path& path, ino_t inode);
Result<ino_t> socket_file_inode(const std::filesystem::path& path);

// Connected, blocking. kUnavailable when nobody listens there.
Result<UniqueFd> connect_unix(const std::filesystem::path& path);

struct Peer {
  pid_t pid = 0;
  uid_t uid = 0;
};
Result<Peer> peer_of(int fd);
// The same user, or root.
bool peer_may_attach(uid_t peer, uid_t own);

}  // namespace fluvial::local
