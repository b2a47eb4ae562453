// 1-bit Adam (Tang, Gan, Awan, Rajbhandari, Li, Lian, Liu, Zhang, He, "1-bit Adam: Communication Efficient Large-Scale
// Training with Adam's Convergence Speed", ICML 2021, algorithm 1): Adam in fp32 for `freeze_rounds` rounds, then with
// a variance that stays as it is, so that only momentum travels: a bit a value in both directions, with error feedback
// on both sides.
//
//   until then    site: sends its update g_i                       root: m = beta1 m + (1 - beta1) g
//                                                                        v = beta2 v + (1 - beta2) g^2
//                                                                        after the last of these rounds: M = C(m),
//                                                                        residual = m - M
//   afterwards    site: s_i = g_i + residual + k M                 root: q = (1 - beta1) s + residual
//                       sends C(s_i), residual = s_i - C(s_i)            M = C(q), residual = q - M, m = M
//   both                                                           root: model -= lr m / (sqrt(v) + tau)
//
// g and s are weighted means, k = beta1 / (1 - beta1), C the codec "sign": +-(mean magnitude of the block), where
// public versions take the root mean square of a whole tensor: the mean is the scale that leaves the least error. M
// goes down beside the model. The paper's sites send (1 - beta1) s_i: the same, as C(a x) = a C(x) for a > 0; so a
// residual is in the units of an update whoever reads it. Without bias correction, as in the paper. Only the step uses
// the learning rate, so residuals stay right while it changes.
//
// Here: the root's part. The sites' is the codec "onebit_adam" (codecs/onebit_adam.cc), docs/formats/onebit-adam.md
// both.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "kernels/codec.h"

namespace fluvial::kernels {
namespace cpu {
struct OnebitAdamLoops;
}

// Rounds count from 1.
constexpr bool is_warm_up(std::uint64_t round, std::uint32_t freeze_rounds) { return round <= freeze_rounds; }
// Whether a momentum goes down at the end of a round.
constexpr bool hands_momentum_down(std::uint64_t round, std::uint32_t freeze_rounds) { return round >= freeze_rounds; }

struct OnebitAdamOptions {
  double beta1 = 0.9;                 // in [0, 1)
  double beta2 = 0.999;               // in [0, 1)
  double tau = 1e-8;                  // beside the square root: 1e-12 to 1e12; rounded to fp32
  std::uint32_t freeze_rounds = 100;  // rounds in fp32; the paper takes 15 to 25 % of all. 0: the variance is there
  std::uint32_t block_values = 256;   // values that share a scale, 128 to 2048
};

// The momentum as it goes down: chunk after chunk of the model, each as "sign" encodes it and padded with zeros to a
// multiple of 4 bytes.
class MomentumLayout {
 public:
  MomentumLayout(const ChunkLayout& layout, const Codec& sign) : layout_(layout), sign_(&sign) {}  // which outlives it

  std::size_t bytes() const;                      // of all chunks
  std::size_t encoded(std::size_t index) const {  // of a chunk, without padding
    return sign_->encoded_bytes_max(layout_.size(index));
  }
  template <typename Span>  // of bytes()
  Span chunk(Span all, std::size_t index) const {
    return all.subspan(index * padded(static_cast<std::size_t>(layout_.chunk_values)), padded(layout_.size(index)));
  }

 private:
  std::size_t padded(std::size_t value_count) const { return (sign_->encoded_bytes_max(value_count) + 3) / 4 * 4; }

  ChunkLayout layout_;
  const Codec* sign_;
};

// Immutable and thread safe. Deterministic: the same bits on every CPU target.
class OnebitAdam {
 public:
  // The greatest magnitude of a mean: moments then stay finite.
  static constexpr float kMeanMax = 0x1p62F;
  // The greatest magnitude of a residual: with such a mean the sum is finite.
  static constexpr float kResidualMax = 0x1p126F;

  // kInvalidArgument names the option that is out of range. `target` is for tests.
  static Result<OnebitAdam> make(const OnebitAdamOptions& options, cpu::Target target = cpu::best_target());

  bool hands_down(std::uint64_t round) const { return hands_momentum_down(round, options_.freeze_rounds); }
  MomentumLayout momentum(const ChunkLayout& layout) const { return {layout, *sign_}; }

  // What the root does at the end of a round to a chunk of the model, whose first value is first_value of it; different
  // chunks from several threads. `moment` is m until the freeze, and the residual from then on: zeros before the first
  // round, as `variance`. `handed` is the chunk of a MomentumLayout where hands_down(), else it may be empty. A
  // coordinate whose variance is 0 (an update that was 0, or below 2^-75, in all of the warm-up) does not move.
  // kInvalidArgument names the first coordinate whose mean is not finite or beyond kMeanMax, or whose residual is not,
  // or beyond kResidualMax: nothing was changed.
  Status step(std::uint64_t round, double lr, std::span<const float> mean, std::span<float> moment,
              std::span<float> variance, std::span<float> model, MutableByteSpan handed,
              std::uint64_t first_value = 0) const;

 private:
  OnebitAdam(const OnebitAdamOptions& options, const cpu::OnebitAdamLoops& loops) : options_(options), loops_(&loops) {}
  // `moment` as M, and encoded; it keeps what that leaves out. `sent`: M.
  Status compress(std::span<float> moment, std::span<float> sent, MutableByteSpan handed) const;

  OnebitAdamOptions options_;
  const cpu::OnebitAdamLoops* loops_;
  std::unique_ptr<Codec> sign_;
};

}  // namespace fluvial::kernels
