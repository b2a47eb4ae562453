// One update or partial on its way in: checked and staged chunk by chunk, handed over only when it is whole and valid.
// Blocking; the staging area is passed in.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "core/digest/submission_digest.h"
#include "core/round/probe.h"
#include "core/store/staging.h"
#include "core/transfer/head.h"
#include "core/wire/record_mapping.h"

namespace fluvial::transfer {

struct UpdateArrival {
  SiteId site;
  std::shared_ptr<const kernels::Codec> codec;
  round::ProbeBytes probe{};  // as its site sent it
};
struct PartialArrival {
  std::uint64_t sequence = 0;
};

// A verified update or partial of a child, staged.
struct StagedArrival {
  const UpdateArrival* update() const { return std::get_if<UpdateArrival>(&kind); }  // null: it is a partial

  std::variant<UpdateArrival, PartialArrival> kind;
  NodeId child;
  RunId run;
  RoundId round;
  round::MadeFrom from;  // the pass, and the mean that it began with
  round::Arrival what;
  std::optional<store::StagedUpdate> chunks;  // none for a partial without contributors
  std::vector<std::int64_t> integers;
};

// The receipt for the child; for a partial it also names the sites that the partial must do without.
v1::Envelope receipt(const StagedArrival& arrival, const Status& status, const std::vector<SiteId>& without = {});

// Where chunks are kept. Budget and file system outlive every Incoming and StagedArrival.
struct Staging {
  store::StagingBudget* budget = nullptr;
  store::FileSystem* files = nullptr;
  std::string folder;  // for chunks beyond the budget
};

// Movable; one call at a time, from any thread. An error refuses the whole update or partial: the rest of it is read
// and thrown away, and the session goes on. (A breach, which ends the session, is found earlier: by head_from_proto(),
// or when a chunk follows no beginning.) After an error only destruction is allowed, which frees the staged chunks.
class Incoming {
 public:
  // The head was admitted under `terms`. kInvalidArgument: another shape, codec or base than theirs; kDataLoss: a
  // partial's probes differ from its weights; kFailedPrecondition: the scale has no room for its weight; kUnavailable:
  // the transfer continues from chunks that are not here (the child begins anew).
  static Result<Incoming> begin(UpdateHead head, Terms terms, const Staging& staging);
  static Result<Incoming> begin(PartialHead head, Terms terms, const Staging& staging);

  // Blocking: decodes, screens, hashes, and may write to the disk. kInvalidArgument: out of order; kDataLoss: not
  // decodable, not finite, or beyond the plan's bound, by the tensor's name; kResourceExhausted.
  Status chunk(std::uint64_t index, Buffer bytes);
  // The last call. Takes the trailer, which holds the integers and the probe. Checks length, digest and norm, that the
  // probe is 1, and the integers against the base model's. kDataLoss. `signature`: the site's, of an update.
  Result<StagedArrival> end(const std::string& sha256, ByteSpan trailer,
                            const std::optional<Signature>& signature = {});

  RunId run() const { return update_ ? update_->run : partial_->run; }
  RoundId round() const { return update_ ? update_->round : partial_->round; }  // that it is to enter
  RoundId own_round() const { return update_ ? update_->own_round() : partial_->round; }
  wire::Received received() const;
  // Whether the head is of this submission, or of this sequence of the same incarnation, begins where this one stopped,
  // and means the same digest.
  bool continues(const UpdateHead& head) const;
  bool continues(const PartialHead& head) const;
  // Goes on under a new head that continues() this transfer; its attempt and lease may differ. Errors as in begin();
  // kInvalidArgument also for a partial with other contributors.
  Status resume(UpdateHead head, const Terms& terms);
  Status resume(PartialHead head, const Terms& terms);

 private:
  Incoming(Terms terms, std::uint64_t chunk_count, std::uint64_t bytes_max, DigestKind digest_kind,
           const Staging& staging);
  bool is_for(RunId run, RoundId round) const;
  void go_on_under(const Terms& terms);
  std::string name_of_value(std::uint64_t coordinate) const;
  Status verify_chunk(ByteSpan bytes);
  Status verify_packed(ByteSpan bytes, std::size_t count);
  Status verify_end(const std::string& sha256, ByteSpan trailer);
  std::size_t integer_bytes() const;
  Status verify_integers(std::span<const std::int64_t> integers) const;

  std::optional<UpdateHead> update_;    // one of
  std::optional<PartialHead> partial_;  // the two
  Terms terms_;
  std::uint64_t chunk_count_ = 0;
  std::uint64_t next_index_ = 0;
  store::StagedUpdate staged_;
  SubmissionDigest digest_;
  double norm_squared_ = 0;
};

}  // namespace fluvial::transfer
