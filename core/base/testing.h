// For the tests of every room: a folder, a file's text, and waiting without guessing how long.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>

#include "core/base/check.h"

namespace fluvial {

inline constexpr std::chrono::minutes kTestPatience{1};  // then a test that waits has failed

// Is removed when it goes out of scope.
class TemporaryFolder {
 public:
  TemporaryFolder() : path_((std::filesystem::temp_directory_path() / "fluvial-XXXXXX").string()) {
    FLUVIAL_CHECK(::mkdtemp(path_.data()) != nullptr, "no temporary folder");
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }
  std::string operator/(std::string_view name) const { return path_ + "/" + std::string(name); }

 private:
  std::string path_;
};

// Empty when the file is not there.
inline std::string text_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What threads change and a test waits for.
template <typename T>
class Watched {
 public:
  void change(const std::function<void(T&)>& change) {
    const std::lock_guard lock(mutex_);
    change(value_);
    changed_.notify_all();
  }
  // Blocks until it holds; then `then` is called, before anybody changes the value again.
  void wait(const std::function<bool(const T&)>& holds, const std::function<void(T&)>& then = [](T&) {}) {
    std::unique_lock lock(mutex_);
    FLUVIAL_CHECK(changed_.wait_for(lock, kTestPatience, [&] { return holds(value_); }), "never happened");
    then(value_);
  }
  T copy() {
    const std::lock_guard lock(mutex_);
    return value_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  T value_{};
};

// Looks until it holds. Only for what announces itself nowhere, such as a counter of the kernel's.
inline void look_until(const std::function<bool()>& holds) {
  const auto end = std::chrono::steady_clock::now() + kTestPatience;
  while (!holds()) {
    FLUVIAL_CHECK(std::chrono::steady_clock::now() < end, "never happened");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace fluvial
