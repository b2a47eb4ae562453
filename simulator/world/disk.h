// One host's disk: a store::MemoryFileSystem that fails as the scenario says. Operations are carried out at once. The
// time that they should take is added up, and the process waits that time before it goes on with their result.
#pragma once

#include <memory>
#include <string>

#include "core/base/clock.h"
#include "core/store/memory_file_system.h"
#include "simulator/scenario/chance.h"

namespace fluvial::simulator {

struct DiskSettings {
  Duration operation{};  // of each
};

struct DiskFaults {  // rates are for each operation
  double io_error = 0;
  double no_space = 0;
  double short_write = 0;
  double crash = 0;  // the machine dies in the middle of an operation
};

class Disk {
 public:
  Disk(Rng rng, DiskSettings settings) : rng_(rng), settings_(settings) {}

  store::FileSystem& files() { return files_; }
  // The time that the operations since the last call take.
  Duration take_latency();

  void set_faults(const DiskFaults& faults);
  bool crashed() const { return files_.crashed(); }
  bool is_durable(const std::string& path) const { return files_.is_durable(path); }
  std::unique_ptr<store::MemoryFileSystem> after_power_cut() const { return files_.after_power_cut(); }
  // While it lives, checks may read the disk: no operation fails, and none takes time. Has no effect when the machine
  // is dead.
  class Inspection {
   public:
    explicit Inspection(Disk& disk);
    ~Inspection();
    Inspection(const Inspection&) = delete;
    Inspection& operator=(const Inspection&) = delete;

   private:
    Disk& disk_;
    std::uint64_t begun_;
  };
  void empty();  // a new one, between kill() and restart()
  void kill();   // every operation fails until restart(): there is no process to ask for one
  // The machine, or only its process, comes up again.
  void restart(store::Unsynced unsynced);
  // The copy that a person makes of a machine that is down, and puts back.
  using Backup = std::shared_ptr<const store::MemoryFileSystem::Copy>;
  Backup back_up() const { return files_.copy(); }
  void put_back(const Backup& backup);
  std::uint64_t faults_met() const { return faults_met_ + (fails_after_ != 0 && files_.operations() >= fails_after_); }

 private:
  void rearm();  // draws when the next operation fails

  store::MemoryFileSystem files_;
  Rng rng_;
  DiskSettings settings_;
  DiskFaults faults_;
  std::uint64_t counted_ = 0;                  // operations whose latency was taken
  std::uint64_t fails_after_ = 0;              // operations() beyond it: the armed fault was met. 0: none is armed
  store::Fault fault_ = store::Fault::kCrash;  // that is armed
  std::uint64_t faults_met_ = 0;
};

}  // namespace fluvial::simulator
