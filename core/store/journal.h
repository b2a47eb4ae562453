// The coordinator's journal: every method that changes something is one durable transaction (fsynced when it returns).
// SQLite (WAL, synchronous=FULL) under it; no SQL outside this room.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/round/gather.h"
#include "core/store/file_system.h"
#include "core/store/model_store.h"
#include "core/store/rows.h"

namespace fluvial::store {

class Database;
class AuditLog;
class CertificateBook;
class ModelBook;

// Thread safe (one mutex). Blocking: services call it on their pool. After an I/O error of the journal's own every
// further change is refused with kUnavailable: the process must be started again, which reads what is on the disk.
class CoordinatorJournal {
 public:
  // Opens or makes `path`. kFailedPrecondition when another process holds it or a newer Fluvial wrote it; kDataLoss
  // when it is damaged.
  static Result<std::unique_ptr<CoordinatorJournal>> open(FileSystem& files, const std::string& path);
  ~CoordinatorJournal();

  // Why the journal can promise nothing at present: the failure since which it refuses every change, or the full disk
  // that its last change met. None: it works. Never blocks.
  std::optional<Error> fault() const;

  // The whole journal as it is at one moment, as one durable file at `path`, which it replaces. Other calls go on
  // meanwhile.
  Status copy_to(const std::string& path);

  // ---- federation
  Status found(const FederationRow& federation);  // kAlreadyExists when it has been founded
  Result<std::optional<FederationRow>> federation();
  Result<Epoch> next_epoch();  // 1, 2, ...: never repeats, also across crashes; shared with leases

  // ---- histories: this journal may be an older copy, put back on purpose
  Result<round::Lineage> lineage();
  // Begins a new history: the journal is such a copy. `id` is drawn and not 0. The history's first epoch is above all
  // that the counter gave, above `above`, and at least the milliseconds from 1970 to `now`; so it is above every epoch
  // that was given after the copy was made. Every lease gets a new epoch. Node ids that may have been given meanwhile
  // are skipped; tokens that may have been used meanwhile end.
  Result<round::History> begin_history(round::HistoryId id, Epoch above, WallTime now);
  // A member shows what it knows. kFailedPrecondition, with what to do, when the member knows of something that this
  // journal should hold and does not. Otherwise what it knows of rounds that only a lost history holds is recorded and
  // returned.
  Result<std::vector<LostRow>> meet(NodeId node, const round::Standing& standing, WallTime now);
  Result<std::vector<LostRow>> lost();

  // ---- tokens and nodes
  Status add_token(const TokenRow& token);  // kAlreadyExists for the same id or hash
  Result<std::optional<TokenRow>> find_token(const Digest& secret_hash);
  Result<std::vector<TokenRow>> tokens();
  // Ends the token. kNotFound; kFailedPrecondition when it was used up; fine when revoked already.
  Status revoke_token(const std::string& id, WallTime now);
  // Marks the token used and registers the node and its certificate, all or nothing. kUnauthenticated when there is no
  // such token, when it was used up (saying when), revoked, is expired at `now`, or is for another role or name, and
  // when the certificate's key was revoked. A node of this role and
  // name keeps its id and loses its revocation, removal, old serial and its lease's epoch, not a quarantine; a name
  // held by another role is kAlreadyExists, as is any name that is held when the token is for several. Returns the row
  // as it stands. `node.id` is 0, or an id from reserve_node_id() so that the certificate can name it before.
  Result<NodeRow> redeem_token(const Digest& secret_hash, NodeRow node, WallTime now,
                               const NewCertificate& certificate = {});
  // The id that a node of this role and name has or would get. Durable: nobody else gets it.
  Result<NodeId> reserve_node_id(Role role, const std::string& name);
  Status set_advertise(NodeId node, const std::string& address);  // kNotFound
  Status set_certificate_serial(NodeId node, const std::string& serial);
  // The node's certificates and their keys are refused for ever, and the unused tokens for its name end: none of them
  // brings it back. kNotFound; fine when revoked already.
  Status revoke(NodeId node, WallTime now);
  Status remove(NodeId node, WallTime now);  // kNotFound; also revokes it
  // How many tokens were redeemed for this name.
  Result<std::uint64_t> enrolments(const std::string& name);
  // The site takes part in no round from now on. kNotFound; when it is quarantined already the first reason stays.
  Status quarantine(SiteId site, WallTime now, const std::string& reason);
  Status clear_quarantine(SiteId site);  // kNotFound; fine when there is none
  Result<std::vector<NodeRow>> nodes();
  Result<std::optional<NodeRow>> node(NodeId id);
  Result<std::optional<NodeRow>> node_named(const std::string& name);

