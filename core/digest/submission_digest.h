// The digest that names a submission's content, and that checks a partial's: over its chunks in order, then its trailer
// (docs/formats/frame.md#digests).
#pragma once

#include <cstdint>
#include <vector>

#include "core/digest/sha256.h"

namespace fluvial {

// As numbered on the wire and on disk. Appended to, never renumbered.
enum class DigestKind : std::uint8_t {
  kStream = 0,  // SHA-256 of all bytes, one after the other: the only one before 0.3
  kTree = 1,    // over the digests of its chunks, each by itself: side by side, and in lanes
};
inline constexpr std::uint64_t kDigestKinds = 2;

inline constexpr std::size_t kDigestLeafBytes = 16 * 1024;

// Of a chunk, or the trailer, in a kTree. Any thread; no two chunks of other bytes or another length have the same.
Digest tree_part_digest(ByteSpan bytes);

// Each chunk is given twice: to side_by_side() and to in_order(). One of them does nothing, by the kind. Movable; from
// finish() on it may only be destroyed or assigned to.
class SubmissionDigest {
 public:
  SubmissionDigest(DigestKind kind, std::uint64_t chunk_count);

  DigestKind kind() const { return kind_; }
  // In any order, different chunks at once. The place for it is where the chunk's bytes are in the cache.
  void side_by_side(std::uint64_t index, ByteSpan chunk);
  void in_order(ByteSpan chunk);  // one after the other, each once
  Digest finish(ByteSpan trailer);

 private:
  struct Part {
    Digest digest{};
    bool is_given = false;
  };
  DigestKind kind_;
  Sha256 stream_;
  std::vector<Part> parts_;  // of a tree: the chunks
};

}  // namespace fluvial
