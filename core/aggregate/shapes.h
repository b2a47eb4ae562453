// A model's averaged tensors as codecs know them: where each lies in the flat vector, and its dimensions.
#pragma once

#include <cstdint>
#include <vector>

#include "core/round/schema.h"
#include "kernels/codec.h"

namespace fluvial::aggregate {

// Immutable, and not copied: what it gives out views it.
class Shapes {
 public:
  Shapes(const round::Schema& schema, std::uint64_t chunk_values);
  Shapes(const Shapes&) = delete;
  Shapes& operator=(const Shapes&) = delete;

  kernels::VectorSchema schema() const { return {layout_, tensors_}; }
  const kernels::ChunkLayout& layout() const { return layout_; }  // of the model's vector

 private:
  kernels::ChunkLayout layout_;
  std::vector<std::vector<std::uint64_t>> dims_;
  std::vector<kernels::TensorShape> tensors_;
};

// How many values travel in each pass of a round; empty: there is one pass, the model's own values travel in it, and
// nothing is handed down beside the model.
// kInvalidArgument when nothing travels in a pass: the codec finds nothing in this model to do its work on.
Result<std::vector<std::uint64_t>> pass_values(const kernels::Codec& codec, const Shapes& shapes);

}  // namespace fluvial::aggregate
