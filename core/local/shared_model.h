// A model's bytes in shared memory (memfd). An agent's model is filled through its only writable mapping and then
// sealed. From then on nobody can change size or content, so a reader needs no copy and fears no SIGBUS; but the agent
// may use the memory again once nobody has it any more (model_memory.h). A worker's
// result may stay writable for the worker, which uses the memory again. Only its size is sealed: its reader fears no
// SIGBUS, but the content may change under it, so it reads each value only once.
#pragma once

#include <cstdint>
#include <memory>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/local/fd.h"

namespace fluvial::local {

// A mapped part of memory. Movable, unmapped when it goes.
class Mapping {
 public:
  Mapping() = default;
  Mapping(std::byte* data, std::size_t size_bytes) : bytes_(data, size_bytes) {}
  Mapping(Mapping&& other) noexcept : bytes_(std::exchange(other.bytes_, {})) {}
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  MutableByteSpan span() const { return bytes_; }

 private:
  MutableByteSpan bytes_;
};

// Which seals a memfd must carry to be taken from the other side of a socket.
enum class Seals {
  kSizeAndContent,  // F_SEAL_SHRINK, F_SEAL_GROW, and F_SEAL_WRITE or F_SEAL_FUTURE_WRITE: a model from an agent
  kSize,            // F_SEAL_SHRINK and F_SEAL_GROW: a worker's result
};

class ModelMemory;

// Memory that serves one model after the other.
struct KeptMemory {
  UniqueFd lease;   // its own description, which tells whether there are others
  Mapping mapping;  // for writing, from before it was sealed
  std::shared_ptr<void> use = {};
};

// Bytes in a sealed memfd, immutable if the content is sealed. Any thread may read; as many owners as wanted.
class SharedModel : public std::enable_shared_from_this<SharedModel> {
 public:
  // Takes a descriptor from the other side of the socket. kInvalidArgument, saying which, unless it is a memfd of
  // exactly `size_bytes` that carries these seals; all checked before it is mapped.
  static Result<std::shared_ptr<const SharedModel>> adopt(UniqueFd fd, std::uint64_t size_bytes,
                                                          Seals seals = Seals::kSizeAndContent);
  static Result<std::shared_ptr<const SharedModel>> copy_of(ByteSpan bytes);

  ByteSpan bytes() const { return mapping_.span(); }
  SharedBytes as_shared_bytes() const { return {shared_from_this(), bytes()}; }
  int fd() const { return fd_.get(); }  // to send to another process; this object keeps it
  // Whether its memory is an agent's that will be used again: then it carries F_SEAL_FUTURE_WRITE.
  bool is_kept() const { return use_ != nullptr; }

  ~SharedModel();

 private:
  friend class MemfdWriter;
  SharedModel(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  UniqueFd fd_;
  Mapping mapping_;
  UniqueFd lease_;  // these three only of memory that is kept
  std::shared_ptr<void> use_;
  std::weak_ptr<ModelMemory> home_;
};

// A model being written: received from the network or trained straight into the memory that will be shared.
class MemfdWriter {
 public:
  // The memory is reserved here: kResourceExhausted when the machine lacks it. It starts as zeros.
  static Result<MemfdWriter> create(std::uint64_t size_bytes);

  MutableByteSpan span() { return mapping_.span(); }
  // Ends writing: unmaps, seals against shrinking, growing, writing and further seals, and maps again read-only. Memory
  // that is kept is sealed and stays mapped; what others get is open for reading alone.
  Result<std::shared_ptr<const SharedModel>> seal() &&;

 private:
  friend class ModelMemory;
  MemfdWriter(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  MemfdWriter(KeptMemory memory, std::weak_ptr<ModelMemory> home)
      : fd_(std::move(memory.lease)),
        mapping_(std::move(memory.mapping)),
        use_(std::move(memory.use)),
        home_(std::move(home)) {}
  UniqueFd fd_;
  Mapping mapping_;
  std::shared_ptr<void> use_;  // these two only of memory that is kept
  std::weak_ptr<ModelMemory> home_;
};

// Another description of the same open file, for reading, or for both. Invalid where /proc is missing.
UniqueFd open_again(int fd, int flags);

// Memory that a worker keeps for its results: mapped for writing once, of a size that cannot change.
class ResultBuffer {
 public:
  static Result<ResultBuffer> create(std::uint64_t size_bytes);  // errors as MemfdWriter::create
  MutableByteSpan span() { return mapping_.span(); }
  std::uint64_t size_bytes() const { return mapping_.span().size(); }
  // The same memory, to be sent; it changes whenever span() is written.
  Result<std::shared_ptr<const SharedModel>> share() const;

 private:
  ResultBuffer(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  UniqueFd fd_;
  Mapping mapping_;
};

}  // namespace fluvial::local
