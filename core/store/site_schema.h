// The tables of a site's store (docs/formats/journal.md), and the steps that bring an older one up to date. Inside this
// room only.
#pragma once

#include "core/store/lineage.h"

namespace fluvial::store {

inline constexpr const char* kSiteSchema = R"sql(
CREATE TABLE site (one INTEGER PRIMARY KEY CHECK (one = 1), incarnation INTEGER NOT NULL, submissions INTEGER NOT NULL);
INSERT INTO site VALUES (1, 0, 0);
CREATE TABLE residuals (
  run INTEGER PRIMARY KEY, file TEXT NOT NULL, value_count INTEGER NOT NULL, age_rounds INTEGER NOT NULL,
  norm REAL NOT NULL);
CREATE TABLE pending (
  run INTEGER PRIMARY KEY, round INTEGER NOT NULL, submission INTEGER NOT NULL UNIQUE, incarnation INTEGER NOT NULL,
  weight INTEGER NOT NULL, codec TEXT NOT NULL, base BLOB NOT NULL, metrics TEXT NOT NULL, value_count INTEGER NOT NULL,
  integer_count INTEGER NOT NULL, lossless INTEGER NOT NULL, digest BLOB NOT NULL, p_norm REAL NOT NULL,
  p_file TEXT NOT NULL, chunks_file TEXT NOT NULL, chunk_ends BLOB NOT NULL, chunk_values INTEGER NOT NULL);
CREATE TABLE outcomes (run INTEGER PRIMARY KEY, round INTEGER NOT NULL, outcome INTEGER NOT NULL);
)sql";
// The workers whose results are in a submission, and the outcomes of these results.
inline constexpr const char* kSiteWorkers = R"sql(
ALTER TABLE pending ADD COLUMN workers TEXT NOT NULL DEFAULT '';
CREATE TABLE worker_outcomes (
  run INTEGER NOT NULL, worker TEXT NOT NULL, round INTEGER NOT NULL, outcome INTEGER NOT NULL,
  PRIMARY KEY (run, worker));
)sql";
// The trailer behind the chunks in their file: the integers, and in later versions the probe.
inline constexpr const char* kSiteTrailer = R"sql(
ALTER TABLE pending ADD COLUMN trailer_bytes INTEGER NOT NULL DEFAULT 0;
UPDATE pending SET trailer_bytes = 8 * integer_count;
)sql";
// How the encoded vector comes from p, and the bounds of the residual that it leaves.
inline constexpr const char* kSiteFit = R"sql(
ALTER TABLE pending ADD COLUMN fit_value_max REAL NOT NULL DEFAULT 0;
ALTER TABLE pending ADD COLUMN fit_factor REAL NOT NULL DEFAULT 1;
ALTER TABLE pending ADD COLUMN residual_norm_max REAL NOT NULL DEFAULT 0;
ALTER TABLE pending ADD COLUMN residual_age_max INTEGER NOT NULL DEFAULT 0;
)sql";
// What a member shows when it asks for a lease, beside the tables of the histories.
inline constexpr const char* kSiteStanding = R"sql(
ALTER TABLE site ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
ALTER TABLE outcomes ADD COLUMN digest BLOB NOT NULL DEFAULT x'';
)sql";
// What the digest of a submission is of (core/digest/submission_digest.h).
inline constexpr const char* kSiteDigestKind = R"sql(
ALTER TABLE pending ADD COLUMN digest_kind INTEGER NOT NULL DEFAULT 0;
)sql";
// A counted submission's files in the place of a residual of its own: what it left out is p - decode(chunks).
inline constexpr const char* kSiteLeft = R"sql(
ALTER TABLE residuals ADD COLUMN chunks_file TEXT NOT NULL DEFAULT '';
ALTER TABLE residuals ADD COLUMN chunk_ends BLOB NOT NULL DEFAULT x'';
ALTER TABLE residuals ADD COLUMN chunk_values INTEGER NOT NULL DEFAULT 0;
ALTER TABLE residuals ADD COLUMN codec TEXT NOT NULL DEFAULT '';
ALTER TABLE residuals ADD COLUMN fit_value_max REAL NOT NULL DEFAULT 0;
ALTER TABLE residuals ADD COLUMN fit_factor REAL NOT NULL DEFAULT 1;
ALTER TABLE pending ADD COLUMN left_norm REAL NOT NULL DEFAULT -1;
)sql";
// What is left of an update that came too late for every round that it may enter.
inline constexpr const char* kSiteLate = R"sql(
ALTER TABLE pending ADD COLUMN late_factor REAL NOT NULL DEFAULT 1;
ALTER TABLE residuals ADD COLUMN factor REAL NOT NULL DEFAULT 1;
)sql";
// What the codec keeps from round to round: behind the values of p and of a residual, in the same file.
inline constexpr const char* kSiteCodecState = R"sql(
ALTER TABLE pending ADD COLUMN state_bytes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE residuals ADD COLUMN state_bytes INTEGER NOT NULL DEFAULT 0;
)sql";
// Of a codec with several passes: what travels in the first (0: as many values as p has), how many there are and the
// model's schema; and each later one, with what it leaves of p when it is counted.
inline constexpr const char* kSitePasses = R"sql(
ALTER TABLE pending ADD COLUMN sent_values INTEGER NOT NULL DEFAULT 0;
ALTER TABLE pending ADD COLUMN passes INTEGER NOT NULL DEFAULT 1;
ALTER TABLE pending ADD COLUMN schema TEXT NOT NULL DEFAULT '';
CREATE TABLE pending_passes (
  run INTEGER NOT NULL REFERENCES pending (run), pass INTEGER NOT NULL, submission INTEGER NOT NULL UNIQUE,
  incarnation INTEGER NOT NULL, mean BLOB NOT NULL, epoch INTEGER NOT NULL, attempt INTEGER NOT NULL,
  sent_values INTEGER NOT NULL, digest BLOB NOT NULL, digest_kind INTEGER NOT NULL, left_norm REAL NOT NULL,
  left_file TEXT NOT NULL, chunks_file TEXT NOT NULL, chunk_ends BLOB NOT NULL, trailer_bytes INTEGER NOT NULL,
  PRIMARY KEY (run, pass));
)sql";
inline constexpr const char* kSiteSteps[] = {kSiteSchema,    kSiteWorkers,    kSiteTrailer,    kSiteFit,
                                             kLineageTables, kSiteStanding,   kSiteDigestKind, kSiteLeft,
                                             kSiteLate,      kSiteCodecState, kSitePasses};

}  // namespace fluvial::store
