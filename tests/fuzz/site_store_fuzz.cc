// A site's store that was damaged, or that somebody else wrote: any value in any column, other bytes in the database or
// in the tensor files. Every call gives an answer that keeps its own rules or a clear error, takes no more memory than
// the files hold, touches no file outside the store, and stops nothing.
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/digest/sha256.h"
#include "core/round/probe.h"
#include "core/store/memory_file_system.h"
#include "core/store/site_store.h"
#include "tests/fuzz/damage.h"
#include "tests/fuzz/guarded_files.h"

namespace fluvial::fuzz {
namespace {

using store::SiteStore;

constexpr const char* kFolder = "/site";
constexpr const char* kPath = "/site/site.db";
constexpr RunId kRun{3};
constexpr std::uint64_t kValues = 6;
constexpr std::uint64_t kChunkBytes = 12;
constexpr std::uint64_t kIntegers = 2;

Digest digest_of(std::string_view text) { return sha256(as_byte_span(text)); }
void must(const Status& status) { FLUVIAL_CHECK(status.ok(), status.ok() ? "" : status.error().to_string()); }

store::PendingStart start_of(RunId run, std::uint64_t round, bool lossless) {
  store::PendingStart start;
  start.run = run;
  start.round = RoundId(round);
  start.weight = 17;
  start.codec = lossless ? "fp32" : "int8";
  start.base = digest_of("base");
  start.metrics = {{"loss", 1.5}};
  start.value_count = kValues;
  start.chunk_count = 2;
  start.integer_count = kIntegers;
  start.lossless = lossless;
  start.chunk_values = 3;
  start.workers = {"gpu-0", "gpu-1"};
  return start;
}

Status submit(SiteStore& site, RunId run, std::uint64_t round, bool lossless) {
  FLUVIAL_ASSIGN(const std::unique_ptr<store::PendingWriter> writer,
                 site.begin_pending(start_of(run, round, lossless)));
  const std::vector<float> values(kValues, 1.5F);
  FLUVIAL_TRY(writer->write_p(0, values));
  const ByteSpan bytes = std::as_bytes(std::span(values));
  for (std::uint64_t i = 0; i < 2; ++i)
    FLUVIAL_TRY(writer->write_chunk(i, bytes.subspan(i * kChunkBytes, kChunkBytes)));
  const std::string trailer(kIntegers * sizeof(std::int64_t) + round::kProbeBytes, 't');
  FLUVIAL_TRY(writer->write_trailer(as_byte_span(trailer)));
  FLUVIAL_ASSIGN(const store::PendingUpdate update, writer->finish(digest_of("update")));
  FLUVIAL_CHECK(update.info().start.round == RoundId(round), "a submission is what was written");
  return {};
}

Status leave_residual(SiteStore& site, RunId run, std::uint64_t round) {
  FLUVIAL_ASSIGN(const store::Carried carried, site.resolve(run, RoundId(round), store::Outcome::kCounted, 2.0));
  FLUVIAL_CHECK(!carried.residual.zero, "a residual is kept");
  return {};
}

// Leaves the values less the chunk's first byte; refuses a chunk of another length.
Result<store::LeaveChunk> leave_by(const std::string& codec, const store::Fit&) {
  if (codec.size() > 8) return Error{Code::kInvalidArgument, "no such codec"};
  return store::LeaveChunk([](ByteSpan chunk, std::span<float> p) -> Status {
    if (chunk.size() != kChunkBytes) return Error{Code::kDataLoss, "no chunk"};
    for (float& value : p) value -= static_cast<float>(chunk[0]);
    return {};
  });
}

// Two runs with a residual, an outcome and a submission each, in a second history.
void write_store(store::MemoryFileSystem& files) {
  const auto site = SiteStore::open(files, kFolder, 0, leave_by).value();
  const round::Lineage lineage = {{round::HistoryId(9), Epoch(40), RunId(4), {{kRun, RoundId(8)}}}};
  FLUVIAL_CHECK(site->enter(lineage, Epoch(41)).ok(), "a history begins");
  for (const RunId run : {kRun, RunId(4)}) {
    must(submit(*site, run, 1, run == kRun));
    must(leave_residual(*site, run, 1));
    must(submit(*site, run, 2, run != kRun));
  }
}

struct Prototype {
  std::shared_ptr<const store::MemoryFileSystem::Copy> copy;
  std::vector<Column> columns;
  std::vector<std::string> tensors;
  static const Prototype& get() {
    static const Prototype prototype = [] {
      store::MemoryFileSystem files;
      write_store(files);
      Prototype made{nullptr, columns_of(files, kPath), files.list("/site/tensors").value()};
      made.copy = files.copy();
      return made;
    }();
    return prototype;
  }
};

// The folder, its database with what SQLite keeps beside it, and the files of tensors, also those to be written again.
bool is_own(const std::string& path) {
  if (path == kFolder || path.starts_with(kPath)) return path.find('/', 6) == std::string::npos;
  for (const std::string_view folder : {"/site/tensors", "/site/spare"}) {
    if (!path.starts_with(folder)) continue;
    const std::string name = path.substr(folder.size());
    return name.empty() ||
           (name.size() > 2 && name.starts_with('/') && name.find('/', 1) == std::string::npos && name != "/..");
  }
  return false;
}

void read_pending(SiteStore& site, RunId run) {
  const auto pending = site.pending(run);
  check_said(pending);
  if (!pending.ok() || !*pending) return;
  const store::PendingUpdate& update = **pending;
  const store::PendingStart& start = update.info().start;
  std::uint64_t bytes = 0;
  for (std::uint64_t i = 0; i < start.chunk_count; ++i) {
    const auto chunk = update.read_chunk(i);
    check_said(chunk);
    if (chunk.ok()) FLUVIAL_CHECK(chunk->size() == update.chunk_size_bytes(i), "a chunk of another size");
    bytes += update.chunk_size_bytes(i);
  }
  FLUVIAL_CHECK(bytes == update.info().chunk_bytes, "chunks that do not make the update");
  const auto trailer = update.read_trailer();
  check_said(trailer);
  if (trailer.ok()) FLUVIAL_CHECK(trailer->size() == update.info().trailer_bytes, "a trailer of another size");
  FLUVIAL_CHECK(start.integer_count <= round::kIntegerCountMax, "more integers than a model may have");
  std::vector<std::int64_t> integers(start.integer_count);
  check_said(update.read_integers(integers));
  std::vector<float> some(4);
  check_said(update.read_p(0, some));
  check_said(update.read_p(start.value_count, some));
}

void read_all(SiteStore& site) {
  check_said(site.lineage());
  check_said(site.standing());
  check_said(site.all_pending());
  check_said(site.worker_outcomes());
  for (const RunId run : {kRun, RunId(4), RunId(5)}) {
    const auto residual = site.residual(run);
    check_said(residual);
    std::vector<float> some(4, -1.0F);
    check_said(site.read_residual(run, 0, some));
    check_said(site.read_residual(run, 2, std::span(some).first(3)));
    check_said(site.read_residual(run, ~std::uint64_t{0}, some));
    check_said(site.last_outcome(run));
    read_pending(site, run);
  }
}

// As an agent does when it goes on with it.
void go_on(SiteStore& site, Input& input) {
  const bool restored = input.flag();
  for (const RunId run : {kRun, RunId(4)}) {
    check_said(site.resolve(run, RoundId(2), static_cast<store::Outcome>(2 + input.below(3))));
    check_said(submit(site, run, 3, input.flag()));
    check_said(site.fold(run, RoundId(4), site.begin_residual(run).value()));
  }
  if (restored) {
    check_said(site.enter({{round::HistoryId(9), Epoch(40), RunId(4), {{kRun, RoundId(8)}}},
                           {round::HistoryId(10), Epoch(90), RunId(3), {{kRun, RoundId(1)}}}},
                          Epoch(91)));
  }
  const RunId before[] = {RunId(4), kRun};
  check_said(site.begin_run(RunId(5), before, kValues));
}

void run(ByteSpan bytes) {
  Input input(bytes);
  const Prototype& prototype = Prototype::get();
  store::MemoryFileSystem files;
  files.replace(*prototype.copy);
  const std::size_t what = input.below(8);
  if (what == 0) {
    damage_bytes(files, kPath, input);
  } else if (what == 1) {
    damage_bytes(files, "/site/tensors/" + prototype.tensors[input.below(prototype.tensors.size())], input);
  } else {
    damage_rows(files, kPath, prototype.columns, input);
  }
  GuardedFiles guarded(files, is_own);
  const auto site = SiteStore::open(guarded, kFolder, input.byte(), leave_by);
  check_said(site);
  if (!site.ok()) return;
  read_all(**site);
  go_on(**site, input);
  read_all(**site);
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
