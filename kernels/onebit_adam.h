// 1-bit Adam (Tang, Gan, Awan, Rajbhandari, Li, Lian, Liu, Zhang, He, "1-bit Adam: Communication Efficient Large-Scale
// Training with Adam's Convergence Speed", ICML 2021, algorithm 1): Adam in fp32 until round `freeze_round`, then with
// a variance that stays as it is, so that only momentum travels: a bit a value, with error feedback.
//
//   warm-up       site: sends its gradient g_i                        server: m = beta1 m + (1 - beta1) g
//                                                                             v = beta2 v + (1 - beta2) g^2
//   compression   site: p = beta1 m + (1 - beta1) g_i + residual      server: m = mean of what the sites sent; or
//                       sends C(p), residual = p - C(p)                       two-sided: q = that + residual, m = C(q),
//                                                                             residual = q - C(q)
//   both                                                              server: model -= lr m / (sqrt(v) + eps)
//
// g is the weighted mean of g_i, C the codec "sign": +-(mean magnitude of the block), where public versions take the
// root mean square of a whole tensor: the mean is the scale that leaves the least error. Without bias correction, as in
// the paper. Only the step uses the learning rate, so residuals stay right while it changes.
//
// Site:    fold(...) makes the vector of this round, which is encoded with upward(round), like any other update. Once
//          the contribution counted, what the codec leaves out (encode_residual_chunk) is the residual. A site that was
//          not counted keeps the whole vector as its residual; one whose gradient was refused keeps its old residual.
//          Then downward(round) decodes the server's message into the site's momentum.
//
// Server:  sums with decode_accumulate_chunk (fixed.h), and gives mean_of_sums to step(...). Its momentum goes down as
//          downward(round) encodes it: fp32, or the bytes from step(). A node that has the variance as well needs no
//          model: apply(...) moves its copy to the same bits.
//
// Everything but the round is a vector that the caller owns, zero-filled before the first round, and may be worked on
// chunk by chunk, in any order; a chunk begins where a chunk of the codec begins. State is durable by save() and
// load(): residuals are part of it. Deterministic: the same bits on every CPU target. Immutable and thread safe;
// vectors of one call have equal lengths (checked).
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

struct OnebitAdamOptions {
  double beta1 = 0.9;                // in [0, 1)
  double beta2 = 0.999;              // in [0, 1)
  double eps = 1e-8;                 // 1e-12 to 1; rounded to fp32
  double variance_floor = 0;         // a variance above 0 and below this is frozen at this; 0 to 1e30, rounded to fp32
  std::uint64_t freeze_round = 100;  // rounds of warm-up, at least 1; the paper takes 15 to 25 % of all rounds
  std::uint32_t block_values = 256;  // values that share a scale, 128 to 2048
  bool two_sided = false;            // the momentum that goes down is compressed, too
};

struct OnebitAdamSite {
  std::uint64_t round = 0;    // rounds finished; the caller counts
  std::span<float> momentum;  // as it last came down
  std::span<float> residual;
};

struct OnebitAdamServer {
  std::uint64_t round = 0;
  std::span<float> momentum;
  std::span<float> variance;
  std::span<float> residual;  // two-sided; otherwise empty
};

class OnebitAdam {
 public:
  // The greatest magnitude of a mean: moments then stay finite.
  static constexpr float kMeanMax = 0x1p62F;
  // The greatest magnitude of the server's residual: with such a mean the sum is finite.
  static constexpr float kResidualMax = 0x1p126F;

  // kInvalidArgument names the option that is out of range. `target` is for tests.
  static Result<OnebitAdam> make(const OnebitAdamOptions& options, cpu::Target target = cpu::best_target());

  const OnebitAdamOptions& options() const { return options_; }
  bool warming_up(std::uint64_t round) const { return round < options_.freeze_round; }
  // The codec of a round's vector: fp32 while warming up, then sign; and the codec of the momentum on its way down.
  const Codec& upward(std::uint64_t round) const { return warming_up(round) ? *fp32_ : *sign_; }
  const Codec& downward(std::uint64_t round) const {
    return warming_up(round) || !options_.two_sided ? *fp32_ : *sign_;
  }

  // out = gradient + 0 while warming up; then ((beta1 * momentum + (1 - beta1) * gradient) + residual) + 0: the moment
  // in fp64 and rounded to fp32, then each sum. `out` may be any of the others.
  void fold(std::uint64_t round, std::span<const float> gradient, std::span<const float> momentum,
            std::span<const float> residual, std::span<float> out) const;

  // The server's part of round `state.round`, for a chunk: `state` and `model` are the chunk's. Compressing both ways,
  // `out` receives the encoded momentum (downward().encoded_bytes_max() bytes at most), and its size is returned;
  // otherwise 0. A coordinate whose variance is 0 (a gradient that was 0, or below 2^-75, in all of warm-up) does not
  // move. kInvalidArgument names the first coordinate, counted from first_value, whose mean is not finite or beyond
  // kMeanMax (or whose residual is, or beyond kResidualMax): nothing was changed.
  Result<std::size_t> step(const OnebitAdamServer& state, double lr, std::span<const float> mean,
                           std::span<float> model, MutableByteSpan out, std::uint64_t first_value = 0) const;

  // model -= lr * momentum / (sqrt(variance) + eps): the ratio in fp32, the rest in fp64, rounded once.
  void apply(double lr, std::span<const float> momentum, std::span<const float> variance, std::span<float> model) const;

 private:
  OnebitAdam(const OnebitAdamOptions& options, const cpu::OnebitAdamLoops& loops) : options_(options), loops_(&loops) {}
  Result<std::size_t> step_two_sided(const OnebitAdamServer& state, double lr, std::span<const float> mean,
                                     std::span<float> model, MutableByteSpan out) const;

  OnebitAdamOptions options_;
  const cpu::OnebitAdamLoops* loops_;
  std::unique_ptr<Codec> fp32_;
  std::unique_ptr<Codec> sign_;
};

// A state as bytes (docs/formats/onebit-adam.md), whole: save() fills saved_bytes().
std::size_t saved_bytes(const OnebitAdamSite& state);
std::size_t saved_bytes(const OnebitAdamServer& state);
void save(const OnebitAdamSite& state, MutableByteSpan out);
void save(const OnebitAdamServer& state, MutableByteSpan out);
// Fills the round and the vectors, whose lengths are set before. kDataLoss, with the state unchanged, when the bytes
// are no such state of such lengths, or hold a value that is not finite or a variance below 0.
Status load(ByteSpan bytes, OnebitAdamSite* state);
Status load(ByteSpan bytes, OnebitAdamServer* state);

}  // namespace fluvial::kernels
