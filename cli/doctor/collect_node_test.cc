#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "cli/doctor/collect.h"
#include "core/base/testing.h"

namespace fluvial::cli::doctor {
namespace {

// A process whose working folder is `folder`, and which listens at `path`. Ends with the object.
class Listening {
 public:
  Listening(const std::string& folder, const std::string& path) {
    std::array<int, 2> pipe{};
    EXPECT_EQ(::pipe(pipe.data()), 0);
    pid_ = ::fork();
    if (pid_ == 0) listen(folder.c_str(), path.c_str(), pipe[1]);
    ::close(pipe[1]);
    char ready = 0;
    EXPECT_EQ(::read(pipe[0], &ready, 1), 1);
    ::close(pipe[0]);
  }
  ~Listening() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
  }
  Listening(const Listening&) = delete;
  Listening& operator=(const Listening&) = delete;

 private:
  [[noreturn]] static void listen(const char* folder, const char* path, int ready) {
    sockaddr_un at{};
    at.sun_family = AF_UNIX;
    std::copy_n(path, std::min(::strlen(path), sizeof at.sun_path - 1), at.sun_path);
    const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
    const bool is_up = ::chdir(folder) == 0 && ::bind(socket, reinterpret_cast<sockaddr*>(&at), sizeof at) == 0 &&
                       ::listen(socket, 1) == 0 && ::write(ready, "r", 1) == 1;
    if (is_up) ::pause();
    ::_exit(1);
  }
  pid_t pid_ = 0;
};

TEST(DoctorWorkers, ASocketIsFoundHoweverItsPathIsWritten) {
  const TemporaryFolder folder;
  const std::string path = folder / "worker.sock";
  const std::string relative = std::filesystem::relative(path).string();
  EXPECT_FALSE(collect_worker_socket(path).listening);
  for (const std::string& bound : {path, std::string("worker.sock"), std::string("./worker.sock")}) {
    const Listening agent(folder.path(), bound);
    EXPECT_TRUE(collect_worker_socket(path).listening) << bound;
    EXPECT_TRUE(collect_worker_socket(relative).listening) << bound;
    EXPECT_TRUE(collect_worker_socket(folder / ".//worker.sock").listening) << bound;
    std::filesystem::remove(path);
  }
  const TemporaryFolder other;
  const Listening agent(other.path(), "worker.sock");
  std::ofstream(path) << "no socket";
  EXPECT_FALSE(collect_worker_socket(path).listening) << "another folder's";
}

}  // namespace
}  // namespace fluvial::cli::doctor
