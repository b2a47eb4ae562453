// What a site's agent keeps on disk: its incarnation, for each run the residual and at most one unresolved submission,
// and the outcome of the last one resolved; of runs that are over until another begins. A journal (SQLite) says which
// tensor files count; files it does not name are swept at open(), and until then written again (spare_files.h). So each
// transition is one transaction: old or new, whatever crashes.
//
//   begin_pending() -> PendingWriter: p, encoded chunks, trailer -> finish()    durable: the trailer may be sent
//   pending()       -> send again as often as asked
//   resolve()       counted: residual = p - decode(chunks), or zero; late: residual = p; refused: residual unchanged
//
// What a codec keeps from round to round beside the residual (a momentum) goes with it: as it was when p was made it
// stands behind p in the same file, and is in force from the transaction on that puts p, or what p leaves, in force.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/ids.h"
#include "core/digest/submission_digest.h"
#include "core/round/contribution.h"
#include "core/round/history.h"
#include "core/store/file_system.h"
#include "core/store/rows.h"
#include "core/store/spare_files.h"

namespace fluvial::store {

class Database;
class SiteStore;
struct ResidualRow;

struct ResidualInfo {
  bool zero = true;               // nothing is carried over: no file
  std::uint64_t value_count = 0;  // of the file
  std::uint64_t age_rounds = 0;   // submissions since one was counted
  double norm = 0;                // 2-norm
  bool operator==(const ResidualInfo&) const = default;
};

// How what was encoded comes from p: each value clamped to +-value_max, then times factor. What that leaves out is not
// in the submission.
struct Fit {
  float value_max = 0;  // 0: p itself was encoded
  float factor = 1;
  bool whole() const { return value_max == 0; }
  bool operator==(const Fit&) const = default;
};

// Makes `p`, the values of a chunk, what the encoded chunk left out of them: p - decode(chunk). kDataLoss when the
// bytes are no such chunk. Any thread.
using LeaveChunk = std::function<Status(ByteSpan chunk, std::span<float> p)>;
// For chunks of this codec (as the plan writes it), encoded with this fit: the codecs are not known here.
using LeaveBy = std::function<Result<LeaveChunk>(const std::string& codec, const Fit& fit)>;

// Of a residual, by the plan; 0: no bound.
struct ResidualBounds {
  double norm_max = 0;
  std::uint64_t age_max_rounds = 0;
  bool operator==(const ResidualBounds&) const = default;
};

// What became of the residual.
struct Carried {
  ResidualInfo residual;  // what the next update begins with
  std::string dropped;    // why what there was is gone, with its norm; empty when nothing was dropped
};

struct PendingStart {
  RunId run;
  RoundId round;
  std::uint64_t weight = 0;
  std::string codec;  // as the plan writes it
  Digest base{};      // of the model it was trained from
  round::Metrics metrics;
  std::uint64_t value_count = 0;
  std::uint64_t chunk_count = 0;
  std::uint64_t integer_count = 0;
  bool lossless = false;                  // the chunks' bytes, one after the other, are p itself (fp32): stored once
  std::uint64_t chunk_values = 0;         // coordinates a chunk, to decode the chunks by when the plan is not at hand
  std::vector<std::string> workers = {};  // whose results are in it: names without blanks
  Fit fit = {};                           // whole where it is lossless
  ResidualBounds bounds = {};             // of what its outcome leaves
  DigestKind digest_kind = DigestKind::kStream;
  float late_factor = 1;          // its residual's, if it is late (core/round/lateness.h)
  std::uint64_t state_bytes = 0;  // of the codec's state; not where it is lossless
  // Of a codec with several passes (docs/design/phases.md): how many; which one this is of, and from which mean; how
  // many values travel in it (0: those of p); and the model's schema (as JSON), to encode the later ones by.
  std::uint32_t passes = 1;
  round::MadeFrom from = {};
  std::uint64_t sent_values = 0;
  std::string schema = {};
  bool is_last_pass() const { return from.pass + 1 == passes; }  // which the contribution is
};

// What a submission sends in a later pass of its round.
struct PassStart {
  RunId run;
  RoundId round;
  round::MadeFrom from;
  Epoch epoch;  // of the opening that named the mean
  AttemptId attempt;
  std::uint64_t sent_values = 0;
  std::uint64_t chunk_count = 0;
  DigestKind digest_kind = DigestKind::kStream;
};

struct PendingInfo {
  PendingStart start;
  Incarnation incarnation;        // that encoded it
  std::uint64_t submission = 0;   // 1, 2, ... over this folder's life
  Digest digest{};                // of its chunks and its trailer
  std::uint64_t chunk_bytes = 0;  // of all chunks together
  // Of what the trailer brings: the integers, 8 bytes each, then the probe. A submission of an earlier version has
  // none.
  std::uint64_t trailer_bytes = 0;
  double p_norm = 0;
  std::optional<double> left_norm = {};  // of what it leaves when it is counted; none: not known yet

