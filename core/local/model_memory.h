// Memory of an agent's models, used again from one model to the next: fresh shared memory is zeroed, and faulted in
// page by page.
//
// Its memfds carry F_SEAL_FUTURE_WRITE: nobody can write to them but through the mapping that was there before the
// seal, the agent's own. An array that a worker holds must never change under it. So what others are given is a
// description of the memfd that is open for reading alone, and the agent writes again only when the kernel says that no
// such description is left: neither as a descriptor, nor in a message that is on its way, nor behind a mapping. It says
// so by granting a write lease (fcntl(2), F_SETLEASE), which needs that nobody else has the file open.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "core/local/shared_model.h"

namespace fluvial::local {

// Thread safe. Where the kernel has no such seal, or grants no leases on memfds, each model gets memory of its own.
class ModelMemory : public std::enable_shared_from_this<ModelMemory> {
 public:
  static constexpr std::size_t kKeptMax = 2;

  struct Counts {
    std::uint64_t made = 0;    // fresh memory, over its life
    std::uint64_t reused = 0;  // models in the memory of an earlier one
    std::size_t kept = 0;      // memory that waits for the next model
  };

  static std::shared_ptr<ModelMemory> make();

  // As MemfdWriter::create(). What it begins with is not zeros: it may be an earlier model.
  Result<MemfdWriter> writer(std::uint64_t size_bytes);
  Counts counts() const;

 private:
  friend class SharedModel;
  ModelMemory() = default;
  Result<MemfdWriter> fresh(std::uint64_t size_bytes);
  // By the last owner of a model. Once no model is left, what is kept goes, too: no round needs it.
  void give_back(KeptMemory memory);

  mutable std::mutex mutex_;
  std::vector<KeptMemory> kept_;                           // the oldest first
  std::shared_ptr<void> uses_ = std::make_shared<char>();  // shared with the memory that is in use
  bool works_ = true;                                      // here
  Counts counts_;
};

}  // namespace fluvial::local