  // ---- leases
  // The node's lease under `parent`. A new epoch only when the parent changes, there was none, or the node has enrolled
  // anew since. `passes_on`: the node passes signatures on to those below it, which is kept for good.
  Result<LeaseRow> grant(NodeId node, NodeId parent, bool passes_on = false);
  // A new epoch under the same parent: whatever still travels under the old one is fenced.
  Result<LeaseRow> renew(NodeId node);
  // Aggregators that were seen to pass signatures on (grant()), since they last enrolled.
  Result<std::set<NodeId>> relays();
  // A lease that an enrolment made void names the node itself as parent, until the next grant.
  Result<std::vector<LeaseRow>> leases();

  // ---- runs
  Result<RunId> create_run(const RunRow& run);
  // kNotFound; kFailedPrecondition when the run is stopped or done: those are final (another run may continue it).
  Status set_run_status(RunId run, RunStatus status, const std::string& reason);
  Result<std::vector<RunRow>> runs();
  Result<RunRow> run(RunId id);  // kNotFound
  // The run that it continues, then the run before that, and so on; at most `most`.
  Result<std::vector<RunId>> continued_by(RunId run, std::size_t most);

  // ---- rounds
  // kFailedPrecondition: the round is not the one after the last commit; the attempt does not grow, or the epoch falls;
  // or scale or base differ from an earlier attempt of the round, or one of its participants is missing or has another
  // maximum weight (leases may change, participants may be added).
  Status open_attempt(const round::AttemptRecord& attempt);
  // Without the size of its base, which is that of the run's schema.
  Result<std::optional<round::AttemptRecord>> last_attempt(RunId run);
  // The commit point of a round. kFailedPrecondition: not the round after the last commit, not its last attempt, or a
  // contributor that is no participant of it, or with `late_is_next` one whose mark does not rise by it.
  Status commit(const CommitRow& commit);
  Result<std::optional<CommitRow>> last_commit(RunId run);
  // Rounds from `from` on, ascending, at most `limit`.
  Result<std::vector<CommitRow>> commits(RunId run, RoundId from, std::uint64_t limit);
  Result<CommitRow> commit_of(RunId run, RoundId round);  // kNotFound
  // The sites of which a committed contribution was signed. They are not pruned: whoever signs goes on to do so.
  Result<std::set<SiteId>> signers();
  Status set_evaluation(RunId run, RoundId round, const round::Metrics& metrics);  // kNotFound

  // Of a run with `late = "next"`, the newest round of which each site's update was decided, by the update's own round.
  Result<round::Marks> marks(RunId run);
  // Of a run with `late = "next"`, how often each site is in a committed round.
  Result<std::map<SiteId, SiteShare>> shares(RunId run);

  // What became of the update with this digest. kNotFound for a run that is not in the journal. While a run goes on, a
  // round without commit is pending; once it is stopped or done it is late. With `late = "next"` it is counted if one
  // of the rounds that it may enter holds it, and pending until the last of them is committed, or until its site's mark
  // is at its own round or above: then it is late.
  Result<Outcome> outcome(RunId run, RoundId round, SiteId site, const Digest& digest);

  // Every model that a record refers to: each run's initial one and the committed ones (also those pruned already).
  Result<std::vector<round::ModelKey>> referenced_models();

  // ---- retention (journal_retention.cc)
  // Prunes one batch of the rounds that are too many or too old, the oldest first: their commits, contributions,
  // refusals, late sites and attempts. A run keeps its last commit and those whose models its plan keeps. outcome()
  // stays exact for every submission that can still be unresolved. Returns how many rounds it pruned; 0: there is
  // nothing left to prune.
  Result<std::uint64_t> prune_rounds(const KeptRounds& kept);
  Result<RoundId> pruned(RunId run);  // rounds up to this one are pruned; 0: none
  // Removes tokens that nobody has used since then and nobody can use any more: used up, revoked or expired. Returns
  // how many.
  Result<std::uint64_t> prune_tokens(WallTime since);
  Result<JournalSize> size();

 private:
  friend class AuditLog;         // audit_log.h
  friend class AuthorityBook;    // authority_book.h
  friend class CertificateBook;  // certificate_book.h
  friend class ModelBook;        // model_book.h
  explicit CoordinatorJournal(std::unique_ptr<Database> database);
  Status change(const std::function<Status()>& body);  // a transaction, with mutex_ held

  std::mutex mutex_;
  mutable std::mutex fault_mutex_;
  std::optional<Error> fault_;
  std::unique_ptr<Database> database_;
};

}  // namespace fluvial::store
