// Softmax regression on data that no two sites have alike: ten classes in twenty dimensions, drawn from the seed. Each
// site's classes have other shares, and all of its points are shifted by a vector of its own. An update is some steps
// of minibatch gradient descent, in fp32.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulator/study/course.h"

namespace fluvial::simulator {

class Softmax final : public Course {
 public:
  Softmax(std::uint64_t seed, std::size_t sites, const Speeds& speeds);

  // Mean cross entropy over the points of all sites, or of the slow ones.
  double loss(std::span<const float> model) const;
  double loss_of_slow(std::span<const float> model) const;
  std::span<const float> best_model() const { return best_model_; }  // found by gradient descent over all points

  round::Schema schema() const override;
  std::vector<float> initial_model() const override;
  std::uint32_t weight(std::size_t site) const override;  // how many points it has
  std::vector<float> train(std::size_t site, RoundId round, std::span<const float> base) const override;

 private:
  struct Points {
    std::size_t size() const { return classes.size(); }
    std::span<const float> at(std::size_t point) const;

    std::vector<float> features;  // one point after the other
    std::vector<std::uint32_t> classes;
  };
  double sum_of_losses(std::span<const float> model, const Points& points) const;
  std::vector<float> find_best_model() const;

  std::uint64_t seed_;
  std::vector<Points> sites_;
  std::vector<float> best_model_;
};

}  // namespace fluvial::simulator
