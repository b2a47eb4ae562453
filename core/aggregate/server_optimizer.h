// Server optimizers: from the mean pseudo-gradient (base model minus local model, so it is subtracted) to the next
// model. Pure and chunk-wise; the caller owns the state and commits it together with the model. core/round/optimizer.h
// lists the optimizers and their options in a plan; formulas and roundings are in kernels/vector.h (fedavg, fedavgm),
// kernels/onebit_adam.h (onebit_adam) and kernels/optimizer.h (the others): the same bits on every machine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/round/optimizer.h"
#include "core/round/schema.h"
#include "kernels/chunks.h"
#include "kernels/codec.h"
#include "kernels/onebit_adam.h"

namespace fluvial::aggregate {

using round::ServerOptimizer;

// How many fp32 vectors of the model's length the state holds: the moment (onebit_adam's residual, once its variance is
// frozen), then the variance, or delayed_nesterov's buffer.
std::size_t state_vectors(const ServerOptimizer& optimizer);
// The state before the first round, vector after vector: zeros, but a variance of tau^2 (rounded up) for fedadagrad,
// fedadam and fedyogi, which divide by its root without a correction.
std::vector<float> initial_state(const ServerOptimizer& optimizer, std::uint64_t value_count);

// One tensor of the flat vector. Where an optimizer's rate is a layer's own, only those with two dimensions or more are
// scaled; biases and norms (one dimension, or none) take the plain rate and no weight decay.
struct Layer {
  std::uint64_t offset_values = 0;
  std::uint64_t count = 0;
  bool scaled = true;
  bool is_statistic = false;  // averaged and not stepped: the mean of the sites' own
};
std::vector<Layer> layers_of(const round::Schema& schema, const ServerOptimizer& optimizer);

// One round's step over the whole model: where has_norms(), measure() for each chunk and then close(); apply() for each
// chunk. Different chunks may be given from several threads; close() stands alone. Norms are added up in the order of
// the chunks, so the model that comes out does not depend on the threads.
class ServerStep {
 public:
  // Rounds count from 1; layers in order, together the whole model (none: where no rate is a layer's own, and none is a
  // statistic). `codec` is the
  // plan's: onebit_adam says there what sites and root must both know.
  ServerStep(const ServerOptimizer& optimizer, const kernels::ChunkLayout& layout, std::vector<Layer> layers,
             std::uint64_t round, std::uint64_t total_weight, const kernels::CodecSpec& codec = {});

  bool has_norms() const;
  // Whether coordinates are independent: steps of the same model, cut otherwise, give the same bits.
  static bool may_be_cut_anywhere(const ServerOptimizer& optimizer);
  // Of what the step hands down to the sites of the next round, beside the model; 0: nothing.
  std::size_t handed_bytes() const;

  // `state` and `handed`, of handed_bytes(), are whole; mean and model are the chunk's. kInvalidArgument when the
  // lengths do not fit; nothing is changed then.
  Status measure(std::size_t chunk_index, std::span<const float> mean, std::span<const float> state,
                 std::span<const float> model);
  void close();
  Status apply(std::size_t chunk_index, std::span<const float> mean, std::span<float> state, std::span<float> model,
               MutableByteSpan handed = {}) const;

 private:
  // What of a layer lies in a chunk.
  struct Piece {
    std::size_t layer = 0;
    std::size_t first = 0;  // in the chunk
    std::size_t count = 0;
    double model_squares = 0;
    double step_squares = 0;
  };
  // What a step goes through, at equal places; moment and variance are empty where the optimizer has none.
  struct Part {
    std::span<const float> mean;
    std::span<float> moment;
    std::span<float> variance;
    std::span<float> model;

    Part of(const Piece& piece) const;
  };
  std::vector<Piece> pieces_of(std::size_t chunk_index) const;
  Status check(std::size_t chunk_index, std::size_t mean, std::size_t state, std::size_t model) const;
  void measure_piece(Piece& piece, std::span<const float> mean, std::span<const float> moment,
                     std::span<const float> variance, std::span<const float> model) const;
  double rate_of(double model_squares, double step_squares) const;
  void step(const Part& part, double rate, bool scaled) const;

  ServerOptimizer optimizer_;
  kernels::ChunkLayout layout_;
  std::vector<Layer> layers_;
  bool has_statistics_;
  std::uint64_t round_;
  double lr_;
  std::vector<std::vector<Piece>> pieces_;  // a chunk each, where has_norms()
  std::vector<double> rates_;               // a layer each, once closed
  std::optional<kernels::OnebitAdam> onebit_;
};

}  // namespace fluvial::aggregate
