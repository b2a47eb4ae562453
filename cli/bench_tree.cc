// fluvial bench tree: the real processes on loopback, synthetic updates, an independent check of every sum.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "cli/bench.h"
#include "cli/bench_audit.h"
#include "cli/bench_counts.h"
#include "cli/bench_down.h"
#include "cli/bench_update.h"
#include "cli/bound/headline.h"
#include "cli/format.h"
#include "cli/local_federation.h"
#include "cli/local_run.h"
#include "cli/table.h"
#include "cli/work_folder.h"
#include "core/aggregate/down.h"
#include "core/aggregate/down_forms.h"
#include "core/aggregate/plan_codec.h"
#include "core/aggregate/plan_forms.h"
#include "core/digest/sha256.h"
#include "core/store/safetensors.h"
#include "kernels/codec.h"
namespace fluvial::cli {
namespace {

struct TreeOptions {
  FederationShape shape{.sites = 8, .aggregators = 2, .tiers = 1, .weight_max = kBenchWeightMax};
  std::uint64_t params = 10'000'000;
  std::string codec = "fp32";
  std::string down = "fp32";
  std::uint64_t rounds = 5;
  std::uint64_t seed = 1;
  bool sum_digest = false;
  bool late_is_next = false;
  std::uint64_t async_goal = 0;
  bool no_bound = false;
  std::string json;
  std::string work_dir;
};

struct Outcome {
  std::uint64_t run = 0;
  json::array rounds;  // as the admin API gives them
  std::vector<AuditSite> sites;
  std::string last_model;        // its path
  double update_bytes_sent = 0;  // by all sites
  std::vector<ProcessUsage> processes;
  std::vector<RoleCounts> warm;  // of a round after the first
  Status exact;
};

round::Plan plan_of(const TreeOptions& options) {
  round::Plan plan;
  plan.name = "bench";
  plan.rounds = options.rounds;
  plan.codec = options.codec;
  aggregate::suit_optimizer(&plan);
  plan.down = options.down;
  if (options.late_is_next) plan.late = "next";
  plan.participants_min = plan.quorum = options.shape.sites;
  if (options.async_goal > 0) {
    round::set_mode("async", &plan);
    plan.async_goal = options.async_goal;
    plan.quorum = 1;
  }
  plan.adaptive_deadlines = false;  // every update is measured
  plan.soft_deadline = std::chrono::minutes(5);
  plan.hard_deadline = std::chrono::minutes(10);
  plan.seed = options.seed;
  plan.sum_digest = options.sum_digest;
  return plan;
}

round::Schema schema_of(const TreeOptions& options) {
  const auto codec = kernels::make_codec(*kernels::parse_codec(options.codec));  // run_tree() has seen that it parses
  return bench_schema(options.params, codec.ok() && (*codec)->passes() > 1);
}

Status write_initial_model(const TreeOptions& options, const std::string& path) {
  const round::Schema schema = schema_of(options);
  Buffer bytes(static_cast<std::size_t>(schema.model_bytes()));
  fill_model(options.seed,
             {reinterpret_cast<float*>(bytes.data()), static_cast<std::size_t>(options.params)});  // NOLINT
  store::PosixFileSystem files;
  return store::write_model(files, path, schema, bytes.span(), {});
}

Status collect(const LocalFederation& federation, const TreeOptions& options, Outcome& outcome) {
  const AdminClient& admin = federation.admin();
  FLUVIAL_ASSIGN(const json::value rounds,
                 admin.get(fmt::format("/v1/rounds?run={}&from=1&limit={}", outcome.run, options.rounds)));
  outcome.rounds = array_member(rounds, "rounds");
  FLUVIAL_ASSIGN(const json::value model, admin.get(fmt::format("/v1/models/{}/{}", outcome.run, options.rounds)));
  outcome.last_model = text_member(model, "path");
  FLUVIAL_ASSIGN(const json::value nodes, admin.get("/v1/nodes"));
  for (const json::value& node : array_member(nodes, "nodes")) {
    const std::string name = text_member(node, "name");
    if (text_member(node, "role") != "site") continue;
    outcome.sites.push_back({.index = std::stoull(name.substr(name.rfind('-') + 1)),
                             .node = static_cast<std::uint32_t>(count_member(node, "id")),
                             .name = name});
  }
  FLUVIAL_ASSIGN(const auto statuses, federation.wait_for_model(outcome.run, options.rounds));
  for (const auto& status : statuses) {
    outcome.update_bytes_sent += number_member(status, "update_bytes_sent", 0);
    if (outcome.rounds.empty()) continue;
    const std::string held = text_member(status, "model_sha256");
    const std::string named = text_member(outcome.rounds.back(), "model_sha256");
    if (held != named) return Error{Code::kDataLoss, fmt::format("a site holds the model {}, not {}", held, named)};
  }
  return {};
}

Result<std::vector<float>> read_values(const std::string& path, std::uint64_t params) {
  store::PosixFileSystem files;
  FLUVIAL_ASSIGN(const store::Model model, store::read_model(files, path));
  if (model.schema.value_count() != params)
    return Error{Code::kDataLoss, fmt::format("{} holds {} values", path, model.schema.value_count())};
  std::vector<float> values(static_cast<std::size_t>(params));
  round::split_model(model.schema, model.bytes.span(), values, {});
  return values;
}

// Models of earlier rounds are not kept, as in any run: what they must have been is held to their digests, and the last
// one to its bytes.
Status audit(const Io& io, const TreeOptions& options, const Outcome& outcome, const std::string& initial,
             const Supervisor& supervisor) {
  if (outcome.rounds.size() != options.rounds)
    return Error{Code::kDataLoss, fmt::format("the journal holds {} rounds", outcome.rounds.size())};
  Audit audit(plan_of(options), options.seed, outcome.run, outcome.sites, options.shape.weight_max, schema_of(options));
  FLUVIAL_ASSIGN(std::vector<float> base, read_values(initial, options.params));
  DownAudit down(plan_of(options), base);
  for (std::uint64_t number = 1; number <= options.rounds; ++number) {
    const json::value& round = outcome.rounds[number - 1];
    if (number == options.rounds) {
      FLUVIAL_ASSIGN(const std::vector<float> committed, read_values(outcome.last_model, options.params));
      FLUVIAL_TRY(audit.check_round(round, base, committed, down.trained()));
      base = committed;
    } else {
      FLUVIAL_ASSIGN(base, audit.next_model(round, base, down.trained()));
    }
    const std::string committed = text_member(round, "master_sha256");
    if (const std::string expected = to_hex(sha256(std::as_bytes(std::span<const float>(base)))); expected != committed)
      return Error{Code::kDataLoss, fmt::format("round {}: committed {}, expected {}", number, committed, expected)};
    FLUVIAL_TRY(down.committed(base, text_member(round, "model_sha256")));
    io.note(fmt::format("round {}: the committed sum is exact\n", number));
    if (const auto failure = supervisor.failure()) return *failure;
  }
  return {};
}

Result<Outcome> measure(const Io& io, const TreeOptions& options, Supervisor& supervisor, const WorkFolder& folder) {
  FLUVIAL_ASSIGN(const std::string executable, own_executable());
  LocalFederation federation(supervisor, executable, folder.path(), options.shape);
  io.note(fmt::format("starting 1 coordinator, {} aggregators and {} sites\n",
                      options.shape.aggregators + (options.shape.aggregators == 0 ? 0 : options.shape.tiers - 1),
                      options.shape.sites));
  FLUVIAL_TRY(federation.start());
  for (std::size_t i = 0; i < federation.sites().size(); ++i) {
    FLUVIAL_TRY(federation.spawn_worker(fmt::format("worker-{}", i + 1),
                                        {executable, "bench-worker", "--socket", federation.sites()[i].worker_socket,
                                         "--site", std::to_string(i + 1), "--seed", std::to_string(options.seed)}));
  }
  FLUVIAL_TRY(write_initial_model(options, folder.file("initial.safetensors")));
  Outcome outcome;
  FLUVIAL_ASSIGN(outcome.run,
                 start_local_run(federation.admin(), plan_of(options), folder.path(), "initial.safetensors"));
  RoundView view(Io{.out = io.err, .err = io.err}, options.rounds, RoundView::Evaluation::kSeparate);
  RoundCounts counts(supervisor.running());
  FLUVIAL_TRY(watch_local_run(federation.admin(), outcome.run, options.rounds, view,
                              [&counts](const json::value& event) { counts.on_event(event); }));
  view.finish();
  outcome.warm = counts.finish();
  FLUVIAL_TRY(collect(federation, options, outcome));
  supervisor.stop();
  if (const auto failure = supervisor.failure()) return *failure;
  outcome.processes = supervisor.usage();
  io.note("checking every sum against an independent loop\n");
  outcome.exact = audit(io, options, outcome, folder.file("initial.safetensors"), supervisor);
  if (const auto failure = supervisor.failure()) return *failure;
  return outcome;
}

// A round's payload at the coordinator, on average.
double root_bytes(const Outcome& outcome, std::string_view key) {
  double sum = 0;
  for (const json::value& round : outcome.rounds) sum += number_member(round, key, 0);
  return outcome.rounds.empty() ? 0 : sum / static_cast<double>(outcome.rounds.size());
}

std::vector<double> round_seconds(const Outcome& outcome) {
  std::vector<double> seconds;
  for (const json::value& round : outcome.rounds) seconds.push_back(number_member(round, "seconds", 0));
  return seconds;
}

double update_bytes(const TreeOptions& options, const Outcome& outcome) {  // of a site and round
  return outcome.update_bytes_sent / static_cast<double>(options.shape.sites * options.rounds);
}

// After the federation has ended: the machine is then as quiet as it gets. Its error says why there is no headline.
Result<bound::Headline> headline_of(const TreeOptions& options, const Outcome& outcome, const WorkFolder& folder) {
  if (options.no_bound) return Error{Code::kCancelled, "left out (--no-bound)"};
  const bound::TreeShape shape{.sites = options.shape.sites,
                               .aggregators = options.shape.aggregators,
                               .tiers = options.shape.tiers,
                               .params = options.params};
  std::vector<double> seconds = round_seconds(outcome);
  std::sort(seconds.begin(), seconds.end());
  const bound::MeasuredRound measured{.up_per_site = update_bytes(options, outcome),
                                      .up_into_root = root_bytes(outcome, "bytes_up"),
                                      .round_s = seconds[seconds.size() / 2]};
  return bound::headline(shape, {options.codec, options.down}, measured, folder.path());
}

json::object to_json(const TreeOptions& options, const Outcome& outcome) {
  json::array seconds;
  for (const double took : round_seconds(outcome)) seconds.push_back(took);
  json::array processes;
  for (const ProcessUsage& process : outcome.processes) {
    processes.push_back(json::object{{"role", process.role},
                                     {"name", process.name},
                                     {"peak_rss_bytes", process.peak_rss_bytes},
                                     {"cpu_seconds", process.cpu_seconds}});
  }
  return {{"sites", options.shape.sites},
          {"aggregators", options.shape.aggregators},
          {"tiers", options.shape.tiers},
          {"params", options.params},
          {"codec", options.codec},
          {"down", options.down},
          {"late_is_next", options.late_is_next},
          {"async_goal", options.async_goal},
          {"rounds", options.rounds},
          {"seed", options.seed},
          {"round_seconds", std::move(seconds)},
          {"bytes_up_per_site_round", update_bytes(options, outcome)},
          {"bytes_up_root_round", root_bytes(outcome, "bytes_up")},
          {"bytes_down_root_round", root_bytes(outcome, "bytes_down")},
          {"processes", std::move(processes)},
          {"warm_rounds", options.rounds - 1},
          {"warm_round", to_json(outcome.warm)},
          {"model_sha256", outcome.rounds.empty() ? "" : text_member(outcome.rounds.back(), "model_sha256")},
          {"exact", outcome.exact.ok()}};
}

void print_warm_round(const Io& io, const Outcome& outcome) {
  Table roles({{"ROLE, A WARM ROUND"},
               {"PROCESSES", Align::kRight},
               {"CPU", Align::kRight},
               {"MINOR FAULTS", Align::kRight},
               {"WAITS", Align::kRight},
               {"PREEMPTIONS", Align::kRight},
               {"PEAK ANON+SHMEM", Align::kRight}});
  for (const RoleCounts& role : outcome.warm) {
    roles.add({role.role, std::to_string(role.processes), format_seconds(role.cpu_seconds),
               fmt::format("{:.0f}", role.minor_faults), fmt::format("{:.0f}", role.voluntary_switches),
               fmt::format("{:.0f}", role.involuntary_switches),
               format_bytes(static_cast<double>(role.peak_own_bytes))});
  }
  io.print("\n" + roles.render(io.terminal()));
}

void print_summary(const Io& io, const TreeOptions& options, const Outcome& outcome) {
  Table processes({{"PROCESS"}, {"ROLE"}, {"PEAK MEMORY", Align::kRight}, {"CPU", Align::kRight}});
  for (const ProcessUsage& process : outcome.processes) {
    processes.add({process.name, process.role, format_bytes(static_cast<double>(process.peak_rss_bytes)),
                   format_seconds(process.cpu_seconds)});
  }
  std::vector<double> seconds = round_seconds(outcome);
  std::sort(seconds.begin(), seconds.end());
  const double bytes = update_bytes(options, outcome);
  io.print(processes.render(io.terminal()));
  if (options.rounds > 1) print_warm_round(io, outcome);
  io.print(fmt::format(
      "\n{} parameters, {}, {} sites: median round {} (fastest {}, slowest {}), {} up a site and round\n",
      format_count(options.params), options.codec, options.shape.sites, format_seconds(seconds[seconds.size() / 2]),
      format_seconds(seconds.front()), format_seconds(seconds.back()), format_bytes(bytes)));
  io.print(outcome.exact.ok()
               ? fmt::format("exact: all {} sums are what an independent loop gives, bit for bit\n", options.rounds)
               : fmt::format("NOT exact: {}\n", outcome.exact.error().message));
}

void print_headline(const Io& io, const Result<bound::Headline>& headline) {
  if (!headline.ok()) {
    io.print(fmt::format("no processor bound: {}\n", headline.error().message));
    return;
  }
  io.print(fmt::format(
      "processor bound: {} (TLS, kernels, files and workers over {:.0f} cores); the round takes {:.2f} times that, "
      "{:.2f} times the bound with digests\n",
      format_seconds(headline->processor_s), headline->machine.cores, headline->ratio, headline->digested_ratio));
}

// What the plan would be refused for, in words of the flags that make it.
Status check_mode(const TreeOptions& options) {
  const Status fits = aggregate::check_codec_fits(plan_of(options));
  TreeOptions rounds = options;
  rounds.async_goal = 0;
  rounds.late_is_next = false;
  if (fits.ok() || !aggregate::check_codec_fits(plan_of(rounds)).ok()) return fits;
  const char* flag = options.async_goal > 0 ? "--async-goal" : "--late-is-next";
  return Error{Code::kInvalidArgument,
               fmt::format("{} does not go with --codec {}, whose updates fit the round that they are made for alone; "
                           "leave {} out, or take another codec",
                           flag, options.codec, flag)};
}

int run_tree(const Io& io, const TreeOptions& options) {
  const auto spec = kernels::parse_codec(options.codec);
  if (!spec.ok()) return fail(io, "bench tree: --codec", spec.error(), kUsage);
  const auto down = aggregate::parse_down(options.down);
  if (!down.ok()) return fail(io, "bench tree: --down", down.error(), kUsage);
  if (const Status mode = check_mode(options); !mode.ok()) return fail(io, "bench tree", mode.error(), kUsage);
  auto folder = WorkFolder::open(options.work_dir, false, "bench");
  if (!folder.ok()) return fail(io, "bench tree", folder.error(), kUsage);
  auto supervisor = Supervisor::create(std::chrono::seconds(15));
  if (!supervisor.ok()) return fail(io, "bench tree", supervisor.error());
  const auto outcome = measure(io, options, **supervisor, *folder);
  if (!outcome.ok()) {
    const Error error = (*supervisor)->explain(outcome.error());
    (*supervisor)->stop();
    return fail(io, "bench tree", error);
  }
  print_summary(io, options, *outcome);
  const Result<bound::Headline> headline = headline_of(options, *outcome, *folder);
  print_headline(io, headline);
  if (!options.json.empty()) {
    json::object figures = to_json(options, *outcome);
    if (headline.ok()) {
      figures["processor_bound_seconds"] = headline->processor_s;
      figures["round_over_processor_bound"] = headline->ratio;
      figures["round_over_processor_bound_with_digests"] = headline->digested_ratio;
    }
    const Status written = write_text_file(options.json, pretty(figures));
    if (!written.ok()) return fail(io, "bench tree", written.error());
  }
  return outcome->exact.ok() ? kDone : kFailed;
}

}  // namespace

void add_bench_tree_command(CLI::App& bench, Commands& commands) {
  const auto options = std::make_shared<TreeOptions>();
  CLI::App* tree =
      bench.add_subcommand("tree", "a federation on loopback with synthetic updates: time, bytes, memory, exactness");
  const auto number = [tree](const std::string& flag, std::uint64_t& value, const std::string& help,
                             std::uint64_t least, std::uint64_t most) {
    tree->add_option(flag, value, help)->type_name("N")->check(whole_number(least, most))->capture_default_str();
  };
  options->shape.arguments["site"] = {"--gpus", "none"};  // its workers have no use for them
  number("--sites", options->shape.sites, "sites, with one worker each", 1, 1'000);
  number("--aggregators", options->shape.aggregators, "regional aggregators; 0: none", 0, 1'000);
  number("--tiers", options->shape.tiers, "tiers of aggregators; above the regions one aggregator a tier", 1, 7);
  number("--params", options->params, "fp32 parameters of the model", 1, std::uint64_t{1} << 31);
  tree->add_option("--codec", options->codec, "of the updates, with options: " + kernels::codec_names())
      ->capture_default_str();
  tree->add_option("--down", options->down, "how the model travels to the sites: " + std::string(aggregate::kDownForms))
      ->capture_default_str();
  number("--rounds", options->rounds, "rounds", 1, 100'000);
  number("--seed", options->seed, "of model and updates", 0, 1'000'000'000);
  tree->add_flag("--late-is-next", options->late_is_next,
                 "with the plan's `late = \"next\"`: the same sums, nobody is late");
  number("--async-goal", options->async_goal, "with `mode = \"async\"`, windows of so many contributions; 0: rounds", 0,
         1'000);
  tree->add_flag("--sum-digest", options->sum_digest, "also compare the journal's digest of each integer sum");
  tree->add_flag("--no-bound", options->no_bound, "leave out the processor bound, whose probes take some seconds");
  tree->add_option("--json", options->json, "write the figures to this file")->type_name("FILE");
  tree->add_option("--work-dir", options->work_dir,
                   "an empty folder to work in and leave as it is (default: a temporary one)")
      ->type_name("PATH");
  tree->footer(
      "Example:\n  fluvial bench tree --sites 8 --aggregators 2 --params 10000000 --codec int8 --json bench.json");
  tree->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return run_tree(commands.io, *options); }; });
}

void add_bench_commands(CLI::App& app, Commands& commands) {
  CLI::App* bench = app.add_subcommand("bench", "measurements: real processes, what bounds them, real training");
  add_bench_tree_command(*bench, commands);
  add_bench_asynchrony_command(*bench, commands);
  add_bench_bound_command(*bench, commands);
  add_bench_worker_command(app, commands);
}

}  // namespace fluvial::cli
