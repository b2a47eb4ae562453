// Encodes a vector chunk by chunk, side by side, and writes the chunks in order: while one batch is written and hashed,
// the next is encoded. A step at a time, so that what is encoded can be used before the rest. Inside this room only.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/parallel.h"
#include "core/digest/submission_digest.h"
#include "core/store/site_store.h"
#include "edge/update/fit.h"
#include "kernels/codec.h"
#include "kernels/stream_key.h"

namespace fluvial::edge {

// Blocking; one thread, but for the pieces that it hands to `parallel`.
class Encoder {
 public:
  struct Vector {
    kernels::ChunkLayout layout;
    std::span<const float> p;
    std::span<const float> sent;  // of p: p itself, or p as it is fitted
    store::Fit fit = {};
    MutableByteSpan state = {};  // of a codec that keeps one, as fold() left it
  };
  struct Chunks {
    // Makes a chunk of p just before it is encoded, and says whether encoding still makes sense. Any thread; each chunk
    // once. Empty: p is there.
    std::function<Result<bool>(std::size_t chunk)> make = {};
    // Whether a chunk is measured as the parent measures it. After make(); any thread. Empty: none.
    std::function<bool(std::size_t chunk)> measures = {};
    // Gets each encoded chunk, in order, with the measure of all chunks so far, before it is written. On the thread of
    // step(); empty: nobody.
    std::function<void(const SharedBytes& chunk, const Measure& so_far)> encoded = {};
    DigestKind digest = DigestKind::kStream;  // of the encoded chunks
  };

  // Whether the codec encodes a chunk without having seen the others.
  static bool takes_chunks_as_they_come(const kernels::Codec& codec, kernels::ChunkLayout layout);

  // `codec` and what `vector` views outlive it.
  static Result<std::unique_ptr<Encoder>> make(const kernels::Codec& codec, const kernels::StreamKey& key,
                                               Vector vector, Chunks chunks, Parallel& parallel);

  // Encodes the next batch, and writes the one before it. False: all is encoded and written. Each time with the same
  // writer, or without one: then it only encodes and measures.
  Result<bool> step(store::PendingWriter* writer, Parallel& parallel);
  Status run(store::PendingWriter* writer, Parallel& parallel);  // all steps

  bool given_up() const { return given_up_; }          // make() said so; every chunk was made
  const Measure& decoded() const { return decoded_; }  // of the chunks that were measured
  double left_norm() const;                            // of what a counted submission leaves
  SubmissionDigest& digest() { return digest_; }       // of the encoded chunks

 private:
  struct Slot {
    SharedBytes bytes;
    kernels::ScreenReport decoded;
    double left = 0;  // the sum of squares of what it leaves
  };
  Encoder(const kernels::Codec& codec, Buffer workspace, const kernels::EncodePlan& plan, Vector vector, Chunks chunks);
  // A batch is a whole number of slots from the first or from the middle one: it never meets the one before it.
  Slot& slot(std::size_t chunk) { return slots_[chunk % slots_.size()]; }
  Status encode(std::size_t chunk);
  Result<std::size_t> encode(std::size_t chunk, std::span<const float> values, MutableByteSpan out, double& left);
  void take_in(std::size_t first, std::size_t count);
  Status write(store::PendingWriter* writer, std::size_t first, std::size_t count);

  const kernels::Codec& codec_;
  Buffer workspace_;  // which the plan may point into
  kernels::EncodePlan plan_;
  Vector vector_;
  Chunks chunks_;
  std::vector<Slot> slots_;
  std::size_t encoded_ = 0;  // chunks
  std::size_t written_ = 0;  // those before the last batch
  std::atomic<bool> given_up_ = false;
  Measure decoded_;
  double left_ = 0;
  SubmissionDigest digest_;
};

}  // namespace fluvial::edge
