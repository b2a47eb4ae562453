#include "tests/digests/federation.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "cli/bench_update.h"
#include "cli/local_run.h"
#include "core/base/check.h"
#include "core/config/plan_file.h"
#include "core/local/worker_client.h"
#include "core/store/safetensors.h"
#include "kernels/codec.h"

namespace fluvial::digests {
namespace {

using cli::json::value;
using std::chrono::seconds;

// Matrices and vectors, which lars and lamb tell apart; integers of three widths; three chunks, the last one short.
const round::Schema& schema() {
  using round::DType;
  static const round::Schema made = round::Schema::make({{"steps", DType::kI64, {3}},
                                                         {"w1", DType::kF32, {41, 50}},
                                                         {"b1", DType::kF32, {41}},
                                                         {"epochs", DType::kU8, {2}},
                                                         {"w2", DType::kF32, {20, 41}},
                                                         {"b2", DType::kF32, {20}},
                                                         {"batches", DType::kI32, {2}}})
                                        .value();
  return made;
}
constexpr std::uint64_t kChunkValues = 1'024;
constexpr std::uint64_t kWorkers = kSites + 1;

struct Parts {
  std::vector<float> values = std::vector<float>(schema().value_count());
  std::vector<std::int64_t> integers = std::vector<std::int64_t>(schema().integer_count());
};

void join(const Parts& parts, MutableByteSpan model) {
  const Status joined = round::join_model(schema(), parts.values, parts.integers, model);
  FLUVIAL_CHECK(joined.ok(), "integers that fit");
}

// The training of a worker, until its agent goes.
void serve(local::WorkerClient client, const std::atomic<std::uint64_t>& seed, std::uint64_t worker_index) {
  for (;;) {
    const auto task = client.next_task();
    if (!task.ok() || !*task) return;
    auto trained = client.new_model();
    if (!trained.ok()) return;
    const cli::UpdateStream stream{.seed = seed, .round = (*task)->round.value(), .site_index = worker_index};
    Parts base, local;
    round::split_model(schema(), (*task)->model->bytes(), base.values, base.integers);
    cli::apply_update(stream, base.values, local.values);
    for (std::size_t k = 0; k < local.integers.size(); ++k) local.integers[k] = cli::bench_integer(stream, k);
    join(local, trained->span());
    if (!client.submit(std::move(*trained), cli::bench_weight(worker_index), {}).ok()) return;
  }
}

// Each site is in, with all of its workers: so the round does not depend on who was in time.
Status check_whole(const value& round) {
  std::uint64_t weight = 0;
  for (std::uint64_t worker = 1; worker <= kWorkers; ++worker) weight += cli::bench_weight(worker);
  const bool whole = cli::array_member(round, "contributors").size() == kSites;
  if (whole && cli::count_member(round, "weight") == weight) return {};
  return Error{Code::kFailedPrecondition, "a round without a site or a worker: " + cli::pretty(round)};
}

std::string update_of(const value& round, const std::string& site) {
  for (const value& entry : cli::array_member(round, "contributors")) {
    if (cli::text_member(entry, "name") == site) return cli::text_member(entry, "digest");
  }
  return "";
}

// What zstd makes of the same bytes is its version's.
bool encodes_alone(const round::Plan& plan) { return kernels::parse_codec(plan.codec).value().zstd_level == 0; }

}  // namespace

Result<std::unique_ptr<DigestFederation>> DigestFederation::start(const Tree& tree) {
  FLUVIAL_ASSIGN(cli::WorkFolder folder, cli::WorkFolder::open("", false, "digests"));
  FLUVIAL_ASSIGN(std::unique_ptr<cli::Supervisor> supervisor, cli::Supervisor::create(seconds(20)));
  std::unique_ptr<DigestFederation> made(new DigestFederation(std::move(folder), std::move(supervisor), tree));
  FLUVIAL_TRY(made->federation_.start());
  FLUVIAL_TRY(made->write_initial_model());
  FLUVIAL_TRY(made->start_workers());
  return made;
}

DigestFederation::DigestFederation(cli::WorkFolder folder, std::unique_ptr<cli::Supervisor> supervisor,
                                   const Tree& tree)
    : folder_(std::move(folder)),
      supervisor_(std::move(supervisor)),
      federation_(
          *supervisor_, tree.executable, folder_.path(),
          {.sites = kSites,
           .aggregators = tree.aggregators,
           .tiers = tree.tiers,
           .weight_max = cli::kBenchWeightMax,
           // No measurement chooses how two workers are added up.
           .arguments = {{"site", {"--gpus", "none", "--reduction", "direct"}}, {"site-1", {"--workers", "2"}}}}) {}

DigestFederation::~DigestFederation() { supervisor_->stop(); }  // the workers' agents go

// The first site has a second worker. In a mean of theirs who attached first comes first.
Status DigestFederation::start_workers() {
  for (std::uint64_t worker = 1; worker <= kWorkers; ++worker) {
    const cli::LocalSite& site = federation_.sites()[(worker - 1) % kSites];
    FLUVIAL_ASSIGN(local::WorkerClient client,
                   local::WorkerClient::attach_with_retry(site.worker_socket,
                                                          {.name = fmt::format("worker-{}", worker)}, seconds(60)));
    workers_.emplace_back(
        [this, worker, mine = std::move(client)]() mutable { serve(std::move(mine), seed_, worker); });
  }
  return {};
}

Status DigestFederation::write_initial_model() const {
  Parts parts;
  cli::fill_model(1, parts.values);
  Buffer model(schema().model_bytes());
  join(parts, model.span());
  store::PosixFileSystem files;
  return store::write_model(files, folder_.file("initial.safetensors"), schema(), model.span(), {});
}

Result<round::Plan> DigestFederation::plan_of(const Entry& entry) const {
  std::vector<config::TomlEntry> keys = entry.settings_below("plan.");
  keys.push_back({.key = "name", .value = entry.name});
  FLUVIAL_ASSIGN(config::PlanFile file, config::plan_of(std::move(keys), entry.name));
  round::Plan& plan = file.plan;
  plan.chunk_values = kChunkValues;
  plan.participants_min = plan.quorum = kSites;  // nothing is left to time
  plan.adaptive_deadlines = false;
  plan.soft_deadline = seconds(50);
  plan.hard_deadline = seconds(60);
  plan.attempts_max = 1;  // what hangs pauses the run
  plan.sum_digest = true;
  return plan;
}

Result<Digests> DigestFederation::run(const Entry& entry) {
  FLUVIAL_ASSIGN(const round::Plan plan, plan_of(entry));
  seed_ = entry.number("seed");
  FLUVIAL_ASSIGN(const std::uint64_t run,
                 cli::start_local_run(federation_.admin(), plan, folder_.path(), "initial.safetensors"));
  std::string ended;
  FLUVIAL_TRY(federation_.admin().watch(fmt::format("/v1/rounds/watch?run={}&from=1", run), [&](const value& event) {
    if (cli::text_member(event, "event") == "state") ended = cli::pretty(event);
    return cli::text_member(event, "status") != "paused";
  }));
  const Result<Digests> digests = digests_of(run, plan);
  return digests.ok() ? digests : Error{digests.error().code, digests.error().message + "\n" + ended};
}

Result<Digests> DigestFederation::digests_of(std::uint64_t run, const round::Plan& plan) const {
  FLUVIAL_ASSIGN(const value listed, federation_.admin().get(fmt::format("/v1/rounds?run={}&from=1", run)));
  const cli::json::array& rounds = cli::array_member(listed, "rounds");
  if (rounds.size() != plan.rounds) {
    return Error{Code::kFailedPrecondition, fmt::format("{} rounds of {}", rounds.size(), plan.rounds)};
  }
  Digests digests;
  for (const value& round : rounds) {
    FLUVIAL_TRY(check_whole(round));
    digests.models.push_back(cut(cli::text_member(round, "model_sha256")));
    digests.sums.push_back(cut(cli::text_member(round, "sum_sha256")));
    if (encodes_alone(plan)) digests.updates.push_back(cut(update_of(round, "site-1")));
  }
  digests.model = cli::text_member(rounds.back(), "model_sha256");
  return digests;
}

}  // namespace fluvial::digests