  bool has_probe() const { return trailer_bytes > start.integer_count * sizeof(std::int64_t); }
};

// A submission on disk. Reads go to the files; they stay readable while this object lives, also after resolve(). In the
// process that made it, its encoded bytes are in memory as well, if they are no longer than p.
class PendingUpdate {
 public:
  const PendingInfo& info() const { return info_; }
  std::uint64_t chunk_size_bytes(std::uint64_t index) const;
  Status read_chunk(std::uint64_t index, MutableByteSpan into) const;  // into.size() == chunk_size_bytes(index)
  Result<Buffer> read_chunk(std::uint64_t index) const;
  Result<Buffer> read_trailer() const;
  Status read_integers(std::span<std::int64_t> into) const;  // of it: integer_count values
  Status read_p(std::uint64_t first_value, std::span<float> into) const;

  bool in_memory() const { return memory_ != nullptr; }
  void forget_memory() { memory_.reset(); }
  // As they are sent: from memory, else read.
  Result<SharedBytes> chunk(std::uint64_t index) const;
  Result<SharedBytes> trailer() const;

 private:
  friend class SiteStore;
  friend class PendingWriter;
  PendingInfo info_;
  std::vector<std::uint64_t> chunk_ends_;
  std::shared_ptr<const std::vector<SharedBytes>> memory_;  // the chunks, then the trailer
  std::shared_ptr<File> p_;
  std::shared_ptr<File> chunks_;  // encoded chunks, then the trailer
};

// Writes a submission. One thread at a time. Destroyed without finish(): nothing happened.
class PendingWriter {
 public:
  ~PendingWriter();
  PendingWriter(const PendingWriter&) = delete;
  PendingWriter& operator=(const PendingWriter&) = delete;

  std::uint64_t submission() const { return info_.submission; }
  const PendingInfo& info() const { return info_; }

  // In order and without gaps, each. In a lossless submission write_p() does nothing: the chunks are p. Of a later pass
  // what is written in the place of p is what it leaves of p when it is counted.
  Status write_p(std::uint64_t first_value, std::span<const float> values);
  Status write_state(ByteSpan state);  // once, at any time; all of it: start.state_bytes
  Status write_chunk(std::uint64_t index, ByteSpan encoded);
  Status keep_chunk(std::uint64_t index, SharedBytes encoded);  // and keeps it in memory, to be sent
  Status write_trailer(ByteSpan trailer);  // after the last chunk; once: the integers' bytes and the probe's
  // Durable when it returns; the writer is spent. kFailedPrecondition when values, chunks or the trailer are missing.
  // `left_norm`: as in PendingInfo.
  Result<PendingUpdate> finish(const Digest& digest, std::optional<double> left_norm = {});

 private:
  friend class SiteStore;
  PendingWriter() = default;
  SiteStore* store_ = nullptr;
  PendingInfo info_;
  std::optional<PassStart> pass_;  // none: it is the submission itself, and its first pass
  std::string p_name_;
  std::string chunks_name_;
  SpareFiles::Slot p_;
  SpareFiles::Slot chunks_;            // the same file, if the chunks are p
  std::vector<std::string> replaces_;  // files that no record names once this is durable
  std::vector<std::uint64_t> chunk_ends_;
  PendingUpdate update() const;    // as it is written
  std::vector<SharedBytes> kept_;  // every chunk so far, or none
  std::shared_ptr<const std::vector<SharedBytes>> memory_;
  std::uint64_t kept_bytes_ = 0;
  std::uint64_t values_written_ = 0;
  bool state_written_ = false;
  bool finished_ = false;
  double square_sum_ = 0;
};

// What a run carries over, as it was when this was opened: it stays readable while this object lives. Any thread.
class Residual {
 public:
  const ResidualInfo& info() const { return info_; }
  // Values from `first_value` on; zeros when there is no residual. kFailedPrecondition beyond its end; kDataLoss when a
  // file is damaged. What a counted submission left out is computed here, a chunk at a time.
  Status read(std::uint64_t first_value, std::span<float> into) const;

