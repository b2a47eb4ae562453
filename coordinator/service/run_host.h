// The service of the active run, as its parts see it. On the node's strand.
#pragma once

#include <set>

#include "coordinator/service/run_starter.h"

namespace fluvial::coordinator {

class RunHost {
 public:
  virtual ~RunHost() = default;
  virtual ActiveRun* current() = 0;  // null: there is none
  virtual void carry_out(Effects effects) = 0;
  virtual void send_openings(const std::set<NodeId>& children) = 0;  // of its open round
};

}  // namespace fluvial::coordinator
