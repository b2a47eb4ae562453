// Rounds with several passes (docs/design/phases.md), looked at again from the journal: that a round has the passes of
// its run's codec, that who is in a pass is in the one before with the same weight, and that means and the codec's
// state are as long as what they hold. Which mean a contribution was made from its site has signed (round_audit.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/aggregate/shapes.h"
#include "core/store/rows.h"
#include "kernels/codec.h"

namespace fluvial::coordinator {

class PassAudit {
 public:
  static Result<PassAudit> of(const store::RunRow& run);

  // For people; empty: the passes are as they must be.
  std::vector<std::string> faults_of(const round::CommitRecord& record) const;

 private:
  std::vector<std::uint64_t> mean_bytes_;        // of each pass before the last
  std::shared_ptr<const kernels::Codec> codec_;  // with the shapes, of one that hands something down; else null
  std::shared_ptr<const aggregate::Shapes> shapes_;
};

}  // namespace fluvial::coordinator
