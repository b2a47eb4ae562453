#include "tests/chaos/options.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <random>

#include "cli/bench_update.h"
#include "core/aggregate/plan_codec.h"
#include "core/aggregate/plan_forms.h"
#include "core/base/rng.h"
#include "kernels/codec.h"

namespace fluvial::chaos {
namespace {

constexpr std::uint64_t kRoundsUnlessTold = 200;
constexpr int kPaceOfDefaults = 8;  // a process is out for up to 32 s, and silence is noticed after 20 s

constexpr std::array kKinds = {FaultKind::kKill,     FaultKind::kStop, FaultKind::kStopAndKill,
                               FaultKind::kPowerCut, FaultKind::kDisk, FaultKind::kNetwork};
// One of each family. The last one brings its own optimizer.
constexpr std::array kCodecs = {"fp32",
                                "bf16",
                                "fp16",
                                "int8",
                                "int4",
                                "qsgd",
                                "sign",
                                "terngrad",
                                "topk:ratio=0.1",
                                "randk:ratio=0.2",
                                "int8:zstd=1",
                                "dgc:ratio=0.1",
                                "ring:max=0.05",
                                "powersgd:rank=2",
                                "onebit_adam:freeze=3"};
constexpr std::array kOptimizers = {"fedavg",  "fedavgm",  "fedadagrad",       "fedadam",
                                    "fedyogi", "nesterov", "delayed_nesterov", "signsgd"};
constexpr std::array<std::uint64_t, 3> kChunkValues = {1'000, 4'096, 20'000};

// Of ten faults.
const std::vector<std::string> kFaultsUnlessTold = {"kill",      "kill", "stop", "stop-kill", "power-cut",
                                                    "power-cut", "disk", "disk", "network",   "network"};

constexpr const char* kAbout =
    "Starts a federation of real processes on this machine, trains synthetic updates, and every 0.5 to 2 seconds "
    "disturbs one of its processes, the coordinator included: kills it (-9), stops it, cuts its power (what was not "
    "fsynced is lost or torn), lets its disk fail or fill up, or its network. What ended is started again. Every "
    "committed round is checked against an independent loop, bit for bit.";

constexpr const char* kFooter =
    R"(Until both --seconds and --rounds are reached (200 rounds when neither is given); then the faults stop, and two more
rounds must commit with every site.

What is checked: each committed model is its base plus the mean of exactly the named sites' updates; nobody counts
twice; round follows round, each committed once, and stays as it was told; some round commits every --gap-max seconds;
after the faults every submission has an outcome, every site's residual is what it trained less what was counted, and
every process ends when it is told to.

  fluvial_chaos                              200 rounds
  fluvial_chaos --seconds 3600               an hour
  fluvial_chaos --seed 7 --keep /tmp/chaos   the same faults at the same times again; logs and folders stay there
  fluvial_chaos --codec int8                 with residuals
  fluvial_chaos --faults power-cut           power cuts alone
  fluvial_chaos --faults disk --roles site   disks of sites alone

The seed fixes who is disturbed when and how; what the processes are at just then is theirs. Exit status: 0 when
everything held, 1 when not (seed, violation, last faults, what each role believed and the ends of the logs are
printed), 2 for a wrong command line.)";

// A port that no outgoing connection gets while its owner is down: below the range that the kernel hands out.
std::uint16_t free_port(Rng& rng) {
  constexpr std::uint16_t kFirst = 10'000;
  constexpr std::uint64_t kCount = 20'000;
  for (;;) {
    const auto port = static_cast<std::uint16_t>(kFirst + rng.below(kCount));
    const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    at.sin_port = htons(port);
    const bool is_free = ::bind(fd, reinterpret_cast<const sockaddr*>(&at), sizeof at) == 0;  // NOLINT: POSIX
    ::close(fd);
    if (is_free) return port;
  }
}

// Short enough that a minute holds dozens of failovers, returns and silent peers.
std::map<std::string, std::vector<std::string>> short_times() {
  const std::vector<std::string> session = {
      "--session-heartbeat-interval-ms", "500",  "--session-heartbeat-timeout-ms",   "2000",
      "--session-handshake-deadline-ms", "2000", "--session-reconnect-delay-max-ms", "1000"};
  const auto with = [&session](std::vector<std::string> more) {
    more.insert(more.end(), session.begin(), session.end());
    return more;
  };
  return {{"coordinator",
           with({"--failover-after-ms", "1000", "--unreachable-for-ms", "3000", "--return-after-ms", "2000"})},
          {"aggregator", with({"--parentless-max-ms", "3000"})},
          {"site", with({"--worker-attach-deadline-ms", "5000", "--outcome-interval-ms", "2000"})}};
}

// As asked for, or as drawn where nobody asked. Of a codec that goes with one optimizer alone either brings the other.
void take_codec(const Options& options, const std::string& codec, const std::string& optimizer, round::Plan& plan) {
  plan.codec = options.codec.empty() ? codec : options.codec;
  plan.optimizer = round::parse_server_optimizer(options.optimizer.empty() ? optimizer : options.optimizer).value();
  if (aggregate::check_codec_fits(plan).ok()) return;
  if (options.optimizer.empty()) {
    aggregate::suit_optimizer(&plan);
  } else if (options.codec.empty()) {
    plan.codec = plan.optimizer.kind == round::Optimizer::kOnebitAdam ? kCodecs.back() : kCodecs.front();
  }
}

Status check_plan(const Options& options) {
  if (!options.optimizer.empty()) {
    FLUVIAL_ASSIGN(const round::ServerOptimizer optimizer, round::parse_server_optimizer(options.optimizer));
    const std::string name(round::optimizer_name(optimizer.kind));
    if (std::ranges::find(kOptimizers, name) == kOptimizers.end() && optimizer.kind != round::Optimizer::kOnebitAdam) {
      return Error{Code::kInvalidArgument, "--optimizer " + name + " is beyond the audit: take another"};
    }
  }
  if (options.codec.empty()) return {};
  FLUVIAL_TRY(aggregate::check_plan_codec(options.codec));
  round::Plan plan;
  take_codec(options, options.codec, "fedavg", plan);
  return aggregate::check_codec_fits(plan);
}

// Neighbouring seeds begin alike: the n-th word of one generator seeds another.
Rng rng_of_run(const Options& options, std::uint64_t n) {
  Rng seeds(options.seed);
  for (std::uint64_t i = 0; i < n; ++i) seeds.next();
  return Rng(seeds.next());
}

bool hands_down(const std::string& codec) {
  const auto made = kernels::make_codec(*kernels::parse_codec(codec));
  return made.ok() && (*made)->hands_down();
}

}  // namespace

int fail(const cli::Io& io, const Error& error, int status) {
  io.note(fmt::format("fluvial_chaos: {}\n", error.message));
  return status;
}

Parsed parse(const std::vector<std::string>& arguments) {
  Parsed parsed;
  Options& options = parsed.options;
  std::random_device device;
  options.seed = device();
  CLI::App app(kAbout, "fluvial_chaos");
  app.footer(kFooter);
  const auto number = [&app](const std::string& flag, std::uint64_t& value, const std::string& help,
                             std::uint64_t least, std::uint64_t most) {
    return app.add_option(flag, value, help)->type_name("N")->check(cli::whole_number(least, most));
  };
  number("--seconds", options.seconds, "faults for so long", 0, 1'000'000);
  number("--rounds", options.rounds, "faults until so many rounds are committed", 0, 10'000'000);
  number("--seed", options.seed, "of the faults and the updates (default: another each time; it is printed)", 0,
         std::numeric_limits<std::uint32_t>::max());
  number("--sites", options.sites, "sites, with one worker each", 2, 100)->capture_default_str();
  number("--aggregators", options.aggregators, "aggregators of the lowest tier; 0: none", 0, 50)->capture_default_str();
  number("--tiers", options.tiers, "tiers of aggregators; above the lowest one a tier", 1, 7)->capture_default_str();
  number("--params", options.params, "fp32 parameters of the model", 256, 100'000'000)->capture_default_str();
  app.add_option("--codec", options.codec,
                 "of every run's updates, with options (default: another for each run): " + kernels::codec_names());
  app.add_option("--optimizer", options.optimizer,
                 "the server's in every run, with options (default: another for each run)");
  number("--run-seconds", options.run_seconds, "seconds of faults after which the next run begins", 1, 1'000'000)
      ->capture_default_str();
  number("--gap-max", options.gap_max_s, "seconds without a commit that are a failure (60; 300 with --defaults)", 1,
         100'000);
  app.add_flag("--defaults", options.defaults,
               "the defaults of settings and plan instead of short times, and the faults eight times as slow");
  app.add_option("--faults", options.faults,
                 "kinds, with commas, one as often as it is likely: kill, stop, stop-kill, power-cut, disk, network")
      ->delimiter(',')
      ->check(cli::one_of({"kill", "stop", "stop-kill", "power-cut", "disk", "network"}));
  app.add_option("--roles", options.roles, "who is disturbed, with commas: coordinator, aggregator, site")
      ->delimiter(',')
      ->check(cli::one_of({"coordinator", "aggregator", "site"}));
  app.add_option("--executable", options.executable,
                 "whose processes are started, with their disks as tests/chaos/node.cc has them")
      ->type_name("FILE");
  app.add_option("--json", options.json, "write the figures to this file")->type_name("FILE");
  app.add_option("--keep", options.keep, "an empty folder to work in and leave as it is")->type_name("PATH");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    parsed.status = app.exit(error) == 0 ? cli::kDone : cli::kUsage;
    return parsed;
  }
  if (const Status followed = check_plan(options); !followed.ok()) {
    parsed.status = fail({}, followed.error(), cli::kUsage);
    return parsed;
  }
  if (options.faults.empty()) options.faults = kFaultsUnlessTold;
  if (options.seconds == 0 && options.rounds == 0) options.rounds = kRoundsUnlessTold;
  if (options.gap_max_s == 0) options.gap_max_s = options.defaults ? 300 : 60;
  if (options.defaults) options.pace = kPaceOfDefaults;
  parsed.run = true;
  return parsed;
}

std::vector<FaultKind> kinds_of(const Options& options) {
  std::vector<FaultKind> kinds;
  for (const std::string& name : options.faults) {
    kinds.push_back(*std::ranges::find(kKinds, name, [](FaultKind kind) { return fault_name(kind); }));
  }
  return kinds;
}

cli::FederationShape shape_of(const Options& options) {
  std::random_device device;
  Rng rng(device());  // which ports are free is no matter of the seed
  cli::FederationShape shape{.sites = options.sites,
                             .aggregators = options.aggregators,
                             .tiers = options.tiers,
                             .weight_max = cli::kBenchWeightMax,
                             .may_fail = true};
  if (!options.defaults) shape.arguments = short_times();
  shape.member_port = free_port(rng);
  do {
    shape.enrol_port = free_port(rng);
  } while (shape.enrol_port == shape.member_port);
  return shape;
}

round::Schema schema_of(const Options& options) {
  const std::uint64_t first = options.params / 16 * 8;  // about half
  const std::uint64_t bias = options.params / 8;
  return round::Schema::make({{"in.weight", round::DType::kF32, {first / 8, 8}},
                              {"steps", round::DType::kI64, {3}},
                              {"in.bias", round::DType::kF32, {bias}},
                              {"seen", round::DType::kI32, {2}},
                              {"out.weight", round::DType::kF32, {options.params - first - bias}}})
      .value();
}

bool continues(const Options& options, std::uint64_t n) { return n > 0 && rng_of_run(options, n).below(2) == 1; }

round::Plan plan_of(const Options& options, std::uint64_t n) {
  Rng rng = rng_of_run(options, n);
  rng.next();  // continues()
  const auto draw = [&rng](const auto& from) { return from[rng.below(std::size(from))]; };
  round::Plan plan;
  plan.name = fmt::format("chaos-{}", n + 1);
  plan.rounds = 1'000'000'000;  // until it is told to end
  const std::string codec = draw(kCodecs);
  take_codec(options, codec, draw(kOptimizers), plan);
  plan.chunk_values = draw(kChunkValues);
  const std::uint64_t half = (options.sites + 1) / 2;
  plan.participants_min = plan.quorum = half + rng.below(2) * (options.sites > half + 1 ? 1 : 0);
  if (!options.defaults) {
    plan.soft_deadline = std::chrono::milliseconds(2'000);
    plan.soft_deadline_min = std::chrono::milliseconds(500);
    plan.hard_deadline = std::chrono::milliseconds(6'000);
  }
  plan.attempts_max = 1'000;
  plan.models_kept = 200;
  plan.seed = options.seed;
  plan.sum_digest = true;
  const bool may_be_later = !hands_down(plan.codec);  // what is made of that fits one round
  if (rng.below(2) == 1 && may_be_later) {
    plan.late = "next";
    plan.staleness_max = static_cast<std::uint32_t>(1 + rng.below(3));
  }
  if (rng.below(3) == 0 && may_be_later) {
    round::set_mode("async", &plan);
    plan.async_goal = options.sites;  // in peace every window holds everybody; else whoever is there in its time
    plan.quorum = 1;
  }
  return plan;
}

}  // namespace fluvial::chaos
