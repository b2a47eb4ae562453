// What the tests of the audits ask alike, whichever federation they follow.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "cli/bench_audit.h"

namespace fluvial::cli {

// Of each site the audit knows what it holds, and notices what it cannot hold.
template <typename Federation>
void expect_residuals(const Audit& audit, Federation& federation, const std::vector<AuditSite>& sites) {
  for (std::size_t site = 0; site < sites.size(); ++site) {
    std::vector<float> held = federation.residual(site);
    EXPECT_TRUE(audit.check_residual(sites[site].index, held).ok()) << site;
    held[17] += 1.0F;
    EXPECT_FALSE(audit.check_residual(sites[site].index, held).ok()) << site;
  }
}

}  // namespace fluvial::cli
