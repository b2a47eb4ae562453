// Robust rules over n updates: they bound what a few updates can do to the result. docs/design/robust.md says which
// rule may stand where in a tree (none works on updates that are already summed).
//
// Shapes: `updates` are 1 to kUpdatesMax spans of one length (checked), a chunk or the whole; `out` as long, not one of
// them unless it says so. Coordinate-wise rules take any cut; the others first gather distances over all chunks, in
// order, then decide, then combine chunk by chunk.
// Values: finite, as updates were screened. kDataLoss names an update that is not, before anything of that piece of 256
// coordinates is written.
// Weights: a rule that counts updates has no argument for weights, and says so. A rule that takes weights has its bound
// in them: attackers with less than half of the *weight*. Give no weights when sites choose their own.
// Determinism: bitwise on every target. Coordinate-wise rules do not depend on the order of the updates, the others
// only in their last bits; distances depend on the cuts in their last bits: cut as the plan says. Memory: the caller's,
// with a workspace of the stated size. Nothing is allocated. Thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "kernels/cpu/target.h"

namespace fluvial::kernels {

inline constexpr std::size_t kUpdatesMax = 1024;
using Updates = std::span<const std::span<const float>>;

// ---- one coordinate at a time --------------------------------------------------------------------------------------

// For the three below; the `weighted` ones ask for more. The workspace is aligned to 8 bytes (checked).
std::size_t robust_workspace_bytes(std::size_t update_count, bool weighted);

// The middle value of the sorted n; for even n fp32((a + b) / 2) of the two in the middle, the sum in fp64. -0 sorts
// below +0. Holds against fewer than n / 2 attackers (Yin et al. 2018). `out` may be one of the updates.
Status coordinate_median(Updates updates, MutableByteSpan workspace, std::span<float> out,
                         cpu::Target target = cpu::best_target());
// With weights 1 to 2^29 - 1: the value at which the sorted weights reach half of their sum, and the mean of it and the
// next one as above if they reach exactly half there. Equal weights give coordinate_median(). Three to
// six times the cost of the rules without weights.
Status weighted_median(Updates updates, std::span<const std::uint32_t> weights, MutableByteSpan workspace,
                       std::span<float> out, cpu::Target target = cpu::best_target());

// fp32(sum of the sorted values but the `drop` least and greatest / (n - 2 drop)): from the least up in fp64, rounded
// once. n > 2 drop (kInvalidArgument). Holds against up to `drop` attackers (Yin et al. 2018).
Status trimmed_mean(Updates updates, std::size_t drop, MutableByteSpan workspace, std::span<float> out,
                    cpu::Target target = cpu::best_target());
// The same with weights: each side loses the weight `drop`, of which a value at the border may lose a part;
// sum(weights) > 2 drop. Weights of 1 give trimmed_mean().
Status weighted_trimmed_mean(Updates updates, std::span<const std::uint32_t> weights, std::uint64_t drop,
                             MutableByteSpan workspace, std::span<float> out, cpu::Target target = cpu::best_target());

// ---- distances -----------------------------------------------------------------------------------------------------

// The squared 2-norm distances of all pairs i < j: pair_index(i, j) of pair_count(n).
constexpr std::size_t pair_count(std::size_t n) { return n * (n - 1) / 2; }
constexpr std::size_t pair_index(std::size_t i, std::size_t j) { return j * (j - 1) / 2 + i; }

inline constexpr std::size_t kDistancePiece = 512;  // coordinates

// distances += those of this chunk. fp64: 16 lanes as screen() has, over pieces of coordinates after each other.
// kDataLoss names the pair whose distance is not finite; the distances are then unusable. They start at zero.
Status add_distances(Updates updates, std::span<double> distances, cpu::Target target = cpu::best_target());

// Krum (Blanchard et al. 2017): an update's score is the sum of its n - f - 2 least squared distances to others;
// n >= 2f + 3. scores and workspace hold n values. No weights: it counts updates.
Status krum_scores(std::span<const double> distances, std::size_t n, std::size_t f, std::span<double> workspace,
                   std::span<double> scores);
// The m updates with the least scores, as increasing indices into `chosen` (m = chosen.size(), 1 to n - f; m = 1 is
// Krum); ties go to the lower index. Their mean is multi-Krum: reduce_mean(), or weighted_mean() among the chosen.
Status multi_krum(std::span<const double> distances, std::size_t n, std::size_t f, std::span<double> workspace,
                  std::span<std::size_t> chosen);
constexpr std::size_t multi_krum_workspace(std::size_t n) { return 2 * n; }

// Bulyan (El Mhamdi et al. 2018), n >= 4f + 3: n - 2f updates are chosen, one by one by Krum among those that remain
// (of r that remain, the sum of the max(1, r - f - 2) least distances among them), as increasing indices.
Status bulyan_select(std::span<const double> distances, std::size_t n, std::size_t f, std::span<double> workspace,
                     std::span<std::size_t> chosen);
constexpr std::size_t bulyan_workspace(std::size_t n) { return 2 * n; }
// Its second half, a coordinate at a time, of the chosen t = n - 2f updates: the mean of the t - 2f values nearest
// their median (a run of the sorted values; of two equally near the lesser), from the least up in fp64, rounded once.
Status bulyan_combine(Updates chosen, std::size_t f, MutableByteSpan workspace, std::span<float> out,
                      cpu::Target target = cpu::best_target());

// ---- iterated means ------------------------------------------------------------------------------------------------

// A center is a mean of the updates with coefficients that add up to 1, so that only those are kept between passes.
//
// distances[k] += |x_k - center|^2 over this chunk, the center in fp64: updates in order, lanes and pieces as above.
Status add_center_distances(Updates updates, std::span<const double> coefficients, std::span<double> distances,
                            cpu::Target target = cpu::best_target());
// out = fp32(sum of coefficients[k] * x_k), in order in fp64.
Status combine(Updates updates, std::span<const double> coefficients, std::span<float> out,
               cpu::Target target = cpu::best_target());

// Geometric median by the smoothed Weiszfeld iteration (RFA; Pillutla, Kakade, Harchaoui 2022, Algorithm 2): from the
// mean, coefficients alpha_k / max(nu, d_k), normalised, where d_k = |x_k - center|. It lowers the smoothed objective
// sum(alpha_k * g(d_k)) / sum(alpha), where g(d) is d, below nu (d^2 / nu + nu) / 2. It ends when the center moves by
// no more than tolerance times the harmonic mean of the d_k: the objective itself may be all attackers', and hides that
// the center is still on its way. alpha are the weights (empty: all 1). Holds against attackers with less than half of
// the weight.
struct WeiszfeldOptions {
  std::size_t iterations_max = 100;
  double nu = 1e-6;  // > 0, in units of the updates' norms
  double tolerance = 1e-6;
};
struct WeiszfeldReport {
  std::size_t iterations = 0;
  double objective = 0;
  bool converged = false;
};
// One step, for callers that gather distances over chunks themselves: takes the squared distances to the center with
// the present coefficients, and gives the next coefficients.
struct WeiszfeldStep {
  double objective = 0;  // at the present center
  double move = 0;       // bounds how far the next center is from the present one, in harmonic means of the distances
};
WeiszfeldStep weiszfeld_step(std::span<const double> squared_distances, std::span<const std::uint32_t> weights,
                             double nu, std::span<double> coefficients);
// All of it over whole vectors in memory: coefficients (n, for combine()) and a report. distances holds n values.
Result<WeiszfeldReport> geometric_median(Updates updates, std::span<const std::uint32_t> weights,
                                         const WeiszfeldOptions& options, std::span<double> distances,
                                         std::span<double> coefficients, cpu::Target target = cpu::best_target());

// Centered clipping (Karimireddy, He, Jaggi 2021): v += mean((x_k - v) * min(1, tau / |x_k - v|)), `iterations` times.
// The last of `updates` is the v to start from (last round's result, or zeros), which counts in no mean. No weights.
Status centered_clipping(Updates updates, double tau, std::size_t iterations, std::span<double> distances,
                         std::span<double> coefficients, cpu::Target target = cpu::best_target());

}  // namespace fluvial::kernels