  // Of the codec that made it, as it was before any chunk was sent: 0 bytes if it has none, or there is no residual.
  const std::string& codec() const { return codec_; }
  std::uint64_t state_bytes() const { return state_bytes_; }
  Status read_state(MutableByteSpan into) const;  // all of it
  // The encoded chunks that were counted since: what they do to the state is the codec's to say.
  std::size_t counted_chunks() const { return chunk_ends_.size(); }
  std::uint64_t chunk_values() const { return chunk_values_; }  // in each of them but the last
  Result<Buffer> counted_chunk(std::size_t index) const;

 private:
  friend class SiteStore;
  Status read_chunk(std::uint64_t index, std::span<float> into) const;
  ResidualInfo info_;
  std::shared_ptr<File> file_;      // the residual, or p
  std::shared_ptr<File> chunks_;    // that were sent of p; null: the file is the residual
  std::uint64_t chunks_bytes_ = 0;  // of their file, so that nothing is reserved for what it does not hold
  std::vector<std::uint64_t> chunk_ends_;
  std::uint64_t chunk_values_ = 0;
  float factor_ = 1;  // of what the file holds
  std::string codec_;
  std::uint64_t state_bytes_ = 0;
  LeaveChunk leave_;
};

// Writes a late update that was not sent, beside the residual in force.
class ResidualWriter {
 public:
  ~ResidualWriter();
  ResidualWriter(const ResidualWriter&) = delete;
  ResidualWriter& operator=(const ResidualWriter&) = delete;

  Status write(std::uint64_t first_value, std::span<const float> values);  // in order and without gaps
  Status write_state(const std::string& codec, ByteSpan state);            // after the last value, once

 private:
  friend class SiteStore;
  ResidualWriter() = default;
  SiteStore* store_ = nullptr;
  RunId run_;
  std::string name_;
  SpareFiles::Slot slot_;
  std::uint64_t value_count_ = 0;
  std::string codec_;
  std::uint64_t state_bytes_ = 0;
  double square_sum_ = 0;
  bool kept_ = false;
};

// What a run that is over left.
struct Unspent {
  RunId run;
  ResidualInfo residual;
  bool carried_over = false;  // into the run that began; else forgotten
};

struct LastOutcome {
  RoundId round;
  Outcome outcome = Outcome::kPending;
  bool operator==(const LastOutcome&) const = default;
};

// What became of the last result of a worker.
struct WorkerOutcome {
  std::string worker;
  LastOutcome last;
  bool operator==(const WorkerOutcome&) const = default;
};
inline constexpr std::size_t kWorkerOutcomesMax = 256;  // of a run, the latest

// What another history does not hold, of one run.
struct PutAside {
  RunId run;
  bool run_lost = false;          // the run itself: its residual is gone
  std::optional<RoundId> late;    // the submission of this round: it is the residual now
  std::optional<RoundId> undone;  // the last outcome was of this round
  ResidualInfo residual;          // in force; of a run that is lost: what was dropped
  std::string dropped = {};       // why the late submission is not the residual; empty: it is
  bool operator==(const PutAside&) const = default;
};

// Thread safe (one mutex); writers and PendingUpdates are one thread's each and must not outlive it (but for reads).
class SiteStore {
 public:
  // Makes the folder when it is not there; bumps the incarnation, durably; sweeps files that no record names. Each
  // enrolment of the name has 2^32 incarnations: a folder that was lost and begins anew contradicts none of those
  // before it. Errors as CoordinatorJournal::open.
  // Without `leave` it reads no residual that a counted submission left.
  static Result<std::unique_ptr<SiteStore>> open(FileSystem& files, const std::string& folder,
                                                 std::uint64_t enrolled_before = 0, LeaveBy leave = {});
  ~SiteStore();

  Incarnation incarnation() const { return incarnation_; }
  // Set after an I/O error at a commit: nothing more is taken until the store is opened anew, and only then is it known
  // what is on the disk.
  std::optional<Error> fault();

  Result<ResidualInfo> residual(RunId run);
  Result<Residual> open_residual(RunId run);
  Status read_residual(RunId run, std::uint64_t first_value, std::span<float> into);  // of it, once

  // ---- histories (core/round/history.h)
  Result<round::Lineage> lineage();
  Result<round::Standing> standing();
  // A lease of a history with this lineage. The same history as before: its epoch is remembered. Another one: in one
  // transaction, submissions of rounds that it does not hold become late, such outcomes are forgotten, and everything
  // of runs that it does not hold is. kFailedPrecondition, with what to do, when the other history did not begin after
  // all that was heard of here: there is no way back to an older one.
  Result<std::vector<PutAside>> enter(const round::Lineage& lineage, Epoch lease);

