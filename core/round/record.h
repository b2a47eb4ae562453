// What is durable about a round: the attempt, written before any message of it leaves, and the commit, written before
// anybody hears of it. And what a site says when it declines a round.
#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/round/contribution.h"
#include "core/round/pass.h"

namespace fluvial::round {

// Under which a model is stored.
struct ModelKey {
  RunId run;
  ModelVersion version;  // the round that committed it; 0: the initial model
  auto operator<=>(const ModelKey&) const = default;
};

// A model, and what its bytes must be.
struct ModelRef {
  RunId run;
  ModelVersion version;
  Digest digest{};  // SHA-256 of the model's bytes
  std::uint64_t bytes = 0;
  bool operator==(const ModelRef&) const = default;
};

// What it is called before it has its name: by its tree digest.
inline ModelRef called_ahead(ModelRef model, const Digest& tree) {
  model.digest = tree;
  return model;
}

// A model that a round may make of that one.
inline bool follows(const ModelRef& model, const ModelRef& base) {
  return model.run == base.run && model.version == base.version.next() && model.bytes == base.bytes;
}

// The round that starts from the model.
inline RoundId round_from(const ModelRef& base) { return RoundId(base.version.value() + 1); }

struct AttemptRecord {
  RunId run;
  RoundId round;
  AttemptId attempt;
  Epoch epoch;                            // the coordinator's term: a restart gets a new one
  std::vector<Participant> participants;  // later attempts of the round keep them and may add some; scale and base stay
  int scale_bits = 0;
  ModelRef base;
  bool operator==(const AttemptRecord&) const = default;
};

struct CommitRecord {
  RunId run;
  RoundId round;
  AttemptId attempt;
  ContributorSet contributors;
  std::vector<Refusal> refusals;
  std::vector<SiteId> late;  // participants that are neither in nor refused
  ModelRef model;
  bool late_is_next = false;  // by the plan: who is late may still enter a later round
  // Of a round with several passes those before the last, in order; and what the codec's state is from now on, if it
  // has one that is the run's.
  std::vector<PassRecord> passes = {};
  std::optional<VectorRef> codec_state = {};
  Epoch epoch = {};  // and of its attempt, which its means begin with

  std::uint64_t participant_count() const { return contributors.size() + refusals.size() + late.size(); }
};

struct Decline {
  RunId run;
  RoundId round;
  AttemptId attempt;  // a later attempt asks the site again; 0 (a site of an earlier version): the open one
  Refusal refusal;
};

}  // namespace fluvial::round
