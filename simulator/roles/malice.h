// What a malicious site does with an update on its way out, and what damage does to an honest one's. Drawn for each
// upload.
#pragma once

#include "core/base/rng.h"
#include "fluvial/v1/wire.pb.h"
#include "simulator/roles/cast.h"

namespace fluvial::simulator {

class Malice {
 public:
  enum class Trick {
    kNone,
    kDamage,         // a bit of a chunk, on its way
    kNotFinite,      // values that are no numbers
    kOtherDigest,    // the trailer's digest is another
    kOtherBase,      // trained from another model, it says
    kTooHeavy,       // a weight above the registered maximum
    kNoWeight,       //
    kOtherCodec,     //
    kTruncated,      // chunks are missing
    kShortChunk,     // a chunk is shorter than it must be
    kOtherLengths,   // of the model
    kOtherName,      // in the name of another site
    kOldLease,       // under an older lease
    kReplay,         // an older submission's number
    kTwoContents,    // other bytes under the same number
    kContradiction,  // the same submission again, with other bytes, once it has come in
    kSkipsAhead,     // as if the first chunk had come before
    kTooGreat,       // a value beyond the plan's bound
    kOtherProbe,     // a probe that is not 1
    kWildInteger,    // more than its type holds, or than a round can count
    kCount,
  };

  Malice(Cast& cast, HostId host);

  Trick draw();
  // A trick whose digest is of what was sent needs all of it.
  static bool begins_anew(Trick trick) { return trick != Trick::kNone && trick != Trick::kDamage; }
  bool is_wicked() const { return cast_.is_malicious(host_) || cast_.is_cloned(host_); }
  // Messages and chunks as they leave.
  void apply(Trick trick, v1::UpdateBegin* begin);
  bool sends(Trick trick, std::uint64_t index, std::uint64_t chunk_count) const;
  Buffer apply(Trick trick, bool is_first, Buffer chunk);
  Buffer apply(Trick trick, Buffer trailer);
  Digest apply(Trick trick, const Digest& stored, const Digest& sent) const;

 private:
  Cast& cast_;
  HostId host_;
  Rng rng_;
};

}  // namespace fluvial::simulator
