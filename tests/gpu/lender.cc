#include "tests/gpu/lender.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "kernels/test_values.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {

std::vector<float> lent_values(std::size_t count) { return kernels::test_values::normals(count, count); }

Lender::Lender(const Device& device, std::size_t count) {
  std::array<int, 2> to_it{}, from_it{};
  if (::pipe2(to_it.data(), O_CLOEXEC) != 0 || ::pipe2(from_it.data(), O_CLOEXEC) != 0) std::abort();
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, to_it[0], STDIN_FILENO);
  posix_spawn_file_actions_adddup2(&actions, from_it[1], STDOUT_FILENO);
  std::array<std::string, 5> words = {"gpu_test", "--device", to_string(device), "--lend", std::to_string(count)};
  std::array<char*, 6> arguments{};
  for (std::size_t i = 0; i < words.size(); ++i) arguments[i] = words[i].data();
  if (::posix_spawn(&process_, "/proc/self/exe", &actions, nullptr, arguments.data(), environ) != 0) std::abort();
  posix_spawn_file_actions_destroy(&actions);
  ::close(to_it[0]);
  ::close(from_it[1]);
  end_ = to_it[1];
  const ssize_t got = ::read(from_it[0], handle_.bytes.data(), handle_.bytes.size());
  ::close(from_it[0]);
  check(got == static_cast<ssize_t>(handle_.bytes.size()), "the other process sent no handle");
}

void Lender::close() {
  if (process_ == 0) return;
  ::close(end_);
  int status = 0;
  check(::waitpid(process_, &status, 0) == process_ && status == 0, "the other process failed");
  process_ = 0;
}

void Lender::kill() {
  int status = 0;
  check(::kill(process_, SIGKILL) == 0 && ::waitpid(process_, &status, 0) == process_ && WIFSIGNALED(status),
        "the other process could not be killed");
  ::close(end_);
  process_ = 0;
}

int lend(const Device& device, std::size_t count) {
  Stream stream = require(Stream::make(device));
  const std::vector<float> values = lent_values(count);
  const OnDevice<float> lent(device, std::span(values), stream);
  const kernels::MemoryHandle handle = require(kernels::export_memory(lent.buffer()));
  if (::write(STDOUT_FILENO, handle.bytes.data(), handle.bytes.size()) != std::ssize(handle.bytes)) return 1;
  char end = 0;
  return ::read(STDIN_FILENO, &end, 1) == 0 ? 0 : 1;
}

}  // namespace fluvial::gpu_test
