// The journal's tables (docs/formats/journal.md). Inside this room only.
#pragma once

#include "core/store/lineage.h"

namespace fluvial::store {

inline constexpr const char* kJournalVersion1 = R"sql(
CREATE TABLE federation (
  one INTEGER PRIMARY KEY CHECK (one = 1), name TEXT NOT NULL, created_at INTEGER NOT NULL);
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE tokens (
  id TEXT PRIMARY KEY, secret_hash BLOB NOT NULL UNIQUE, role TEXT NOT NULL, name TEXT NOT NULL, region TEXT NOT NULL,
  weight_max INTEGER NOT NULL, expires_at INTEGER NOT NULL, used_at INTEGER) WITHOUT ROWID;
CREATE TABLE names (name TEXT PRIMARY KEY, role TEXT NOT NULL, node INTEGER NOT NULL UNIQUE) WITHOUT ROWID;
CREATE TABLE nodes (
  id INTEGER PRIMARY KEY REFERENCES names (node), role TEXT NOT NULL, name TEXT NOT NULL UNIQUE, region TEXT NOT NULL,
  weight_max INTEGER NOT NULL, certificate_serial TEXT NOT NULL, enrolled_at INTEGER NOT NULL, advertise TEXT NOT NULL,
  revoked_at INTEGER);
CREATE TABLE leases (
  node INTEGER PRIMARY KEY REFERENCES nodes (id), parent INTEGER NOT NULL, epoch INTEGER NOT NULL UNIQUE);
CREATE TABLE runs (
  id INTEGER PRIMARY KEY, plan TEXT NOT NULL, schema TEXT NOT NULL, initial_model BLOB NOT NULL, status INTEGER NOT NULL,
  reason TEXT NOT NULL, created_at INTEGER NOT NULL, continues INTEGER NOT NULL);
CREATE TABLE attempts (
  run INTEGER NOT NULL REFERENCES runs (id), round INTEGER NOT NULL, attempt INTEGER NOT NULL,
  epoch INTEGER NOT NULL, participants BLOB NOT NULL, scale_bits INTEGER NOT NULL, base BLOB NOT NULL,
  PRIMARY KEY (run, round, attempt)) WITHOUT ROWID;
CREATE TABLE commits (
  run INTEGER NOT NULL, round INTEGER NOT NULL, attempt INTEGER NOT NULL, participants_count INTEGER NOT NULL,
  total_weight INTEGER NOT NULL, model BLOB NOT NULL, master BLOB NOT NULL, optimizer TEXT NOT NULL, sum_digest BLOB,
  duration_ms INTEGER NOT NULL, bytes_up INTEGER NOT NULL, bytes_down INTEGER NOT NULL, metrics TEXT NOT NULL,
  evaluation TEXT NOT NULL, committed_at INTEGER NOT NULL, PRIMARY KEY (run, round),
  FOREIGN KEY (run, round, attempt) REFERENCES attempts (run, round, attempt)) WITHOUT ROWID;
CREATE TABLE contributions (
  run INTEGER NOT NULL, round INTEGER NOT NULL, site INTEGER NOT NULL, lease INTEGER NOT NULL, weight INTEGER NOT NULL,
  digest BLOB NOT NULL, probe INTEGER NOT NULL, metrics TEXT NOT NULL, PRIMARY KEY (run, round, site),
  FOREIGN KEY (run, round) REFERENCES commits (run, round)) WITHOUT ROWID;
CREATE TABLE refusals (
  run INTEGER NOT NULL, round INTEGER NOT NULL, site INTEGER NOT NULL, code INTEGER NOT NULL, message TEXT NOT NULL,
  PRIMARY KEY (run, round, site), FOREIGN KEY (run, round) REFERENCES commits (run, round)) WITHOUT ROWID;
)sql";

inline constexpr const char* kJournalVersion2 = R"sql(
ALTER TABLE nodes ADD COLUMN quarantined_at INTEGER;
ALTER TABLE nodes ADD COLUMN quarantine_reason TEXT NOT NULL DEFAULT '';
)sql";

// Members' reports of rounds that a restored journal does not hold; tokens for several members, revoked tokens, removed
// members, how often each name was enrolled. Version 3 is the tables of the histories.
inline constexpr const char* kJournalVersion4 = R"sql(
ALTER TABLE histories ADD COLUMN began_at INTEGER NOT NULL DEFAULT 0;
CREATE TABLE lost (
  history INTEGER NOT NULL, run INTEGER NOT NULL, round INTEGER NOT NULL, site INTEGER NOT NULL,
  decided INTEGER NOT NULL, counted INTEGER NOT NULL, digest BLOB NOT NULL, shown_at INTEGER NOT NULL,
  PRIMARY KEY (history, run, round, site)) WITHOUT ROWID;
