// What a committed round keeps of what its workers reported.
#pragma once

#include "core/round/contribution.h"
#include "core/round/plan.h"

namespace fluvial::round {

// Each metric's mean over those contributors that report it, weighted as their updates are.
Metrics mean_metrics(const ContributorSet& contributors);

// The means, and what else is kept: takes the sites' own metrics out of the set where the plan's metrics_by_site is
// false. Journal, admin API and streams have what is in the set afterwards, and no more.
Metrics settle_metrics(const Plan& plan, ContributorSet& contributors);

}  // namespace fluvial::round
