// A file system in memory that can fail at any operation and crash: what was not fsynced is then lost, or kept in part.
// For tests and the simulator.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "core/store/file_system.h"

namespace fluvial::store {

enum class Fault {
  kNoSpace,     // ENOSPC: kResourceExhausted, nothing written
  kIo,          // EIO: kUnavailable
  kShortWrite,  // half of the bytes are written, then ENOSPC; for any other operation as kNoSpace
                // With each of these an fsync fails as on Linux: with kUnavailable. What it should have made durable
                // stays readable but is forgotten, so no later fsync makes it durable either.
  kCrash,       // this operation and all after it fail, until restart(): the process is dead
};

enum class Unsynced {
  kLost,  // only what was fsynced is left
  kKept,  // as after a killed process: everything written is there, and still not durable
  kTorn,  // each 512-byte sector and each name is the fsynced one or the newer one, as the generator says
};

class MemoryFileSystem final : public FileSystem {
 public:
  MemoryFileSystem();
  ~MemoryFileSystem() override;

  std::uint64_t operations() const;  // so far, of every kind
  // The n-th operation from now on (0: the next) fails. One fault is armed at a time.
  void fail_at(std::uint64_t operations_from_now, Fault fault);
  void clear_fault();
  bool crashed() const;
  bool is_durable(const std::string& path) const;  // whether any crash leaves it as it is, be it a file or its absence
  // A separate disk with what a power cut at this moment would leave of this one, nothing torn.
  std::unique_ptr<MemoryFileSystem> after_power_cut() const;
  // The machine comes up again. Files that are still open are dead; locks are gone.
  void restart(Unsynced unsynced, std::uint64_t seed = 0);
  // copy() copies everything, while nobody has a file open. replace() puts such a copy in place of everything, as after
  // a restart.
  class Copy;
  std::shared_ptr<const Copy> copy() const;
  void replace(const Copy& copy);

  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override;
  Result<std::unique_ptr<File>> open_unnamed(const std::string& folder) override;
  Status rename(const std::string& from, const std::string& to) override;
  Status remove(const std::string& path) override;
  Result<bool> exists(const std::string& path) override;
  Result<std::vector<std::string>> list(const std::string& folder) override;
  Status make_folder(const std::string& path) override;
  Status sync_folder(const std::string& path) override;

  struct State;  // shared with the open files

 private:
  std::shared_ptr<State> state_;
};

}  // namespace fluvial::store
