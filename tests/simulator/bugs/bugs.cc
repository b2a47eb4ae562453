#include "tests/simulator/bugs/bugs.h"

#include <map>
#include <optional>
#include <utility>

namespace fluvial::simulator {
namespace {

class CountsOnAck final : public Tamper {
  bool counts_on_ack() override { return true; }
};

class SkipsFence final : public Tamper {
  bool admits_stale() override { return true; }
};

class GuessesOutcome final : public Tamper {
  void missed(edge::Verdict* verdict) override {
    if (!verdict->counted && !verdict->refused) verdict->late = true;
  }
};

// The state of the last round that was finalised, whether or not it was committed.
class OptimizerOutsideCommit final : public Tamper {
  void optimizer_finalised(const std::vector<float>& state) override { state_ = state; }
  void optimizer_loaded(std::vector<float>* state) override {
    if (!state_.empty()) *state = state_;
  }
  std::vector<float> state_;
};

class ReusesEpoch final : public Tamper {
  Result<Epoch> term(store::CoordinatorJournal& journal) override {
    if (term_) return *term_;
    FLUVIAL_ASSIGN(term_, journal.next_epoch());
    return *term_;
  }
  std::optional<Epoch> term_;
};

class MergesOverlap final : public Tamper {
  bool merges_overlap() override { return true; }
};

class ForgetsQuarantine final : public Tamper {
  bool forgets_quarantine() override { return true; }
};

// A disk whose syncs do nothing.
class UnsyncedFile final : public store::File {
 public:
  explicit UnsyncedFile(std::unique_ptr<store::File> file) : file_(std::move(file)) {}
  Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) override {
    return file_->read_at(offset, into);
  }
  Status write_at(std::uint64_t offset, ByteSpan bytes) override { return file_->write_at(offset, bytes); }
  Status truncate(std::uint64_t size_bytes) override { return file_->truncate(size_bytes); }
  Result<std::uint64_t> size() override { return file_->size(); }
  Status sync() override { return {}; }
  Status sync_data() override { return {}; }
  Result<bool> try_lock() override { return file_->try_lock(); }
  void unlock() override { file_->unlock(); }

 private:
  std::unique_ptr<store::File> file_;
};

class UnsyncedFiles final : public store::FileSystem {
 public:
  explicit UnsyncedFiles(store::FileSystem& files) : files_(files) {}
  Result<std::unique_ptr<store::File>> open(const std::string& path, store::OpenMode mode) override {
    return wrap(files_.open(path, mode));
  }
  Result<std::unique_ptr<store::File>> open_unnamed(const std::string& folder) override {
    return wrap(files_.open_unnamed(folder));
  }
  Status rename(const std::string& from, const std::string& to) override { return files_.rename(from, to); }
  Status remove(const std::string& path) override { return files_.remove(path); }
  Result<bool> exists(const std::string& path) override { return files_.exists(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override { return files_.list(folder); }
  Status make_folder(const std::string& path) override { return files_.make_folder(path); }
  Status sync_folder(const std::string&) override { return {}; }

 private:
  static Result<std::unique_ptr<store::File>> wrap(Result<std::unique_ptr<store::File>> file) {
    if (!file.ok()) return file;
    return std::unique_ptr<store::File>(std::make_unique<UnsyncedFile>(std::move(*file)));
  }
  store::FileSystem& files_;
};

class SendsBeforeSync final : public Tamper {
  store::FileSystem& site_files(HostId host, store::FileSystem& honest) override {
    const auto [entry, fresh] = files_.try_emplace(host, honest);
    return entry->second;
  }
  std::map<HostId, UnsyncedFiles> files_;
};

}  // namespace

const std::vector<Bug>& bugs() {
  static const std::vector<Bug> all = {
      {"counts-on-ack", "a site takes the parent's acknowledgement for the commit"},
      {"skips-fence", "a parent admits what is under an older lease, attempt or epoch"},
      {"guesses-outcome", "a site that a commit does not name takes its update for late"},
      {"optimizer-outside-commit", "the optimizer's state is kept apart from the commit, and taken up after a restart"},
      {"reuses-epoch", "a restarted coordinator goes on under its last epoch"},
      {"sends-before-sync", "a site sends its submission before it is synced"},
      {"forgets-quarantine", "the coordinator samples a site that contradicted itself"},
      {"merges-overlap", "a parent adds a partial that overlaps with what it holds"},
  };
  return all;
}

std::unique_ptr<Tamper> make_bug(const std::string& name) {
  if (name == "counts-on-ack") return std::make_unique<CountsOnAck>();
  if (name == "skips-fence") return std::make_unique<SkipsFence>();
  if (name == "guesses-outcome") return std::make_unique<GuessesOutcome>();
  if (name == "optimizer-outside-commit") return std::make_unique<OptimizerOutsideCommit>();
  if (name == "reuses-epoch") return std::make_unique<ReusesEpoch>();
  if (name == "sends-before-sync") return std::make_unique<SendsBeforeSync>();
  if (name == "forgets-quarantine") return std::make_unique<ForgetsQuarantine>();
  if (name == "merges-overlap") return std::make_unique<MergesOverlap>();
  return nullptr;
}

}  // namespace fluvial::simulator
