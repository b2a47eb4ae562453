#include "tests/chaos/chaos.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <optional>

#include "cli/bench_update.h"
#include "cli/local_run.h"
#include "core/base/testing.h"
#include "core/store/plan_json.h"
#include "core/store/safetensors.h"
#include "core/store/site_store.h"
#include "edge/update/open.h"

namespace fluvial::chaos {
namespace {

using namespace std::chrono_literals;
using cli::count_member;
using cli::text_member;
using cli::json::value;
using std::chrono::steady_clock;

constexpr auto kGrace = 20s;               // SIGTERM drains within session.drain_deadline_ms
constexpr std::uint64_t kPeaceRounds = 2;  // with every site

double seconds_since(steady_clock::time_point begun) {
  return std::chrono::duration<double>(steady_clock::now() - begun).count();
}

Status write_initial_model(const Options& options, const std::string& path) {
  const round::Schema schema = schema_of(options);
  std::vector<float> values(options.params);
  cli::fill_model(options.seed, values);
  Buffer model(schema.model_bytes());
  FLUVIAL_TRY(round::join_model(schema, values, std::vector<std::int64_t>(schema.integer_count()), model.span()));
  store::PosixFileSystem files;
  return store::write_model(files, path, schema, model.span(), {});
}

Result<std::vector<cli::AuditSite>> sites_of(const cli::LocalFederation& federation) {
  FLUVIAL_ASSIGN(const value listed, federation.admin().get("/v1/nodes"));
  std::vector<cli::AuditSite> sites;
  for (std::size_t i = 0; i < federation.sites().size(); ++i) {
    for (const value& node : cli::array_member(listed, "nodes")) {
      if (text_member(node, "name") != federation.sites()[i].name) continue;
      sites.push_back({.index = i + 1,
                       .node = static_cast<std::uint32_t>(count_member(node, "id")),
                       .name = federation.sites()[i].name});
    }
  }
  return sites;
}

// Processes of ours that the supervisor no longer knows.
std::vector<int> left_over(const std::string& executable, const std::string& folder) {
  std::vector<int> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename().string();
    int pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    const std::string line = text_of_file(entry.path() / "cmdline");
    if (line.starts_with(executable + '\0') && line.find(folder) != std::string::npos) found.push_back(pid);
  }
  return found;
}

}  // namespace

Chaos::Chaos(const Options& options, const cli::Io& io, const cli::WorkFolder& folder)
    : options_(options), io_(io), folder_(folder), begun_(steady_clock::now()), shown_(begun_) {}

Chaos::~Chaos() {
  if (auditor_ != nullptr) auditor_->stop();
  if (workers_) workers_->stop();
  if (supervisor_) supervisor_->stop();  // what is stopped is killed after the grace
}

Status Chaos::run() {
  FLUVIAL_TRY(start());
  for (;;) {
    FLUVIAL_TRY(begin_run());
    FLUVIAL_TRY(disturb());
    FLUVIAL_TRY(settle());
    FLUVIAL_TRY(rest());
    if (figures_.seconds >= static_cast<double>(options_.seconds) && figures_.rounds >= options_.rounds) return end();
    FLUVIAL_TRY(stop_run());
  }
}

// Each node on a disk of its own, each parent behind a gate.
cli::FederationShape Chaos::surrounded_shape() {
  cli::FederationShape shape = shape_of(options_);
  std::vector<std::string> parents = {"coordinator"};
  for (std::uint64_t i = 1; i <= options_.aggregators; ++i) parents.push_back(fmt::format("aggregator-{}", i));
  for (std::uint64_t i = 1; i < options_.tiers; ++i) parents.push_back(fmt::format("aggregator-tier-{}", i));
  std::vector<std::string> names = parents;
  for (std::uint64_t i = 1; i <= options_.sites; ++i) names.push_back(fmt::format("site-{}", i));
  for (const std::string& name : names) {
    shape.places[name].launcher = {"/usr/bin/env", "CHAOS_DISK=" + Disturber::shadow_of(folder_.path(), name)};
  }
  for (const std::string& parent : parents) gates_[parent] = std::make_unique<integration::TcpGate>();
  for (const char* role : {"aggregator", "site"}) {
    shape.arguments[role].insert(shape.arguments[role].end(), {"--coordinator", gates_["coordinator"]->address()});
  }
  for (const auto& [parent, gate] : gates_) {
    if (parent != "coordinator") shape.arguments[parent] = {"--advertise", gate->address()};
  }
  shape.announced = [this](const std::string& name, const value& ready) {
    const auto gate = gates_.find(name);
    const char* port = name == "coordinator" ? "member_port" : "port";
    if (gate != gates_.end()) gate->second->set_target(static_cast<std::uint16_t>(count_member(ready, port)));
  };
  return shape;
}

