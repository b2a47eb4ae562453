#include "core/aggregate/server_optimizer.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/base/format.h"
#include "kernels/optimizer.h"
#include "kernels/vector.h"

namespace fluvial::aggregate {
namespace {

using round::Optimizer;

// The smallest fp32 value that is not below tau^2.
float initial_variance(double tau) {
  const double square = tau * tau;
  const auto rounded = static_cast<float>(square);
  return static_cast<double>(rounded) >= square ? rounded
                                                : std::nextafter(rounded, std::numeric_limits<float>::infinity());
}

kernels::LambOptions lamb_options(const ServerOptimizer& optimizer, std::uint64_t round, bool scaled) {
  return {.beta1 = optimizer.beta1,
          .beta2 = optimizer.beta2,
          .epsilon = optimizer.tau,
          .weight_decay = scaled ? optimizer.weight_decay : 0.0,
          .step = round};
}

kernels::DelayedNesterovOptions delayed_options(const ServerOptimizer& optimizer, double lr, std::uint64_t round) {
  return {.lr = lr, .momentum = optimizer.momentum, .every = optimizer.every, .c = optimizer.c, .step = round};
}

bool is_adaptive(Optimizer kind) {
  return kind == Optimizer::kFedAdagrad || kind == Optimizer::kFedAdam || kind == Optimizer::kFedYogi;
}

// The chunk's part of vector `index` of the whole state; empty when the state has no such vector.
template <typename T>
std::span<T> state_chunk(const kernels::ChunkLayout& layout, std::span<T> state, std::size_t index,
                         std::size_t chunk_index) {
  const std::size_t count = static_cast<std::size_t>(layout.value_count);
  return state.size() < (index + 1) * count ? std::span<T>()
                                            : layout.of(state.subspan(index * count, count), chunk_index);
}

}  // namespace

std::size_t state_vectors(const ServerOptimizer& optimizer) {
  switch (optimizer.kind) {
    case Optimizer::kFedAvg:
    case Optimizer::kSignSgd:
    case Optimizer::kMean: return 0;
    case Optimizer::kFedAvgM:
    case Optimizer::kNesterov:
    case Optimizer::kLars: return 1;
    case Optimizer::kFedAdagrad:
    case Optimizer::kFedAdam:
    case Optimizer::kFedYogi:
    case Optimizer::kDelayedNesterov:
    case Optimizer::kLamb:
    case Optimizer::kOnebitAdam: return 2;
  }
  return 0;
}

std::vector<float> initial_state(const ServerOptimizer& optimizer, std::uint64_t value_count) {
  std::vector<float> state(state_vectors(optimizer) * static_cast<std::size_t>(value_count), 0.0F);
  if (is_adaptive(optimizer.kind)) {
    std::fill(state.begin() + static_cast<std::ptrdiff_t>(value_count), state.end(), initial_variance(optimizer.tau));
  }
  return state;
}

std::vector<Layer> layers_of(const round::Schema& schema, const ServerOptimizer& optimizer) {
  std::vector<Layer> layers;
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < schema.tensors().size(); ++i) {
    const round::Tensor& tensor = schema.tensors()[i];
    if (!round::is_averaged(tensor.dtype)) continue;
    const std::uint64_t count = schema.tensor_values(i);
    layers.push_back({.offset_values = offset,
                      .count = count,
                      .scaled = tensor.shape.size() >= 2,
                      .is_statistic = round::is_statistic(optimizer, tensor.name)});
    offset += count;
  }
  return layers;
}

ServerStep::ServerStep(const ServerOptimizer& optimizer, const kernels::ChunkLayout& layout, std::vector<Layer> layers,
                       std::uint64_t round, std::uint64_t total_weight, const kernels::CodecSpec& codec)
    : optimizer_(optimizer),
      layout_(layout),
      layers_(std::move(layers)),
      has_statistics_(std::ranges::any_of(layers_, &Layer::is_statistic)),
      round_(round),
      lr_(round::learning_rate(optimizer, round, total_weight)) {
  FLUVIAL_CHECK(round >= 1, "rounds are counted from 1");
  if (optimizer.kind == Optimizer::kOnebitAdam) {
    FLUVIAL_CHECK(codec.kind == kernels::CodecKind::kOnebitAdam, "both of 1-bit Adam, or neither");
    onebit_ = kernels::OnebitAdam::make({.beta1 = codec.beta1,
                                         .beta2 = optimizer.beta2,
                                         .tau = optimizer.tau,
                                         .freeze_rounds = codec.freeze_rounds,
                                         .block_values = codec.block_values})
                  .value();
  }
  if (!has_norms() && !has_statistics_) return;
  std::uint64_t end = 0;
  for (const Layer& layer : layers_) {
    FLUVIAL_CHECK(layer.offset_values == end, "layers in order and without gaps");
    end += layer.count;
  }
  FLUVIAL_CHECK(end == layout_.value_count, "layers that cover the model");
  if (has_norms()) pieces_.resize(layout_.chunk_count());
}

