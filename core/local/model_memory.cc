#include "core/local/model_memory.h"

#include <fcntl.h>
#include <fmt/format.h>

#include <algorithm>
#include <csignal>
#include <utility>

namespace fluvial::local {
namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;

// Whether `fd` is the only description of its file that leases know of. memfd_create()'s own is not among them.
bool nobody_else_has(int fd) {
  if (::fcntl(fd, F_SETLEASE, F_WRLCK) != 0) return false;
  return ::fcntl(fd, F_SETLEASE, F_UNLCK) == 0;
}

}  // namespace

UniqueFd open_again(int fd, int flags) {
  return UniqueFd(::open(fmt::format("/proc/self/fd/{}", fd).c_str(), flags | O_CLOEXEC));
}

std::shared_ptr<ModelMemory> ModelMemory::make() { return std::shared_ptr<ModelMemory>(new ModelMemory); }

Result<MemfdWriter> ModelMemory::writer(std::uint64_t size_bytes) {
  const std::lock_guard lock(mutex_);
  std::erase_if(kept_, [&](const KeptMemory& kept) { return kept.mapping.span().size() != size_bytes; });
  const auto free =
      std::ranges::find_if(kept_, [](const KeptMemory& kept) { return nobody_else_has(kept.lease.get()); });
  if (free == kept_.end()) return fresh(size_bytes);
  KeptMemory memory = std::move(*free);
  kept_.erase(free);
  ++counts_.reused;
  memory.use = uses_;
  return MemfdWriter(std::move(memory), weak_from_this());
}

Result<MemfdWriter> ModelMemory::fresh(std::uint64_t size_bytes) {
  FLUVIAL_ASSIGN(MemfdWriter writer, MemfdWriter::create(size_bytes));
  ++counts_.made;
  if (!works_ || size_bytes == 0) return writer;
  UniqueFd lease = open_again(writer.fd_.get(), O_RDWR);
  // Who opens the file between the lease and its end is no reason to end this process, which SIGIO would be.
  works_ = lease.valid() && ::fcntl(lease.get(), F_SETSIG, SIGURG) == 0 && nobody_else_has(lease.get()) &&
           ::fcntl(writer.fd_.get(), F_ADD_SEALS, kSeals) == 0;
  if (!works_) return writer;
  return MemfdWriter({std::move(lease), std::move(writer.mapping_), uses_}, weak_from_this());
}

void ModelMemory::give_back(KeptMemory memory) {
  memory.use.reset();
  std::vector<KeptMemory> gone;  // unmapped without the lock
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(memory));
  if (uses_.use_count() == 1) {
    gone.swap(kept_);
  } else if (kept_.size() > kKeptMax) {
    gone.push_back(std::move(kept_.front()));
    kept_.erase(kept_.begin());
  }
}

ModelMemory::Counts ModelMemory::counts() const {
  const std::lock_guard lock(mutex_);
  Counts counts = counts_;
  counts.kept = kept_.size();
  return counts;
}

}  // namespace fluvial::local
