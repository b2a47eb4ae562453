// What PowerSGD sends and what becomes of it, to the bit: plain loops that take every sum in the order that
// docs/formats/codecs-powersgd.md says. For right within a tolerance, in fp64, see powersgd.h. The products that a site
// sends are not here: their rounding is the encoder's own, and a receiver need not repeat it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace fluvial::kernels::reference {

// As a plan's codec says; none: another codec.
std::optional<std::size_t> powersgd_rank(std::string_view codec);

// A tensor that is cut: where it is in the model's vector, and where its factors are in what travels.
struct CutMatrix {
  std::size_t first = 0;
  std::size_t rows = 0, cols = 0, rank = 0;
  std::size_t p_first = 0;  // of pass 0: `rank` columns of `rows` values
  std::size_t q_first = 0;  // of pass 1: `rank` columns of `cols` values
};

class LowRank {
 public:
  // The dimensions of the model's fp32 tensors, in order; nothing is between them.
  LowRank(const std::vector<std::vector<std::uint64_t>>& tensors, std::size_t rank);

  const std::vector<CutMatrix>& cuts() const { return cuts_; }
  std::size_t value_count() const { return value_count_; }
  std::size_t sent_count(std::uint32_t pass) const;

  // Q of all matrices: the mean of pass 1, scaled; empty: as drawn for the run.
  std::vector<float> warm_start(std::uint64_t run, std::span<const float> mean) const;
  // The columns of the mean of pass 0, orthonormal.
  std::vector<float> basis(std::span<const float> mean) const;
  // P Q^T, and what is not cut as it is: of the mean of pass 1 the mean update.
  std::vector<float> expanded(std::span<const float> basis, std::span<const float> sent) const;
  // What is left at a site of p, from what it sent in pass 1.
  std::vector<float> left(std::span<const float> p, std::span<const float> basis, std::span<const float> sent) const;

 private:
  std::vector<CutMatrix> cuts_;
  std::size_t value_count_ = 0;
  std::size_t p_count_ = 0;
  std::size_t q_count_ = 0;
};

}  // namespace fluvial::kernels::reference
