// What a malicious site does to its update on the way out, and what damage does to an honest site's. Drawn for each
// upload.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "core/base/rng.h"
#include "core/digest/submission_digest.h"
#include "core/store/site_store.h"
#include "fluvial/v1/wire.pb.h"
#include "simulator/roles/cast.h"

namespace fluvial::simulator {

class Malice {
 public:
  Malice(Cast& cast, HostId host);

  bool is_wicked() const { return cast_.is_malicious(host_) || cast_.is_cloned(host_); }
  // Its digest is of what it sent, so it sends all of it, whatever the parent has already.
  bool begins_anew() const { return cast_.is_malicious(host_); }
  // Sees a message before it leaves; if it is part of a submission, then of `info`'s. False: it is not sent.
  bool says(SessionId session, v1::Envelope& message, SharedBytes& payload, const store::PendingInfo* info);

 private:
  enum class Trick {
    kNone,
    kDamage,         // a bit of a chunk, on its way
    kNotFinite,      // values that are no numbers
    kOtherDigest,    // the trailer's digest is another
    kOtherBase,      // claims to be trained from another model
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
    kContradiction,  // the same submission again, with other bytes, once the first has arrived
    kSkipsAhead,     // as if the first chunk had come before
    kTooGreat,       // a value beyond the plan's bound
    kOtherProbe,     // a probe that is not 1
    kWildInteger,    // more than its type holds, or than a round can count
    kOtherPass,      // as if it were of another pass; these two where openings name one
    kOtherMean,      // as if it were made from another mean
    kCount,
  };
  struct Sending {
    store::PendingInfo info;
    Trick trick = Trick::kNone;
    std::uint64_t first_chunk = 0;
    v1::UpdateBegin said = {};                                      // to its parent
    std::vector<Buffer> sent = {};                                  // the checks must know
    std::vector<std::pair<v1::Envelope, SharedBytes>> before = {};  // the original messages, if they are sent again
  };

  Trick draw();
  void begin(const store::PendingInfo& info, std::uint64_t first_chunk, Trick trick);
  bool part(SessionId session, v1::Envelope& message, SharedBytes& payload);
  bool chunk(std::uint64_t index, SharedBytes& payload);
  bool end(SessionId session, v1::Envelope& message, SharedBytes& payload);
  void sign(const v1::UpdateBegin& said, const Digest& digest, v1::UpdateEnd* end) const;  // what it says
  // Messages and chunks as they leave.
  void apply(Trick trick, v1::UpdateBegin* begin);
  bool sends(Trick trick, std::uint64_t index, std::uint64_t chunk_count) const;
  Buffer apply(Trick trick, bool is_first, Buffer chunk);
  Buffer apply(Trick trick, Buffer trailer);
  Digest apply(Trick trick, const Digest& stored, const Digest& sent) const;

  Cast& cast_;
  HostId host_;
  Rng rng_;
  std::optional<Sending> sending_;  // with a trick
};

}  // namespace fluvial::simulator