Status Chaos::start() {
  FLUVIAL_ASSIGN(supervisor_, cli::Supervisor::create(kGrace));
  federation_ =
      std::make_unique<cli::LocalFederation>(*supervisor_, options_.executable, folder_.path(), surrounded_shape());
  FLUVIAL_TRY(federation_->start());
  workers_ = std::make_unique<Workers>(federation_->sites(), options_.seed);
  FLUVIAL_TRY(write_initial_model(options_, folder_.file("initial.safetensors")));
  FLUVIAL_ASSIGN(sites_, sites_of(*federation_));
  std::map<std::string, std::string> disturbed = federation_->roles();
  std::erase_if(disturbed, [&](const auto& node) {
    return std::ranges::find(options_.roles, node.second) == options_.roles.end();
  });
  Disturber::Surroundings surroundings{.folder = folder_.path()};
  for (const auto& [name, gate] : gates_) surroundings.gates[name] = gate.get();
  disturber_ = std::make_unique<Disturber>(*supervisor_, *federation_,
                                           FaultSource(options_.seed, disturbed, options_.pace, kinds_of(options_)),
                                           std::move(surroundings));
  disturber_->on_end([this](const std::string& node) { workers_->died(node); });
  disturber_->on_disk([this](const std::string& node, bool fails) { workers_->disk_fails(node, fails); });
  return {};
}

Result<std::uint64_t> Chaos::start_run(const round::Plan& plan) {
  if (!continues(options_, auditors_.size())) {
    return cli::start_local_run(federation_->admin(), plan, folder_.path(), "initial.safetensors");
  }
  FLUVIAL_ASSIGN(value text, cli::parse_json(store::plan_to_json(plan), "the plan"));
  FLUVIAL_ASSIGN(const value started, federation_->admin().post("/v1/runs", cli::json::object{{"plan", std::move(text)},
                                                                                              {"continue", run_}}));
  return count_member(started, "run");
}

Status Chaos::begin_run() {
  const std::uint64_t n = auditors_.size();
  const round::Plan plan = plan_of(options_, n);
  std::optional<cli::Audit> before;
  if (continues(options_, n)) before = auditor_->take_audit();
  FLUVIAL_ASSIGN(run_, start_run(plan));
  io_.print(fmt::format("run {}: {}, {}, quorum {}, chunks of {}{}{}\n", run_, plan.codec,
                        round::to_string(plan.optimizer), plan.quorum, plan.chunk_values,
                        is_async(plan)       ? fmt::format(", windows of {}", plan.async_goal)
                        : late_is_next(plan) ? fmt::format(", late is next up to {}", plan.staleness_max)
                                             : "",
                        before ? ", continues the one before" : ""));
  Audited audited{.run = run_,
                  .plan = plan,
                  .seed = options_.seed,
                  .sites = sites_,
                  .models_folder = folder_.file("coordinator/models"),
                  .schema = schema_of(options_),
                  .known = {}};
  audited.known = [this, run = run_](std::uint64_t site, std::uint64_t round, std::uint64_t next) {
    return workers_->made(run, site, round, next);
  };
  auditors_.push_back(std::make_unique<Auditor>(federation_->admin(), std::move(audited), std::move(before)));
  auditor_ = auditors_.back().get();
  person_ = std::make_unique<Person>(federation_->admin(), *disturber_, run_, options_.seed + n);
  disturber_->go_on();
  return {};
}

// What holds at every moment.
Status Chaos::is_well(const Progress& progress) const {
  if (const auto failure = supervisor_->failure()) return *failure;
  if (progress.violation) return *progress.violation;
  const auto gap = steady_clock::now() - progress.last_commit;
  if (gap <= std::chrono::seconds(options_.gap_max_s)) return {};
  return Error{Code::kDeadlineExceeded, fmt::format("no round was committed for {:.1f} s; the last one is round {}",
                                                    std::chrono::duration<double>(gap).count(), progress.committed)};
}

Status Chaos::disturb() {
  const auto begun = steady_clock::now();
  if (auditors_.size() == 1) begun_ = begun;
  const double before = figures_.seconds;
  for (;;) {
    FLUVIAL_TRY(disturber_->step());
    const Progress progress = auditor_->wait(disturber_->until_next());
    FLUVIAL_TRY(is_well(progress));
    FLUVIAL_TRY(person_->step());
    figures_.seconds = before + seconds_since(begun);
    figures_.rounds = rounds_before_ + progress.committed;
    const bool enough = figures_.seconds >= static_cast<double>(options_.seconds) && figures_.rounds >= options_.rounds;
    const bool next = figures_.seconds - before >= static_cast<double>(options_.run_seconds) && progress.committed > 0;
    show(progress, enough || next);
    if (enough || next) return {};
  }
}

template <typename Done>
Status Chaos::wait_until(const std::string& what, const Done& done) {
  const auto until = steady_clock::now() + std::chrono::seconds(options_.gap_max_s);
  for (;;) {
    const Progress progress = auditor_->wait(50ms);
    FLUVIAL_TRY(disturber_->watch());
    if (progress.violation) return *progress.violation;
    if (const auto failure = supervisor_->failure()) return *failure;
    FLUVIAL_ASSIGN(const bool is_done, done(progress));
    if (is_done) return {};
    if (steady_clock::now() >= until) {
      return Error{Code::kDeadlineExceeded,
                   fmt::format("{} s after the faults had stopped: {}", options_.gap_max_s, what)};
    }
  }
}

