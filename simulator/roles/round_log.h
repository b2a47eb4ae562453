// When rounds were recorded and committed, in virtual time, and by how many sites, for the report of simulator/run.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "core/base/ids.h"
#include "simulator/run/run.h"

namespace fluvial::simulator {

class RoundLog {
 public:
  // An attempt is in the journal; the first of its round opens it. A coordinator that died may report one twice.
  void recorded(RoundId round, std::size_t participants, TimePoint now) {
    if (open_ && open_->round == round.value()) return;
    open_ = RoundReport{.round = round.value(), .opened = now, .participants = participants};
  }
  void committed(RoundId round, std::size_t contributors, TimePoint now) {
    if (!open_ || open_->round != round.value()) return;
    open_->committed = now;
    open_->contributors = contributors;
    committed_.push_back(*open_);
    open_.reset();
  }
  const std::vector<RoundReport>& committed() const { return committed_; }

 private:
  std::optional<RoundReport> open_;
  std::vector<RoundReport> committed_;
};

}  // namespace fluvial::simulator
