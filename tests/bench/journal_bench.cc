// The cost of a coordinator's journal that holds years of rounds: its size, the time to open it, to answer an outcome
// query and to commit a round, before and after pruning, and how long a commit waits for a batch of pruning at
// most.
#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/digest/sha256.h"
#include "core/store/journal.h"
#include "core/store/unsynced_file.h"

namespace fluvial::store {
namespace {

struct Options {
  std::uint64_t rounds = 100'000;
  std::uint64_t sites = 4;
  std::uint64_t keep = 10'000;
  std::string folder;
};

constexpr RunId kRun(1);

template <typename T>
T must(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "journal_bench: %s\n", result.error().to_string().c_str());
  std::exit(1);
}
void must(const Status& status) {
  if (status.ok()) return;
  std::fprintf(stderr, "journal_bench: %s\n", status.error().to_string().c_str());
  std::exit(1);
}

double milliseconds(const std::function<void()>& body) {
  const auto begun = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begun).count();
}

void print_times(const char* what, std::vector<double> times_ms) {
  std::sort(times_ms.begin(), times_ms.end());
  std::printf("  %-28s median %8.3f ms, greatest %8.3f ms, %zu times\n", what, times_ms[times_ms.size() / 2],
              times_ms.back(), times_ms.size());
}

class UnsyncedFiles final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open(const std::string& path, OpenMode mode) override {
    FLUVIAL_ASSIGN(std::unique_ptr<File> file, files_.open(path, mode));
    return std::unique_ptr<File>(new UnsyncedFile(std::move(file)));
  }
  Result<std::unique_ptr<File>> open_unnamed(const std::string& folder) override { return files_.open_unnamed(folder); }
  Status rename(const std::string& from, const std::string& to) override { return files_.rename(from, to); }
  Status remove(const std::string& path) override { return files_.remove(path); }
  Result<bool> exists(const std::string& path) override { return files_.exists(path); }
  Result<std::vector<std::string>> list(const std::string& folder) override { return files_.list(folder); }
  Status make_folder(const std::string& path) override { return files_.make_folder(path); }
  Status sync_folder(const std::string&) override { return {}; }

 private:
  PosixFileSystem files_;
};

Digest update_of(std::uint64_t round, std::uint64_t site) {
  return sha256(as_byte_span(std::to_string(round) + "/" + std::to_string(site)));
}

void start_run(CoordinatorJournal& journal) {
  RunRow row;
  row.plan.name = "bench";
  row.schema = must(round::Schema::make({{"w", round::DType::kF32, {1000}}}));
  must(journal.create_run(row));
}

void commit(CoordinatorJournal& journal, const Options& options, std::uint64_t round) {
  round::AttemptRecord attempt{kRun, RoundId(round), AttemptId(1), Epoch(1), {}, 30, {}};
  attempt.base.digest = update_of(round, 0);
  CommitRow row;
  row.record.run = kRun;
  row.record.round = RoundId(round);
  row.record.attempt = AttemptId(1);
  for (std::uint64_t site = 1; site <= options.sites; ++site) {
    const SiteId id(static_cast<SiteId::rep>(site));
    attempt.participants.push_back({id, Epoch(site), 1000});
    must(row.record.contributors.add(
        {id, Epoch(site), 100, update_of(round, site), 1, {{"loss", 1.0 / double(round)}}}));
  }
  row.participants_count = options.sites;
  row.record.model.digest = row.master = update_of(round, 0);
  row.metrics = {{"loss", 0.5}};
  row.evaluation = {{"test_accuracy", 0.5}};
  row.optimizer = "run-1/round-" + std::to_string(round) + ".optimizer.safetensors";
  must(journal.open_attempt(attempt));
  must(journal.commit(row));
}

struct Folder {
  std::string journal() const { return path + "/journal.sqlite"; }
  std::string path;
};

std::uint64_t log_bytes(const Folder& folder) {
  std::error_code none;
  const auto size = std::filesystem::file_size(folder.journal() + "-wal", none);
  return none ? 0 : size;
}

std::uint64_t measure(const Folder& folder, const Options& options, std::uint64_t last) {
  PosixFileSystem files;
  std::unique_ptr<CoordinatorJournal> journal;
  const double open_ms = milliseconds([&] { journal = must(CoordinatorJournal::open(files, folder.journal())); });
  const JournalSize size = must(journal->size());
  std::printf("  %.1f MB, %.1f MB of them free, %llu rounds; opened in %.1f ms\n", double(size.bytes) / 1e6,
              double(size.free_bytes) / 1e6, static_cast<unsigned long long>(size.rounds), open_ms);
  std::vector<double> outcomes;
  for (std::uint64_t i = 0; i < 1000; ++i) {
    const std::uint64_t round = 1 + i * last / 1000;
    outcomes.push_back(
        milliseconds([&] { must(journal->outcome(kRun, RoundId(round), SiteId(1), update_of(round, 1))); }));
  }
  print_times("an outcome", outcomes);
  std::vector<double> commits;
  for (std::uint64_t i = 0; i < 200; ++i) commits.push_back(milliseconds([&] { commit(*journal, options, ++last); }));
  print_times("attempt and commit", commits);
  return last;
}

void prune(const Folder& folder, const Options& options) {
  PosixFileSystem files;
  const auto journal = must(CoordinatorJournal::open(files, folder.journal()));
  std::vector<double> batches;
  std::uint64_t log = 0;
  for (std::uint64_t rounds = 1; rounds > 0;) {
    batches.push_back(milliseconds([&] { rounds = must(journal->prune_rounds({options.keep, {}})); }));
    log = std::max(log, log_bytes(folder));
  }
  double all = 0;
  for (const double one : batches) all += one;
  print_times("a batch of pruning", batches);
  std::printf("  all of it: %.1f s; write-ahead log at most %.1f MB\n", all / 1e3, double(log) / 1e6);
}

int bench(const Options& options) {
  const Folder folder{options.folder};
  std::uint64_t last = options.rounds;
  {
    UnsyncedFiles files;
    must(files.make_folder(folder.path));
    const auto journal = must(CoordinatorJournal::open(files, folder.journal()));
    start_run(*journal);
    for (std::uint64_t round = 1; round <= last; ++round) commit(*journal, options, round);
  }
  std::printf("%llu rounds of %llu sites\n", static_cast<unsigned long long>(options.rounds),
              static_cast<unsigned long long>(options.sites));
  last = measure(folder, options, last);
  std::printf("pruned to %llu\n", static_cast<unsigned long long>(options.keep));
  prune(folder, options);
  measure(folder, options, last);
  return 0;
}

}  // namespace
}  // namespace fluvial::store

int main(int argc, char** argv) {
  fluvial::store::Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const std::string_view value = argv[i + 1];
    std::uint64_t* number = flag == "--rounds"  ? &options.rounds
                            : flag == "--sites" ? &options.sites
                            : flag == "--keep"  ? &options.keep
                                                : nullptr;
    if (flag == "--folder") options.folder = value;
    if (number != nullptr) std::from_chars(value.data(), value.data() + value.size(), *number);
  }
  if (argc % 2 == 0 || options.folder.empty() || std::filesystem::exists(options.folder)) {
    std::fprintf(stderr, "usage: journal_bench --folder NEW_FOLDER [--rounds N] [--sites N] [--keep N]\n");
    return 2;
  }
  return fluvial::store::bench(options);
}
