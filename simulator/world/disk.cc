#include "simulator/world/disk.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace fluvial::simulator {

Duration Disk::take_latency() {
  const std::uint64_t now = files_.operations();
  const std::uint64_t count = now - counted_;
  counted_ = now;
  rearm();
  return settings_.operation * static_cast<Duration::rep>(count);
}

void Disk::set_faults(const DiskFaults& faults) {
  faults_ = faults;
  files_.clear_fault();
  fails_after_ = 0;
  rearm();
}

void Disk::rearm() {
  if (fails_after_ != 0) {
    if (files_.operations() < fails_after_) return;
    ++faults_met_;
    fails_after_ = 0;
  }
  const double total = faults_.io_error + faults_.no_space + faults_.short_write + faults_.crash;
  if (total <= 0 || files_.crashed()) return;
  double which = rng_.uniform() * total;
  const double u = std::max(rng_.uniform(), 1e-12);
  const auto wait = static_cast<std::uint64_t>(std::min(std::log(u) / std::log1p(-std::min(total, 0.999)), 1e12));
  store::Fault fault = store::Fault::kCrash;
  if ((which -= faults_.io_error) < 0) {
    fault = store::Fault::kIo;
  } else if ((which -= faults_.no_space) < 0) {
    fault = store::Fault::kNoSpace;
  } else if ((which -= faults_.short_write) < 0) {
    fault = store::Fault::kShortWrite;
  }
  fails_after_ = files_.operations() + wait + 1;
  fault_ = fault;
  files_.fail_at(wait, fault);
}

Disk::Inspection::Inspection(Disk& disk) : disk_(disk), begun_(disk.files_.operations()) {
  if (!disk.crashed()) disk.files_.clear_fault();
}

Disk::Inspection::~Inspection() {
  if (disk_.crashed()) return;
  const std::uint64_t looked = disk_.files_.operations() - begun_;
  disk_.counted_ += looked;
  if (disk_.fails_after_ == 0) return;
  const bool armed = disk_.fails_after_ > begun_;  // otherwise the fault was met, and rearm() draws the next
  disk_.fails_after_ += looked;
  if (armed) disk_.files_.fail_at(disk_.fails_after_ - 1 - disk_.files_.operations(), disk_.fault_);
}

void Disk::empty() {
  files_ = store::MemoryFileSystem();
  counted_ = 0;
}

void Disk::kill() {
  files_.fail_at(0, store::Fault::kCrash);
  std::ignore = files_.exists("/");
}

void Disk::restart(store::Unsynced unsynced) {
  files_.restart(unsynced, rng_.next());
  counted_ = files_.operations();
  fails_after_ = 0;
  rearm();
}

void Disk::put_back(const Backup& backup) {
  files_.replace(*backup);
  counted_ = files_.operations();
  fails_after_ = 0;
  rearm();
}

}  // namespace fluvial::simulator
