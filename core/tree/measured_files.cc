#include "core/tree/measured_files.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/store/sole.h"

namespace fluvial::tree {
namespace {

constexpr std::string_view kOther = "other";
constexpr std::string_view kJournal = "journal";

// What of a data folder is which: the first part of the path within it.
std::vector<std::string_view> kinds_at(Role role) {
  switch (role) {
    case Role::kCoordinator: return {kJournal, "models", "spill", kOther};
    case Role::kAggregator: return {"spill", kOther};
    case Role::kSite: return {"state", kOther};
    case Role::kOperator: return {};
  }
  return {kOther};
}

}  // namespace

struct MeasuredFiles::Kind {
  Kind(telemetry::Metrics& metrics, const std::string& what)
      : write_seconds(metrics.histogram("disk_write_seconds", {{"what", what}})),
        fsync_seconds(metrics.histogram("disk_fsync_seconds", {{"what", what}})),
        written_bytes(metrics.counter("disk_written_bytes_total", {{"what", what}})) {}
  telemetry::Histogram write_seconds;
  telemetry::Histogram fsync_seconds;
  telemetry::Counter written_bytes;
};

namespace {

template <typename Call>
Status timed(const Clock& clock, const telemetry::Histogram& seconds, const Call& call) {
  const TimePoint begun = clock.now();
  Status done = call();
  seconds.observe(std::chrono::duration<double>(clock.now() - begun).count());
  return done;
}

}  // namespace

class MeasuredFiles::MeasuredFile final : public store::File, public store::KnowsOthers {
 public:
  MeasuredFile(std::unique_ptr<store::File> file, const Kind& kind, const Clock& clock)
      : file_(std::move(file)), kind_(kind), clock_(clock) {}

  Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) override {
    return file_->read_at(offset, into);
  }
  Status write_at(std::uint64_t offset, ByteSpan bytes) override {
    FLUVIAL_TRY(timed(clock_, kind_.write_seconds, [&] { return file_->write_at(offset, bytes); }));
    kind_.written_bytes.add(static_cast<double>(bytes.size()));
    return {};
  }
  Status truncate(std::uint64_t size_bytes) override { return file_->truncate(size_bytes); }
  Result<std::uint64_t> size() override { return file_->size(); }
  Status sync() override {
    return timed(clock_, kind_.fsync_seconds, [&] { return file_->sync(); });
  }
  Status sync_data() override {
    return timed(clock_, kind_.fsync_seconds, [&] { return file_->sync_data(); });
  }
  Result<bool> try_lock() override { return file_->try_lock(); }
  void unlock() override { file_->unlock(); }
  bool is_sole() override { return store::is_sole(*file_); }

 private:
  std::unique_ptr<store::File> file_;
  const Kind& kind_;
  const Clock& clock_;
};

MeasuredFiles::MeasuredFiles(store::FileSystem& files, telemetry::Metrics& metrics, const Clock& clock,
                             std::string data_folder)
    : files_(files), clock_(clock), data_folder_(std::move(data_folder)) {
  for (const std::string_view what : kinds_at(metrics.role())) {
    kinds_.emplace(what, std::make_unique<Kind>(metrics, std::string(what)));
  }
}

MeasuredFiles::~MeasuredFiles() = default;

const MeasuredFiles::Kind& MeasuredFiles::kind_of(const std::string& path) const {
  std::string_view within(path);
  if (!within.starts_with(data_folder_)) return *kinds_.find(kOther)->second;
  within.remove_prefix(data_folder_.size());
  within.remove_prefix(std::min(within.find_first_not_of('/'), within.size()));
  const std::string_view first = within.substr(0, within.find('/'));
  const auto found = kinds_.find(first.starts_with("journal.sqlite") ? kJournal : first);
  return found == kinds_.end() ? *kinds_.find(kOther)->second : *found->second;
}

Result<std::unique_ptr<store::File>> MeasuredFiles::open(const std::string& path, store::OpenMode mode) {
  FLUVIAL_ASSIGN(std::unique_ptr<store::File> file, files_.open(path, mode));
  return std::unique_ptr<store::File>(std::make_unique<MeasuredFile>(std::move(file), kind_of(path), clock_));
}

Result<std::unique_ptr<store::File>> MeasuredFiles::open_unnamed(const std::string& folder) {
  FLUVIAL_ASSIGN(std::unique_ptr<store::File> file, files_.open_unnamed(folder));
  return std::unique_ptr<store::File>(std::make_unique<MeasuredFile>(std::move(file), kind_of(folder), clock_));
}

Status MeasuredFiles::sync_folder(const std::string& path) {
  return timed(clock_, kind_of(path).fsync_seconds, [&] { return files_.sync_folder(path); });
}

}  // namespace fluvial::tree