Status Chaos::settle() {
  const auto begun = steady_clock::now();
  FLUVIAL_TRY(disturber_->heal());
  person_->wants_no_pause();
  const std::uint64_t last = auditor_->progress().committed;
  FLUVIAL_TRY(wait_until("two rounds with every site are not committed", [&](const Progress& progress) -> Result<bool> {
    FLUVIAL_TRY(person_->step());
    const auto after = std::ranges::upper_bound(progress.complete, last);
    return static_cast<std::uint64_t>(progress.complete.end() - after) >= kPeaceRounds;
  }));
  figures_.healed_s = std::max(figures_.healed_s, seconds_since(begun));
  return {};
}

// Paused after a round that holds every site: then it is known to the bit what each has left.
Status Chaos::rest() {
  for (;;) {
    FLUVIAL_TRY(pause());
    const Progress progress = auditor_->progress();
    if (progress.contributors == sites_.size()) return {};
    const auto resumed = federation_->admin().post(fmt::format("/v1/runs/{}/resume", run_));
    if (!resumed.ok()) return resumed.error();
    FLUVIAL_TRY(wait_until("no further round is committed", [&](const Progress& now) -> Result<bool> {
      return now.committed > progress.committed && now.status.empty();
    }));
  }
}

Status Chaos::stop_run() {
  const auto stopped = federation_->admin().post(fmt::format("/v1/runs/{}/stop", run_));
  if (!stopped.ok()) return stopped.error();
  FLUVIAL_TRY(wait_until("the run does not stop",
                         [](const Progress& progress) -> Result<bool> { return progress.status == "stopped"; }));
  auditor_->finish();
  rounds_before_ += auditor_->progress().committed;
  paused_ += person_->paused();
  mended_ += person_->mended();
  return {};
}

// The open round closes first, and then nothing more is trained: what is to be resolved can be.
Status Chaos::pause() {
  const auto paused = federation_->admin().post(fmt::format("/v1/runs/{}/pause", run_));
  if (!paused.ok()) return paused.error();
  // The auditor may be behind, and then it is not told of what was no commit; the sites wait for it below.
  FLUVIAL_TRY(wait_until("the run does not pause", [this](const Progress&) -> Result<bool> {
    FLUVIAL_ASSIGN(const value status, federation_->admin().get("/v1/status"));
    return status.at("run").is_object() && text_member(status.at("run"), "status") == "paused";
  }));
  for (const cli::LocalSite& site : federation_->sites()) {
    FLUVIAL_TRY(wait_until(site.name + " has a submission without an outcome, or not the last model",
                           [&](const Progress& progress) { return is_settled(site, progress); }));
  }
  return auditor_->check_journal(federation_->admin());
}

Result<bool> Chaos::is_settled(const cli::LocalSite& site, const Progress& progress) const {
  FLUVIAL_ASSIGN(const value status, federation_->status_of(site.name));
  return cli::bool_member(status, "connected") && count_member(status, "pending_round") == 0 &&
         text_member(status, "doing") == "waiting" && count_member(status, "model_version") == progress.committed &&
         text_member(status, "model_sha256") == progress.model_sha256;
}

Status Chaos::end() {
  auditor_->stop();
  workers_->stop();
  paused_ += person_->paused();
  mended_ += person_->mended();
  supervisor_->stop();
  for (const auto& [name, node] : disturber_->nodes()) {
    const int status = supervisor_->end_of(federation_->process_of(name)).value_or(0);
    if (status == 0) continue;
    return Error{Code::kInternal, fmt::format("told to end, {} {}", name, cli::describe_end(status))};
  }
  if (const auto left = left_over(options_.executable, folder_.path()); !left.empty()) {
    return Error{Code::kInternal, fmt::format("processes are left: {}", fmt::join(left, ", "))};
  }
  return check_sites();
}

// On their disks, now that nobody else has them open.
Status Chaos::check_sites() const {
  store::PosixFileSystem files;
  for (std::size_t i = 0; i < federation_->sites().size(); ++i) {
    const std::string& name = federation_->sites()[i].name;
    FLUVIAL_ASSIGN(const auto store, edge::open_site_store(files, folder_.file(name + "/state")));
    FLUVIAL_ASSIGN(const auto pending, store->all_pending());
    if (!pending.empty()) return Error{Code::kDataLoss, name + " still holds a submission without an outcome"};
    std::vector<float> residual(options_.params);
    FLUVIAL_TRY(store->read_residual(RunId(run_), 0, residual));
    FLUVIAL_TRY(auditor_->check_residual(i + 1, residual));
  }
  return {};
}

}  // namespace fluvial::chaos