ALTER TABLE tokens ADD COLUMN uses_max INTEGER NOT NULL DEFAULT 1;
ALTER TABLE tokens ADD COLUMN uses INTEGER NOT NULL DEFAULT 0;
ALTER TABLE tokens ADD COLUMN revoked_at INTEGER;
UPDATE tokens SET uses = 1 WHERE used_at IS NOT NULL;
ALTER TABLE nodes ADD COLUMN removed_at INTEGER;
ALTER TABLE names ADD COLUMN enrolments INTEGER NOT NULL DEFAULT 0;
UPDATE names SET enrolments = (SELECT sum(uses) FROM tokens WHERE tokens.name = names.name)
  WHERE name IN (SELECT name FROM tokens);
)sql";

// The pruned rounds, and what is still known of them.
inline constexpr const char* kJournalVersion5 = R"sql(
CREATE TABLE pruned (run INTEGER PRIMARY KEY REFERENCES runs (id), round INTEGER NOT NULL);
CREATE TABLE settled (
  site INTEGER NOT NULL, outcome INTEGER NOT NULL, run INTEGER NOT NULL, round INTEGER NOT NULL, digest BLOB NOT NULL,
  PRIMARY KEY (site, outcome)) WITHOUT ROWID;
)sql";

// Who was late, and why.
inline constexpr const char* kJournalVersion6 = R"sql(
CREATE TABLE late (
  run INTEGER NOT NULL, round INTEGER NOT NULL, site INTEGER NOT NULL, reason TEXT NOT NULL,
  PRIMARY KEY (run, round, site), FOREIGN KEY (run, round) REFERENCES commits (run, round)) WITHOUT ROWID;
)sql";

// Every certificate, the key that it is of, which it renews and whose authority (the SHA-256 of its key) issued it;
// what an operator may do; which authorities a member trusts; the aggregators that pass signatures on; the audit log;
// what the sites and the coordinator signed of each round.
inline constexpr const char* kJournalVersion7 = R"sql(
CREATE TABLE certificates (
  serial TEXT PRIMARY KEY, node INTEGER NOT NULL, key BLOB NOT NULL, issued_at INTEGER NOT NULL,
  ends_at INTEGER NOT NULL, used_at INTEGER, refused_since INTEGER, refused_why TEXT NOT NULL DEFAULT '',
  renews TEXT NOT NULL DEFAULT '', authority BLOB NOT NULL DEFAULT x'') WITHOUT ROWID;
CREATE INDEX certificates_of ON certificates (node);
CREATE TABLE denied (kind TEXT NOT NULL, value BLOB NOT NULL, PRIMARY KEY (kind, value)) WITHOUT ROWID;
ALTER TABLE tokens ADD COLUMN revoked_why TEXT NOT NULL DEFAULT '';
ALTER TABLE tokens ADD COLUMN access TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN access TEXT NOT NULL DEFAULT '';
ALTER TABLE nodes ADD COLUMN trust INTEGER NOT NULL DEFAULT 0;
CREATE TABLE relays (node INTEGER PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE authorities (
  number INTEGER PRIMARY KEY, key BLOB NOT NULL UNIQUE, chain TEXT NOT NULL, state TEXT NOT NULL,
  since INTEGER NOT NULL);
CREATE TABLE audit (
  number INTEGER PRIMARY KEY, at INTEGER NOT NULL, entry TEXT NOT NULL, chain BLOB NOT NULL);
CREATE TABLE signatures (
  run INTEGER NOT NULL, round INTEGER NOT NULL, site INTEGER NOT NULL, incarnation INTEGER NOT NULL,
  submission INTEGER NOT NULL, key BLOB NOT NULL, signature BLOB NOT NULL, PRIMARY KEY (run, round, site),
  FOREIGN KEY (run, round, site) REFERENCES contributions (run, round, site)) WITHOUT ROWID;
CREATE TABLE signers (site INTEGER PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE orders (
  run INTEGER NOT NULL, round INTEGER NOT NULL, statement BLOB NOT NULL, signature BLOB NOT NULL,
  PRIMARY KEY (run, round), FOREIGN KEY (run, round) REFERENCES commits (run, round)) WITHOUT ROWID;
)sql";

// Runs that go on with the optimizer's state of the run before. Models that stay: those with a label, and each run's
// best.
inline constexpr const char* kJournalVersion8 = R"sql(
ALTER TABLE runs ADD COLUMN keeps_optimizer INTEGER NOT NULL DEFAULT 0;
CREATE TABLE labels (
  run INTEGER NOT NULL REFERENCES runs (id), name TEXT NOT NULL, round INTEGER NOT NULL, model BLOB NOT NULL,
  labelled_at INTEGER NOT NULL, PRIMARY KEY (run, name)) WITHOUT ROWID;
CREATE TABLE best (
  run INTEGER PRIMARY KEY REFERENCES runs (id), round INTEGER NOT NULL, model BLOB NOT NULL, value REAL NOT NULL,
  evaluated INTEGER NOT NULL);
)sql";

