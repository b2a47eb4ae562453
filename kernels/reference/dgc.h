// Deep gradient compression as the paper has it (Lin et al., ICLR 2018, algorithm 4), naive and in fp64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace fluvial::kernels::reference {

struct Dgc {
  double momentum = 0;
  double clip = 0;  // greatest 2-norm of a gradient; 0: none
  std::vector<double> u, v;

  // One round: returns the sent values, zero elsewhere; u and v are masked.
  std::vector<double> round(std::span<const double> gradient, std::size_t k);
};

struct DgcOptions {
  double momentum = 0.9;
  double clip = 0;
};
// As a plan's codec says; none: another codec.
std::optional<DgcOptions> dgc_options(std::string_view codec);

// As sites do it, in fp32 and every operation rounded once: the gradient becomes the moment, which is kept.
void dgc_moment(const DgcOptions& options, std::span<float> moment, std::span<float> gradient);

// The part that is sent in a round, 1 being the first.
double dgc_ratio(double ratio, std::uint32_t warmup_rounds, std::uint64_t round);

}  // namespace fluvial::kernels::reference
