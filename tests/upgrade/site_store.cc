#include "core/store/site_store.h"

#include <fmt/format.h>

#include "tests/upgrade/recording.h"

namespace fluvial::upgrade {
namespace {

using store::SiteStore;

constexpr std::uint64_t kValues = 6;
constexpr std::uint64_t kRunsMax = 16;  // that a fixture has

std::vector<float> values(float first) {
  std::vector<float> values(kValues);
  for (std::size_t i = 0; i < values.size(); ++i) values[i] = first + 0.125F * static_cast<float>(i);
  return values;
}

// Half of the values: a codec that needs no other room.
Result<store::LeaveChunk> leave_by(const std::string&, const store::Fit&) {
  return store::LeaveChunk([](ByteSpan, std::span<float> p) -> Status {
    for (float& value : p) value /= 2;
    return {};
  });
}

// Of two chunks; with a lossless codec they are p.
Status submit(SiteStore& site, RunId run, std::uint64_t round, bool lossless, std::uint64_t integers,
              std::string_view state = {}) {
  store::PendingStart start{
      run,      RoundId(round), 17, lossless ? "fp32" : "int8", digest_of("base"), {{"loss", 0.25}}, kValues, 2,
      integers, lossless,       4,  {"trainer-0", "trainer-1"}};
  start.bounds = {1e6, 9};
  start.late_factor = run.value() % 2 == 0 ? 0.5F : 1.0F;
  start.state_bytes = state.size();
  FLUVIAL_ASSIGN(const auto writer, site.begin_pending(start));
  const std::vector<float> p = values(static_cast<float>(run.value()) + static_cast<float>(round));
  const ByteSpan bytes = std::as_bytes(std::span(p));
  FLUVIAL_TRY(writer->write_p(0, p));
  if (!state.empty()) FLUVIAL_TRY(writer->write_state(as_byte_span(state)));
  FLUVIAL_TRY(writer->write_chunk(0, lossless ? bytes.first(16) : as_byte_span("the first chunk, encoded")));
  FLUVIAL_TRY(writer->write_chunk(1, lossless ? bytes.subspan(16) : as_byte_span("the second")));
  std::string trailer;
  for (std::uint64_t i = 1; i <= integers; ++i) trailer += std::string(1, static_cast<char>(i)) + std::string(7, '\0');
  FLUVIAL_TRY(writer->write_trailer(as_byte_span(trailer + std::string("\0\0\x80\x3f", 4))));
  const auto done = writer->finish(digest_of("update of run " + std::to_string(run.value())));
  return done.ok() ? Status() : Status(done.error());
}

Status count(SiteStore& site, RunId run, std::uint64_t round) {
  FLUVIAL_TRY(submit(site, run, round, false, 0));
  const auto carried = site.resolve(run, RoundId(round), round::Outcome::kCounted, 1.5);
  return carried.ok() ? Status() : Status(carried.error());
}

Status settle(SiteStore& site, RunId run, std::uint64_t round, round::Outcome outcome, std::string_view state = {}) {
  FLUVIAL_TRY(submit(site, run, round, false, 0, state));
  const auto carried = site.resolve(run, RoundId(round), outcome);
  return carried.ok() ? Status() : Status(carried.error());
}

Status describe_pending(SiteStore& site, RunId run, std::string& out) {
  FLUVIAL_ASSIGN(const std::optional<store::PendingUpdate> pending, site.pending(run));
  if (!pending) return {};
  const store::PendingInfo& info = pending->info();
  const store::PendingStart& start = info.start;
  out +=
      fmt::format("pending {} round {} submission {} of incarnation {} weight {} codec {} base {} digest {} norm {}\n",
                  run.value(), start.round.value(), info.submission, info.incarnation.value(), start.weight,
                  start.codec, to_hex(start.base), to_hex(info.digest), info.p_norm);
  out += fmt::format(
      "  values {} integers {} lossless {} chunk values {} loss {} fit {} {} bounds {} {} workers {} late factor {}\n",
      start.value_count, start.integer_count, start.lossless, start.chunk_values, start.metrics.at("loss"),
      start.fit.value_max, start.fit.factor, start.bounds.norm_max, start.bounds.age_max_rounds,
      fmt::join(start.workers, ","), start.late_factor);
  if (start.state_bytes > 0) out += fmt::format("  state of {} bytes\n", start.state_bytes);
  for (std::uint64_t i = 0; i < start.chunk_count; ++i) {
    FLUVIAL_ASSIGN(const Buffer chunk, pending->read_chunk(i));
    out += fmt::format("  chunk {}\n", to_hex(chunk.span()));
  }
  FLUVIAL_ASSIGN(const Buffer trailer, pending->read_trailer());
  std::vector<float> p(start.value_count);
  FLUVIAL_TRY(pending->read_p(0, p));
  out += fmt::format("  trailer {}\n  p {}\n", to_hex(trailer.span()), fmt::join(p, " "));
  return {};
}

Status describe_run(SiteStore& site, RunId run, std::string& out) {
  FLUVIAL_ASSIGN(const store::ResidualInfo residual, site.residual(run));
  if (!residual.zero) {
    std::vector<float> held(residual.value_count);
    FLUVIAL_TRY(site.read_residual(run, 0, held));
    out += fmt::format("residual {} age {} norm {}: {}\n", run.value(), residual.age_rounds, residual.norm,
                       fmt::join(held, " "));
    FLUVIAL_ASSIGN(const store::Residual open, site.open_residual(run));
    Buffer state(open.state_bytes());
    FLUVIAL_TRY(open.read_state(state.span()));
    if (!state.empty()) out += fmt::format("  state of {}: {}\n", open.codec(), to_hex(state.span()));
  }
  FLUVIAL_TRY(describe_pending(site, run, out));
  FLUVIAL_ASSIGN(const std::optional<store::LastOutcome> last, site.last_outcome(run));
  if (last) {
    out +=
        fmt::format("outcome {} round {} {}\n", run.value(), last->round.value(), round::outcome_name(last->outcome));
  }
  return {};
}

}  // namespace

Status write_site(const std::string& folder) {
  store::PosixFileSystem files;
  FLUVIAL_ASSIGN(const auto site, SiteStore::open(files, folder, 1, leave_by));
  const round::Lineage lineage{{round::HistoryId(0x1122334455667788), Epoch(500), RunId(2), {{RunId(2), RoundId(4)}}}};
  const auto aside = site->enter(lineage, Epoch(510));
  if (!aside.ok()) return aside.error();
  FLUVIAL_TRY(count(*site, RunId(1), 3));
  FLUVIAL_TRY(settle(*site, RunId(2), 5, round::Outcome::kLate));
  FLUVIAL_TRY(settle(*site, RunId(3), 1, round::Outcome::kRefused));
  FLUVIAL_TRY(submit(*site, RunId(4), 2, false, 2));
  FLUVIAL_TRY(submit(*site, RunId(5), 7, true, 0));
  FLUVIAL_TRY(count(*site, RunId(6), 1));
  FLUVIAL_TRY(submit(*site, RunId(6), 2, false, 0));
  FLUVIAL_TRY(settle(*site, RunId(7), 1, round::Outcome::kLate, "what its codec keeps"));
  return submit(*site, RunId(7), 2, false, 0, "what its codec keeps next");
}

Result<std::string> describe_site(const std::string& folder) {
  store::PosixFileSystem files;
  FLUVIAL_ASSIGN(const auto site, SiteStore::open(files, folder, 1, leave_by));
  std::string out = fmt::format("incarnation {}\n", site->incarnation().value());
  FLUVIAL_ASSIGN(const round::Lineage lineage, site->lineage());
  for (const round::History& history : lineage) {
    out += fmt::format("history {} began {} last run {} forks {}\n", history.id.value(), history.began.value(),
                       history.last_run.value(), history.forks.size());
  }
  FLUVIAL_ASSIGN(const round::Standing standing, site->standing());
  out += fmt::format("standing {} {}\n", standing.history.value(), standing.epoch.value());
  for (const round::KnownRound& known : standing.rounds) {
    out += fmt::format("knows {} round {} {} {} {}\n", known.run.value(), known.round.value(), known.decided,
                       known.counted, to_hex(known.digest));
  }
  for (std::uint64_t run = 1; run <= kRunsMax; ++run) FLUVIAL_TRY(describe_run(*site, RunId(run), out));
  FLUVIAL_ASSIGN(const auto workers, site->worker_outcomes());
  for (const auto& [run, outcomes] : workers) {
    for (const store::WorkerOutcome& one : outcomes) {
      out += fmt::format("worker {} {} round {} {}\n", run.value(), one.worker, one.last.round.value(),
                         round::outcome_name(one.last.outcome));
    }
  }
  // What waits can still be settled: its p becomes the residual.
  FLUVIAL_ASSIGN(const store::Carried late, site->resolve(RunId(4), RoundId(2), round::Outcome::kLate));
  out += fmt::format("late: {} values, norm {}{}\n", late.residual.value_count, late.residual.norm, late.dropped);
  return out;
}

}  // namespace fluvial::upgrade
