// What a plan says of the server optimizer: its kind and its numbers. core/aggregate carries it out.
//
//   fedavg      model - lr * D                                     (McMahan et al. 2017; lr 1 averages)
//   fedavgm     with momentum                                      (Hsu, Qi, Brown 2019)
//   fedadagrad, fedadam, fedyogi                                   (Reddi et al. 2021, Algorithm 2)
//   nesterov    the outer optimizer of DiLoCo                      (Douillard et al. 2023)
//   delayed_nesterov  the same, the momentum stepping once in N commits of few contributions  (Liu et al. 2024)
//   lars, lamb  with a rate for each tensor                        (You et al. 2017; You et al. 2020)
//   signsgd     the sign of D; of votes (codec sign:mode=vote) their majority          (Bernstein et al. 2018, 2019)
//   onebit_adam Adam without bias correction, whose variance stays as it is after the rounds that codec onebit_adam
//               names (it names beta1, too, and the two go together)                              (Tang et al. 2021)
//   mean        D itself: a mean over the sites of whatever they hand over as their updates
//
// D is the mean pseudo-gradient, base minus local, so that it is subtracted.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fluvial::round {

enum class Optimizer : std::uint8_t {
  kFedAvg,
  kFedAvgM,
  kFedAdagrad,
  kFedAdam,
  kFedYogi,
  kNesterov,
  kDelayedNesterov,
  kLars,
  kLamb,
  kMean,
  kSignSgd,
  kOnebitAdam,
};

std::string_view optimizer_name(Optimizer optimizer);  // "fedavg", "fedavgm", ...: in plans, on the wire, in journals

// The running statistics of batch norm as PyTorch, Flax and Keras name them.
inline constexpr std::string_view kStatistics = "*running_mean,*running_var,*moving_mean,*moving_variance,batch_stats*";
inline constexpr std::string_view kNoStatistics = "none";

struct ServerOptimizer {
  Optimizer kind = Optimizer::kFedAvg;
  double lr = 1.0;
  double momentum = 0.9;            // fedavgm, nesterov, delayed_nesterov, lars: in [0, 1)
  double beta1 = 0.9;               // the adaptive ones and lamb: in [0, 1)
  double beta2 = 0.99;              // fedadam, fedyogi, lamb, onebit_adam: likewise
  double tau = 1e-3;                // beside the square root: > 0; lamb's epsilon
  double weight_decay = 0;          // lars, lamb
  double trust = 1;                 // lars, lamb: a factor of the layer's rate
  std::uint64_t every = 4;          // delayed_nesterov: the momentum steps once in so many commits
  double c = 0;                     // and the commits between take so much of it: in [0, 1 / every]
  std::uint64_t warmup_rounds = 0;  // the rate rises over so many first rounds
  std::uint64_t scale_to = 0;       // the total weight that lr is meant for; 0: lr holds for any
  // Tensors that are statistics of what was seen and no parameters, as patterns of their names (is_statistic()): the
  // next model has the mean of the sites' own, whatever the kind. A key of its own in a plan, and in no text.
  std::string averaged = std::string(kStatistics);
  bool operator==(const ServerOptimizer&) const = default;

  // A kind with the defaults that its paper gives, or that suit means of pseudo-gradients: lr is 1 for fedavg, fedavgm
  // and lars, 0.7 for nesterov and delayed_nesterov, 0.01 for the others; lars has trust 0.001; lamb beta2 0.999 and
  // tau 1e-6.
  static ServerOptimizer of(Optimizer kind);
};

// The rate of one step, a pure function (Goyal et al. 2017, linear scaling and gradual warm-up):
// lr * min(1, round / warmup_rounds) * (total_weight / scale_to), each factor where it is asked for. Rounds count
// from 1.
double learning_rate(const ServerOptimizer& optimizer, std::uint64_t round, std::uint64_t total_weight);

// Whether a tensor of this name is averaged and not stepped. Never by `mean`, which averages each, nor by
// `onebit_adam`, whose momentum travels whole.
bool is_statistic(const ServerOptimizer& optimizer, std::string_view tensor);

// "fedavg", "fedavgm:lr=1,momentum=0.9", "fedadam:lr=0.01,beta1=0.9,beta2=0.99,tau=0.001,warmup=5,scale_to=1000": the
// kind, then those of its options that differ from its defaults. kInvalidArgument says what was expected.
Result<ServerOptimizer> parse_server_optimizer(std::string_view text);
// Canonical: every option of its kind, warmup and scale_to where they are not 0. Parses back to the same.
std::string to_string(const ServerOptimizer& optimizer);

// kInvalidArgument naming the number that is out of range, as a key of a plan.
Status check_server_optimizer(const ServerOptimizer& optimizer);

}  // namespace fluvial::round
