// Low-rank factors once more, by docs/formats/codecs-powersgd.md, one value at a time: the oracle's half of a round
// with two passes. What the page fixes to the bit is made to the bit; what sites send (P_i, Q_i), whose rounding it
// leaves to them, is compared within a bound. It shares no code with the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/round/plan.h"
#include "core/round/schema.h"
#include "kernels/reference/lowrank.h"

namespace fluvial::simulator {

class Factors {
 public:
  // None: the plan's codec has one pass.
  static std::optional<Factors> of(const round::Plan& plan, const round::Schema& schema);

  std::uint32_t passes() const { return 2; }
  std::size_t sent_values(std::uint32_t pass) const { return low_rank_.sent_count(pass); }

  // ---- to the bit
  std::vector<float> basis(std::span<const float> mean_p) const { return low_rank_.basis(mean_p); }  // orthonormal
  // The mean update: P Q^T, and what is not cut as it is.
  std::vector<float> update(std::span<const float> mean_p, std::span<const float> mean_q) const {
    return low_rank_.expanded(low_rank_.basis(mean_p), mean_q);
  }
  std::vector<float> drawn() const { return low_rank_.warm_start(seed_, {}); }  // Q of a run's first round
  std::vector<float> settled(std::span<const float> mean_q) const { return low_rank_.warm_start(seed_, mean_q); }
  // What is wrong with the bytes of a state that has this Q and is of this round; empty: nothing.
  std::string wrong_state(ByteSpan bytes, const std::vector<float>& q, std::optional<RoundId> round) const;
  // Q of a state.
  static std::vector<float> factors_in(ByteSpan state);

  // ---- within bounds
  // What is wrong with what a site says it sends of p in pass 0, with this Q, or in pass 1, with this orthonormal P,
  // and with what it would leave of p; empty: nothing. A site may send p times a factor, as far as the plan's bounds
  // call for it.
  std::string wrong_first(std::span<const float> p, std::span<const float> q, const std::vector<double>& sent) const;
  std::string wrong_second(std::span<const float> p, std::span<const float> basis, const std::vector<double>& sent,
                           std::span<const float> left) const;

 private:
  struct Exact {  // what would be sent without a factor, and how much was added up for each value
    std::vector<double> values, added;
  };
  Factors(kernels::reference::LowRank low_rank, const round::Plan& plan);
  void for_each_product(const std::function<void(std::size_t, std::size_t, std::size_t)>& visit) const;
  std::string wrong_sent(const Exact& exact, const std::vector<double>& sent) const;
  std::string wrong_left(std::span<const float> p, std::span<const float> basis, const std::vector<float>& sent,
                         std::span<const float> left, bool to_the_bit) const;
  bool reaches_a_bound(const std::vector<double>& values) const;

  kernels::reference::LowRank low_rank_;
  std::vector<std::size_t> plain_;  // of the vector, the values that are not cut
  std::size_t q_count_ = 0;
  std::size_t rank_ = 0;
  std::uint64_t seed_ = 0;
  double value_abs_max_ = 0, norm_max_ = 0;
};

}  // namespace fluvial::simulator
