// A problem whose optimum is known: site i has the loss w_i |x - c_i|^2 / 2, and an update is one gradient step. The
// centres c_i and the weights w_i are drawn from the seed, and each step is exact, so whatever is left of the distance
// to the optimum comes from who was counted, when and for how much. One value more of the model tells a site's updates
// apart where they are equal otherwise, as the simulator's checks know an update by its digest.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulator/study/course.h"

namespace fluvial::simulator {

class Quadratic final : public Course {
 public:
  Quadratic(std::uint64_t seed, std::size_t sites, const Speeds& speeds);

  // The mean of the centres by these parts of the sites; by their weights it is the optimum.
  std::vector<double> mean_of_centres(std::span<const double> parts) const;
  // What of a model is x.
  static std::span<const float> place(std::span<const float> model);

  round::Schema schema() const override;
  std::vector<float> initial_model() const override;
  std::uint32_t weight(std::size_t site) const override { return weights_[site]; }
  std::vector<float> train(std::size_t site, RoundId round, std::span<const float> base) const override;

 private:
  std::vector<std::vector<float>> centres_;  // by site
  std::vector<std::uint32_t> weights_;       // by site
};

}  // namespace fluvial::simulator