bool ServerStep::has_norms() const {
  return optimizer_.kind == Optimizer::kLars || optimizer_.kind == Optimizer::kLamb;
}

// The others' norms, and 1-bit Adam's blocks, are of chunks.
bool ServerStep::may_be_cut_anywhere(const ServerOptimizer& optimizer) {
  return optimizer.kind != Optimizer::kLars && optimizer.kind != Optimizer::kLamb &&
         optimizer.kind != Optimizer::kOnebitAdam;
}

std::size_t ServerStep::handed_bytes() const {
  return onebit_ && onebit_->hands_down(round_) ? onebit_->momentum(layout_).bytes() : 0;
}

std::vector<ServerStep::Piece> ServerStep::pieces_of(std::size_t chunk_index) const {
  const std::uint64_t first = layout_.first_value(chunk_index);
  const std::uint64_t end = first + layout_.size(chunk_index);
  std::vector<Piece> pieces;
  auto layer = std::ranges::upper_bound(layers_, first, {}, &Layer::offset_values);
  if (layer != layers_.begin()) --layer;
  for (; layer != layers_.end() && layer->offset_values < end; ++layer) {
    const std::uint64_t from = std::max(first, layer->offset_values);
    const std::uint64_t to = std::min(end, layer->offset_values + layer->count);
    if (from >= to) continue;  // a tensor without values
    pieces.push_back({.layer = static_cast<std::size_t>(layer - layers_.begin()),
                      .first = static_cast<std::size_t>(from - first),
                      .count = static_cast<std::size_t>(to - from)});
  }
  return pieces;
}

Status ServerStep::check(std::size_t chunk_index, std::size_t mean, std::size_t state, std::size_t model) const {
  const std::size_t wanted = state_vectors(optimizer_) * static_cast<std::size_t>(layout_.value_count);
  const bool in_range = chunk_index < layout_.chunk_count();
  const std::size_t size = in_range ? layout_.size(chunk_index) : 0;
  if (in_range && mean == size && model == size && state == wanted) return {};
  return Error{Code::kInvalidArgument,
               format_text("chunk {} with {} means, {} values of the model and {} of state, expected {}, {} and {}",
                           chunk_index, mean, model, state, size, size, wanted)};
}

void ServerStep::measure_piece(Piece& piece, std::span<const float> mean, std::span<const float> moment,
                               std::span<const float> variance, std::span<const float> model) const {
  kernels::SquareLanes of_model{}, of_step{};
  kernels::add_squares(model, of_model);
  if (optimizer_.kind == Optimizer::kLars) {
    kernels::add_squares(mean, of_step);
  } else {
    kernels::add_lamb_squares(lamb_options(optimizer_, round_, true), mean, moment, variance, model, of_step);
  }
  piece.model_squares = kernels::sum_of(of_model);
  piece.step_squares = kernels::sum_of(of_step);
}

Status ServerStep::measure(std::size_t chunk_index, std::span<const float> mean, std::span<const float> state,
                           std::span<const float> model) {
  FLUVIAL_TRY(check(chunk_index, mean.size(), state.size(), model.size()));
  FLUVIAL_CHECK(has_norms() && rates_.empty(), "norms are measured before they are closed");
  const std::span<const float> moment = state_chunk(layout_, state, 0, chunk_index);
  const std::span<const float> variance = state_chunk(layout_, state, 1, chunk_index);
  std::vector<Piece> pieces = pieces_of(chunk_index);
  for (Piece& piece : pieces) {
    if (!layers_[piece.layer].scaled || layers_[piece.layer].is_statistic) continue;
    const auto part = [&](std::span<const float> of) { return of.empty() ? of : of.subspan(piece.first, piece.count); };
    measure_piece(piece, part(mean), part(moment), part(variance), part(model));
  }
  pieces_[chunk_index] = std::move(pieces);
  return {};
}

