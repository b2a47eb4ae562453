// The tree digest of a model: that of its bytes in parts of 4 MiB, with an empty trailer (submission_digest.h;
// docs/formats/frame.md#digests). Unlike the SHA-256 that names a committed model it is made side by side, and while
// the bytes come.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "core/base/parallel.h"
#include "core/digest/submission_digest.h"

namespace fluvial {

inline constexpr std::uint64_t kModelPartBytes = 4 << 20;

class ModelDigest {
 public:
  explicit ModelDigest(std::uint64_t model_bytes);

  // Thread safe. So many bytes from `offset` on do not change any more, and no other call says so of them. Of `model`,
  // all of the model's memory, it reads the parts that are whole by this. True: all of the model is there, once.
  bool ready(ByteSpan model, std::uint64_t offset, std::uint64_t size);
  Digest finish() { return digest_.finish({}); }  // once, after that

 private:
  std::uint64_t part_bytes(std::uint64_t part) const;

  std::uint64_t model_bytes_;
  SubmissionDigest digest_;
  std::vector<std::atomic<std::uint64_t>> missing_;  // bytes of each part
  std::atomic<std::uint64_t> missing_parts_;
};

// Of a model that is all there. Blocking. An error is of `parallel`.
Result<Digest> model_tree_digest(Parallel& parallel, ByteSpan model);

}  // namespace fluvial
