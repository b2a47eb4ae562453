// A model's bytes in shared memory (memfd). Whoever fills it has the only writable mapping and seals it; from then on
// neither size nor content can change, for anybody, so a reader needs no copy and fears no SIGBUS.
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

// Immutable bytes in a sealed memfd, mapped read-only. Any thread may read; as many owners as wanted.
class SharedModel : public std::enable_shared_from_this<SharedModel> {
 public:
  // Takes a descriptor from the other side of the socket. kInvalidArgument, saying which, unless it is a memfd of
  // exactly `size_bytes` that carries F_SEAL_SHRINK, F_SEAL_GROW and F_SEAL_WRITE; all checked before it is mapped.
  static Result<std::shared_ptr<const SharedModel>> adopt(UniqueFd fd, std::uint64_t size_bytes);
  static Result<std::shared_ptr<const SharedModel>> copy_of(ByteSpan bytes);

  ByteSpan bytes() const { return mapping_.span(); }
  SharedBytes as_shared_bytes() const { return {shared_from_this(), bytes()}; }
  int fd() const { return fd_.get(); }  // to send to another process; stays ours

 private:
  SharedModel(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  UniqueFd fd_;
  Mapping mapping_;
};

// A model being written: received from the network or trained straight into the memory that will be shared.
class MemfdWriter {
 public:
  // The memory is reserved here: kResourceExhausted when the machine has not got it. It starts as zeros.
  static Result<MemfdWriter> create(std::uint64_t size_bytes);

  MutableByteSpan span() { return mapping_.span(); }
  // Ends writing: unmaps, seals against shrinking, growing, writing and further seals, and maps again read-only.
  Result<std::shared_ptr<const SharedModel>> seal() &&;

 private:
  MemfdWriter(UniqueFd fd, Mapping mapping) : fd_(std::move(fd)), mapping_(std::move(mapping)) {}
  UniqueFd fd_;
  Mapping mapping_;
};

}  // namespace fluvial::local
