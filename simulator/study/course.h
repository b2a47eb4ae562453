// Real training at every site of a simulated federation (simulator/roles/lessons.h): which sites are slow, and what was
// committed when. A problem that is trained derives from it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "simulator/roles/lessons.h"

namespace fluvial::simulator {

// The sites' speeds: every `slow_one_in`-th site takes `slow_factor` times as long for each update.
struct Speeds {
  std::uint64_t slow_one_in = 10;
  double slow_factor = 5;

  bool is_slow(std::size_t site) const { return site % slow_one_in == slow_one_in - 1; }
  double slowness(std::size_t site) const { return is_slow(site) ? slow_factor : 1; }
};

struct Commit {
  TimePoint at{};  // virtual time
  std::vector<Counted> updates;
  std::vector<float> model;
};

class Course : public Lessons {
 public:
  explicit Course(const Speeds& speeds) : speeds_(speeds) {}

  const std::vector<Commit>& commits() const { return commits_; }
  const Speeds& speeds() const { return speeds_; }

  double slowness(std::size_t site) const final { return speeds_.slowness(site); }
  void committing(std::span<const Counted> updates, std::span<const float> model, TimePoint now) final {
    commits_.push_back({now, {updates.begin(), updates.end()}, {model.begin(), model.end()}});
  }

 private:
  Speeds speeds_;
  std::vector<Commit> commits_;
};

}  // namespace fluvial::simulator
