// What the coordinator's journal holds, row by row (docs/formats/journal.md).
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/round/history.h"
#include "core/round/outcome.h"
#include "core/round/plan.h"
#include "core/round/record.h"
#include "core/round/run_status.h"
#include "core/round/schema.h"

namespace fluvial::store {

using round::Outcome;
using round::RunStatus;

struct FederationRow {
  std::string name;
  WallTime created_at;
};

struct TokenRow {
  std::string id;
  Digest secret_hash{};
  Role role = Role::kSite;
  std::string name;
  std::string region;
  std::uint64_t weight_max = 0;
  WallTime expires_at;
  std::optional<WallTime> used_at;  // the last time
  std::uint64_t uses_max = 1;       // more: the name ends with "-*" and stands for as many members
  std::uint64_t uses = 0;
  std::optional<WallTime> revoked_at = {};
  std::string revoked_why = {};  // empty: by a person
  std::string access = {};       // of an operator's: "read" or "full"
  bool is_for(Role member_role, std::string_view member_name) const;
  bool operator==(const TokenRow&) const = default;
};

struct NodeRow {
  NodeId id;  // 0: the journal gives it
  Role role = Role::kSite;
  std::string name;  // unique in the federation
  std::string region;
  std::uint64_t weight_max = 0;
  std::string certificate_serial;
  WallTime enrolled_at;
  std::string advertise;  // host:port for its children; empty for a site
  std::optional<WallTime> revoked_at;
  std::optional<WallTime> quarantined_at;  // of a site: it takes part in no further round
  std::string quarantine_reason;
  std::optional<WallTime> removed_at = {};  // revoked, and not listed any more
  std::string access = {};                  // of an operator: "read" or "full"
  bool operator==(const NodeRow&) const = default;
};

// The certificate of a member that enrols. Without a key, it is noted when it is first seen (certificate_book.h).
struct NewCertificate {
  ByteSpan key = {};  // a DER SubjectPublicKeyInfo
  WallTime ends_at = {};
  ByteSpan authority = {};  // the SHA-256 of its issuer's public key; empty: the federation's first one
};

struct LeaseRow {
  NodeId node;
  NodeId parent;  // 0: the coordinator
  Epoch epoch;
  bool operator==(const LeaseRow&) const = default;
};

struct RunRow {
  RunId id;  // 0: the journal gives it
  round::Plan plan;
  round::Schema schema;
  Digest initial_model{};
  RunStatus status = RunStatus::kRunning;
  std::string reason;  // of the status, for people
  WallTime created_at;
  RunId continues;  // the run whose last model it started from; 0: none
  // With the server optimizer's state of that run, which is then in the ModelStore, beside the initial model.
  bool keeps_optimizer = false;
  // With the state that its codec was left with by that run, settled for this one: in the same file.
  std::optional<round::VectorRef> codec_state = {};
  bool operator==(const RunRow&) const = default;
};

struct LateSite {
  SiteId site;
  std::string reason;  // why it was not in when the round closed, for people
  bool operator==(const LateSite&) const = default;
};

// What a site has given to a run.
struct SiteShare {
  std::uint64_t rounds = 0;     // that it is in
  std::uint64_t weight = 0;     // in all of them together
  std::uint64_t stale = 0;      // of the rounds, those that counted an older update
  std::uint64_t staleness = 0;  // of all of them together
  bool operator==(const SiteShare&) const = default;
};

// What the coordinator signed (core/wire/statements.h).
struct SignedOrder {
  std::string statement;
  Signature signature{};
  bool operator==(const SignedOrder&) const = default;
};

struct CommitRow {
  round::CommitRecord record;  // when read back without its model's size; the late sites are then below
  std::vector<LateSite> late;  // of a round that a version before format 6 committed: nobody is named
  std::uint64_t participants_count = 0;
  std::uint64_t weight = 0;  // when read back: the contributors' together, as the commit itself has it
  Digest master{};           // of the fp32 master; the model's as long as models travel lossless
  std::string optimizer;     // ModelStore's reference, or empty
  std::optional<Digest> sum_digest;
  std::uint64_t duration_ms = 0;
  std::uint64_t bytes_up = 0;    // received by the coordinator for this round
  std::uint64_t bytes_down = 0;  // sent
  round::Metrics metrics;        // of the contributors, weighted mean
  round::Metrics evaluation;     // set later by set_evaluation()
  WallTime committed_at;
  // The keys (DER) by which the contributors' signatures were checked: without one a signature is not kept.
  std::map<SiteId, std::vector<std::byte>> keys = {};
  std::optional<SignedOrder> order = {};  // of the commit; none: this coordinator signs nothing
  // When read back: the node that admitted a contributor's update (0: the coordinator), by the site's lease of that
  // time. None: the site has had more than eight others since.
  std::map<SiteId, NodeId> parents = {};
};

// A round that a restore has lost, as far as a member knew of it.
struct LostRow {
  round::HistoryId history;  // whose restore lost it
  NodeId site;               // or an aggregator, which knows only that the round existed
  round::KnownRound known;
  bool operator==(const LostRow&) const = default;
};

// Which committed rounds the journal keeps.
struct KeptRounds {
  std::uint64_t newest = 0;                   // how many, of all runs together; 0: any number
  std::optional<WallTime> committed_since{};  // none: of any age
};

struct JournalSize {
  std::uint64_t bytes = 0;       // of the database, without its log
  std::uint64_t free_bytes = 0;  // of these, freed by pruning: used again before the file grows
  std::uint64_t rounds = 0;      // committed and not pruned
};

}  // namespace fluvial::store
