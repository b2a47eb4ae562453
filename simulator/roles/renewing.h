// A simulated member's part in the renewal of its certificate: the shipped Renewal, its way to the coordinator and its
// disk; and the check that it is in time.
#pragma once

#include <optional>

#include "core/tree/renewal.h"
#include "simulator/roles/cast.h"

namespace fluvial::simulator {

class Renewing {
 public:
  // `dial` leads to the coordinator, `enrolment` to its enrolment port.
  Renewing(Cast& cast, HostId host, tree::Runtime& runtime, const tree::Dial& dial, const tree::Dial& enrolment);

  tree::Renewal& renewal() { return renewal_; }
  void told();                   // for how long certificates are issued
  net::Awaitable<void> watch();  // while the process runs

 private:
  tree::Renewal::Parts parts(const tree::Dial& dial, const tree::Dial& enrolment);
  net::Awaitable<Result<std::shared_ptr<net::Session>>> reach_enrolment(tree::Dial dial);

  Cast& cast_;
  HostId host_;
  tree::Runtime& runtime_;
  WallTime has_since_;  // the certificate that it has
  std::optional<WallTime> told_at_;
  std::optional<WallTime> asked_at_;
  tree::Renewal renewal_;
};

}  // namespace fluvial::simulator