double ServerStep::rate_of(double model_squares, double step_squares) const {
  const double model = std::sqrt(model_squares);
  const double decay = optimizer_.kind == Optimizer::kLars ? optimizer_.weight_decay * model : 0.0;
  const double step = std::sqrt(step_squares) + decay;
  return model > 0 && step > 0 ? lr_ * optimizer_.trust * model / step : lr_;
}

void ServerStep::close() {
  std::vector<Piece> sums(layers_.size());
  for (const std::vector<Piece>& chunk : pieces_) {
    for (const Piece& piece : chunk) {
      sums[piece.layer].model_squares += piece.model_squares;
      sums[piece.layer].step_squares += piece.step_squares;
    }
  }
  rates_.resize(layers_.size());
  for (std::size_t i = 0; i < layers_.size(); ++i) {
    rates_[i] = layers_[i].scaled ? rate_of(sums[i].model_squares, sums[i].step_squares) : lr_;
  }
}

ServerStep::Part ServerStep::Part::of(const Piece& piece) const {
  const auto within = [&](auto values) { return values.empty() ? values : values.subspan(piece.first, piece.count); };
  return {within(mean), within(moment), within(variance), within(model)};
}

// Of coordinates that are independent, given the rate.
void ServerStep::step(const Part& part, double rate, bool scaled) const {
  const auto& [mean, moment, variance, model] = part;
  const auto adaptive = [&](kernels::AdaptiveRule rule) {
    kernels::apply_adaptive(rule,
                            {.lr = rate, .beta1 = optimizer_.beta1, .beta2 = optimizer_.beta2, .tau = optimizer_.tau},
                            mean, moment, variance, model);
  };
  switch (optimizer_.kind) {
    case Optimizer::kFedAvg: return kernels::apply_sgd(rate, mean, model);
    case Optimizer::kFedAvgM: return kernels::apply_momentum(rate, optimizer_.momentum, mean, moment, model);
    case Optimizer::kFedAdagrad: return adaptive(kernels::AdaptiveRule::kAdagrad);
    case Optimizer::kFedAdam: return adaptive(kernels::AdaptiveRule::kAdam);
    case Optimizer::kFedYogi: return adaptive(kernels::AdaptiveRule::kYogi);
    case Optimizer::kNesterov: return kernels::apply_nesterov(rate, optimizer_.momentum, mean, moment, model);
    case Optimizer::kDelayedNesterov:
      return kernels::apply_delayed_nesterov(delayed_options(optimizer_, rate, round_), mean, moment, variance, model);
    case Optimizer::kSignSgd: return kernels::apply_signsgd(rate, mean, model);
    case Optimizer::kMean: std::ranges::copy(mean, model.begin()); return;
    case Optimizer::kLars:
      return kernels::apply_lars(optimizer_.momentum, rate, scaled ? optimizer_.weight_decay : 0.0, mean, moment,
                                 model);
    case Optimizer::kLamb:
      return kernels::apply_lamb(lamb_options(optimizer_, round_, scaled), rate, mean, moment, variance, model);
    case Optimizer::kOnebitAdam: break;  // is of chunks
  }
}

Status ServerStep::apply(std::size_t chunk_index, std::span<const float> mean, std::span<float> state,
                         std::span<float> model, MutableByteSpan handed) const {
  FLUVIAL_TRY(check(chunk_index, mean.size(), state.size(), model.size()));
  FLUVIAL_CHECK(handed.size() == handed_bytes(), "room for what is handed down");
  FLUVIAL_CHECK(!has_norms() || rates_.size() == layers_.size(), "norms are closed before the step");
  const Part chunk{mean, state_chunk(layout_, state, 0, chunk_index), state_chunk(layout_, state, 1, chunk_index),
                   model};
  if (onebit_) {
    const MutableByteSpan momentum = handed.empty() ? handed : onebit_->momentum(layout_).chunk(handed, chunk_index);
    return onebit_->step(round_, lr_, mean, chunk.moment, chunk.variance, model, momentum,
                         layout_.first_value(chunk_index));
  }
  if (!has_norms() && !has_statistics_) {
    step(chunk, lr_, true);
    return {};
  }
  for (const Piece& piece : pieces_of(chunk_index)) {
    const Layer& layer = layers_[piece.layer];
    if (layer.is_statistic) {
      const Part part = chunk.of(piece);
      kernels::apply_sgd(1.0, part.mean, part.model);  // base minus the mean of base minus local
    } else {
      step(chunk.of(piece), has_norms() ? rates_[piece.layer] : lr_, layer.scaled);
    }
  }
  return {};
}

}  // namespace fluvial::aggregate
