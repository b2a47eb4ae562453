// Inside the hub only.
#pragma once

#include <array>

#include "core/net/pace.h"
#include "core/net/signal.h"
#include "core/tree/hub.h"
#include "core/tree/intake.h"

namespace fluvial::tree {

// What one child's session has going on; on the session's strand.
struct Hub::Stream {
  Stream(Hub& hub, const Child& child)
      : intake(hub.runtime_, hub.owner_, hub.book_, {&hub.budget_, &hub.runtime_.files, hub.options_.spill_folder},
               child),
        questions(static_cast<double>(child.role == Role::kSite ? hub.options_.budget.queries_per_s_max
                                                                : hub.options_.budget.relayed_queries_per_s_max),
                  hub.runtime_.clock.now()),
        renewals(1, 4, hub.runtime_.clock.now()),
        sent(child.session->executor()) {}
  Intake intake;
  net::Pace questions;
  net::Pace renewals;  // each costs a verification
  int models = 0;      // on their way, with those that were overtaken and have not noticed yet
  // Of the model, and of the vector, that is being sent: a new request ends the one before of its kind.
  std::array<std::uint64_t, kModelParts> generation{};
  // Whether a frame of it waits for room on its way out. Chunks do not say which vector they are of, only that it is
  // one of this round: the next one's ModelBegin must follow the last of the one before.
  std::array<bool, kModelParts> is_sending{};
  net::AsyncSignal sent;
};

}  // namespace fluvial::tree