  // kFailedPrecondition while the run has an unresolved submission.
  Result<std::unique_ptr<PendingWriter>> begin_pending(PendingStart start);
  Result<std::optional<PendingUpdate>> pending(RunId run);
  Result<std::vector<PendingInfo>> all_pending();
  // A later pass of the unresolved submission, with a number of its own. Durable, it takes the place of what was made
  // of an earlier attempt's mean. kFailedPrecondition: there is no such submission, or the pass before is not here;
  // kStale: it was made already for a later attempt, or for this one from another mean; kAlreadyExists: for this one.
  Result<std::unique_ptr<PendingWriter>> begin_pass(const PassStart& start);
  Result<std::optional<PendingUpdate>> pending_pass(RunId run);  // the last one that is here, after the first

  Result<std::unique_ptr<ResidualWriter>> begin_residual(RunId run);
  // Counted: the residual is what the submission left out, p - decode(chunks), of this norm; its files stay. Without a
  // norm nothing was left out. With several passes it is what was written with the last one, and kFailedPrecondition
  // without that. Late: p times its late_factor. Refused: unchanged. A residual beyond the submission's bounds is
  // dropped in the same transaction, and the codec's state with it. The same again for the same round, or for an older
  // one, does nothing; kFailedPrecondition for another outcome of the same round or without a submission.
  Result<Carried> resolve(RunId run, RoundId round, Outcome outcome, std::optional<double> left_norm = {});
  // An update that was never sent is late: p, as the writer holds it, is the residual, if it is within the bounds, in
  // one transaction. kFailedPrecondition while the run has an unresolved submission, or when the round is resolved
  // already. Of a `lost` round, one of a history before, no outcome is remembered: this history's has the same number.
  // `late_factor`: as in PendingStart.
  Result<Carried> fold(RunId run, RoundId round, std::unique_ptr<ResidualWriter> p, const ResidualBounds& bounds = {},
                       const std::vector<std::string>& workers = {}, bool lost = false, float late_factor = 1);
  Result<std::optional<LastOutcome>> last_outcome(RunId run);
  std::uint64_t files_reused();  // tensor files that were written again, since open()
  // Of the workers named by the submissions that were resolved or folded, written in the same transactions. By run.
  Result<std::map<RunId, std::vector<WorkerOutcome>>> worker_outcomes();
  // Before a run's first update; the same again does nothing. In one transaction the newest of the runs that it
  // continues that left a residual, of `value_count` values, leaves it to this run, and everything else of the runs
  // before is forgotten. Says what became of each residual. kFailedPrecondition while one of them has an unresolved
  // submission.
  Result<std::vector<Unspent>> begin_run(RunId run, std::span<const RunId> continues, std::uint64_t value_count);

 private:
  friend class PendingWriter;
  friend class ResidualWriter;
  SiteStore(FileSystem& files, std::string folder, std::unique_ptr<Database> database, LeaveBy leave);
  Status load(std::uint64_t enrolled_before);
  Status sweep();
  std::string new_name();
  std::string path_of(const std::string& name) const;
  void remove_file(const std::string& name);  // that no record has named
  void retire(const std::string& name);       // that no record names any more, durably; empty: none
  bool may_be_recorded(const Status& recorded) const;
  Result<PendingUpdate> finish(PendingWriter& writer);
  Status sync(const PendingWriter& writer);
  Status record_pending(const PendingWriter& writer);
  Status record_pass(PendingWriter& writer);
  Status may_begin_pass(const PassStart& start);
  Result<std::optional<PendingUpdate>> pending_locked(RunId run);
  Result<std::optional<LastOutcome>> last_outcome_locked(RunId run);
  Status may_write(RunId run);
  Status may_begin(RunId run, RoundId round);
  Status put_in_force(const ResidualRow& now, ResidualWriter& writer, const std::function<Status()>& record);
  // Within a transaction. Without a digest no outcome is remembered.
  Status write_outcome(RunId run, RoundId round, Outcome outcome, const std::optional<Digest>& digest,
                       const ResidualRow& now, const std::vector<std::string>& workers);
  Result<PutAside> put_aside(RunId run, const round::Common& common, std::vector<std::string>& files);
  Status record_workers(RunId run, RoundId round, Outcome outcome, const std::vector<std::string>& workers);

  FileSystem& files_;
  std::string folder_;
  std::mutex mutex_;
  std::unique_ptr<Database> database_;
  SpareFiles spares_;
  LeaveBy leave_;
  Incarnation incarnation_;
  std::uint64_t names_ = 0;
  std::uint64_t submissions_ = 0;
};

}  // namespace fluvial::store
