// What a federation's sites train where their updates are not made up (training.h): a real model, and its speed at each
// site. Sites are numbered 0, 1, ... in the order of their hosts. Outlives the world. One thread, as the world.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/round/schema.h"

namespace fluvial::simulator {

// An update in a commit.
struct Counted {
  std::size_t site = 0;
  std::uint64_t weight = 0;
  std::uint64_t staleness = 0;  // models between the one that it was trained from and the one at its admission
  std::uint32_t share = 512;    // of 512, by its site's rate
};

class Lessons {
 public:
  virtual ~Lessons() = default;

  virtual round::Schema schema() const = 0;  // of fp32 tensors alone
  virtual std::vector<float> initial_model() const = 0;
  virtual double slowness(std::size_t site) const = 0;       // its tasks take so many times the drawn time
  virtual std::uint32_t weight(std::size_t site) const = 0;  // of its updates
  // The model that the site's workers make of `base` in this round. A function of its arguments, as a submission may be
  // made again after a crash.
  virtual std::vector<float> train(std::size_t site, RoundId round, std::span<const float> base) const = 0;
  // The coordinator is about to record a commit. In a world without faults that succeeds.
  virtual void committing(std::span<const Counted> updates, std::span<const float> model, TimePoint now) = 0;
};

}  // namespace fluvial::simulator