// Updates that entered a later round than their own: the models that a contribution was trained from and admitted on,
// and of which round a refused one was (0: of that which refused it); the newest round of which each site's was
// decided, and what the site has given to the run.
inline constexpr const char* kJournalVersion9 = R"sql(
ALTER TABLE contributions ADD COLUMN base_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE contributions ADD COLUMN admitted_version INTEGER NOT NULL DEFAULT 0;
ALTER TABLE refusals ADD COLUMN own_round INTEGER NOT NULL DEFAULT 0;
CREATE TABLE marks (
  run INTEGER NOT NULL REFERENCES runs (id), site INTEGER NOT NULL, own_round INTEGER NOT NULL,
  rounds INTEGER NOT NULL, weight INTEGER NOT NULL, stale INTEGER NOT NULL, staleness INTEGER NOT NULL,
  PRIMARY KEY (run, site)) WITHOUT ROWID;
)sql";

// What a contribution counts for in a run that is fair by rate, of 512.
inline constexpr const char* kJournalVersion10 = R"sql(
ALTER TABLE contributions ADD COLUMN share INTEGER NOT NULL DEFAULT 512;
)sql";

// Of rounds with several passes: those before the last, who was in them, and the codec's state that the commit made;
// and the one that a run began with.
inline constexpr const char* kJournalVersion11 = R"sql(
CREATE TABLE passes (
  run INTEGER NOT NULL, round INTEGER NOT NULL, pass INTEGER NOT NULL, mean BLOB NOT NULL, mean_bytes INTEGER NOT NULL,
  PRIMARY KEY (run, round, pass), FOREIGN KEY (run, round) REFERENCES commits (run, round)) WITHOUT ROWID;
CREATE TABLE pass_contributions (
  run INTEGER NOT NULL, round INTEGER NOT NULL, pass INTEGER NOT NULL, site INTEGER NOT NULL, lease INTEGER NOT NULL,
  weight INTEGER NOT NULL, digest BLOB NOT NULL, probe INTEGER NOT NULL, PRIMARY KEY (run, round, pass, site),
  FOREIGN KEY (run, round, pass) REFERENCES passes (run, round, pass)) WITHOUT ROWID;
CREATE TABLE codec_states (
  run INTEGER NOT NULL, round INTEGER NOT NULL, digest BLOB NOT NULL, bytes INTEGER NOT NULL,
  PRIMARY KEY (run, round), FOREIGN KEY (run, round) REFERENCES commits (run, round)) WITHOUT ROWID;
ALTER TABLE runs ADD COLUMN codec_state BLOB;
ALTER TABLE runs ADD COLUMN codec_state_bytes INTEGER NOT NULL DEFAULT 0;
)sql";

// Whose child a contributor was by the lease that its update came under: who admitted it. NULL: the site has had
// several others since, or a version before committed it. A lease that is replaced stays known for a while, since an
// update that is in stays in when its site moves.
inline constexpr const char* kJournalVersion12 = R"sql(
ALTER TABLE contributions ADD COLUMN parent INTEGER;
CREATE TABLE former_leases (
  node INTEGER NOT NULL, epoch INTEGER NOT NULL, parent INTEGER NOT NULL, PRIMARY KEY (node, epoch)) WITHOUT ROWID;
CREATE TRIGGER lease_is_replaced BEFORE UPDATE ON leases WHEN old.parent != old.node BEGIN
  INSERT OR IGNORE INTO former_leases VALUES (old.node, old.epoch, old.parent);
  DELETE FROM former_leases WHERE node = old.node AND epoch <= (
    SELECT epoch FROM former_leases WHERE node = old.node ORDER BY epoch DESC LIMIT 1 OFFSET 8);
END;
CREATE VIEW known_leases AS
  SELECT node, epoch, parent FROM leases WHERE parent != node UNION ALL SELECT node, epoch, parent FROM former_leases;
)sql";

// A contribution's metrics may be null: the site reported one that is in no mean. A version before refuses such a row.
inline constexpr const char* kJournalVersion13 = "";

// Each step leads from one version to the next; a new journal takes all of them.
inline constexpr const char* kJournalSteps[] = {
    kJournalVersion1,  kJournalVersion2,  kLineageTables,   kJournalVersion4, kJournalVersion5,
    kJournalVersion6,  kJournalVersion7,  kJournalVersion8, kJournalVersion9, kJournalVersion10,
    kJournalVersion11, kJournalVersion12, kJournalVersion13};

}  // namespace fluvial::store
