// A malicious aggregator's lie about its sum that its parent can detect. Lies within its own region's names and bounds
// are believed (docs/design/exactly-once.md), and are not drawn. One for each partial.
#pragma once

#include "core/base/rng.h"
#include "fluvial/v1/wire.pb.h"
#include "simulator/roles/cast.h"

namespace fluvial::simulator {

class Forgery {
 public:
  enum class Trick {
    kNone,
    kStranger,     // names a site that is not below it
    kRefusal,      // reports a refusal of such a site
    kTwice,        // names one of its own twice
    kOtherProbe,   // of a contributor
    kOldAttempt,   //
    kOldEpoch,     //
    kOldLease,     // of a contributor
    kOtherShare,   // likewise, where the update is fresh
    kOtherScale,   //
    kDamage,       // a bit of a chunk
    kTooGreat,     // sums beyond what its contributors can give
    kTruncated,    // chunks are missing
    kOtherDigest,  //
    kSkipsAhead,   // as if the first chunk had come before
    kOtherPass,    // where openings name one
    kCount,
  };

  Forgery(Cast& cast, HostId host);

  void draw();
  bool sends(std::uint64_t index) const { return trick_ != Trick::kTruncated || index != 0; }
  void apply(v1::PartialBegin* begin);
  Buffer apply(Buffer chunk, std::size_t value_count);
  void apply(Digest* digest) const;

 private:
  std::uint32_t stranger();

  Cast& cast_;
  HostId host_;
  Rng rng_;
  Trick trick_ = Trick::kNone;
};

}  // namespace fluvial::simulator
