#include "tests/chaos/options.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <limits>
#include <map>
#include <random>

#include "cli/bench_update.h"
#include "core/base/rng.h"
#include "kernels/codec.h"

namespace fluvial::chaos {
namespace {

constexpr std::uint64_t kRoundsUnlessTold = 200;
constexpr int kPaceOfDefaults = 8;  // a process is out for up to 32 s, and silence is noticed after 20 s

constexpr const char* kAbout =
    "Starts a federation of real processes on this machine, trains synthetic updates, and every 0.5 to 2 seconds kills "
    "(-9) or "
    "stops (SIGSTOP) one of its processes, the coordinator included; what died is started again, what was stopped goes "
    "on or is killed. Every committed round is checked against an independent loop, bit for bit.";

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

Status check_codec(const Options& options) {
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(options.codec));
  FLUVIAL_ASSIGN(const auto codec, kernels::make_codec(spec));
  const kernels::VectorSchema schema{
      .layout = {.value_count = options.params, .chunk_values = plan_of(options).chunk_values}, .tensors = {}};
  if (codec->state_bytes(schema) == 0) return {};
  return Error{
      Code::kInvalidArgument,
      "--codec " + options.codec + " keeps a state from round to round, which the audit does not follow: take another"};
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
  number("--params", options.params, "fp32 parameters of the model", 1, 100'000'000)->capture_default_str();
  app.add_option("--codec", options.codec, "of the updates, with options: " + kernels::codec_names())
      ->capture_default_str();
  number("--gap-max", options.gap_max_s, "seconds without a commit that are a failure (60; 300 with --defaults)", 1,
         100'000);
  app.add_flag("--defaults", options.defaults,
               "the defaults of settings and plan instead of short times, and the faults eight times as slow");
  app.add_option("--executable", options.executable, "the fluvial whose processes are started")->type_name("FILE");
  app.add_option("--json", options.json, "write the figures to this file")->type_name("FILE");
  app.add_option("--keep", options.keep, "an empty folder to work in and leave as it is")->type_name("PATH");
  std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());
  try {
    app.parse(reversed);
  } catch (const CLI::ParseError& error) {
    parsed.status = app.exit(error) == 0 ? cli::kDone : cli::kUsage;
    return parsed;
  }
  if (const Status followed = check_codec(options); !followed.ok()) {
    parsed.status = fail({}, followed.error(), cli::kUsage);
    return parsed;
  }
  if (options.seconds == 0 && options.rounds == 0) options.rounds = kRoundsUnlessTold;
  if (options.gap_max_s == 0) options.gap_max_s = options.defaults ? 300 : 60;
  if (options.defaults) options.pace = kPaceOfDefaults;
  parsed.run = true;
  return parsed;
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

round::Plan plan_of(const Options& options) {
  round::Plan plan;
  plan.name = "chaos";
  plan.rounds = 1'000'000'000;  // until it is told to end
  plan.codec = options.codec;
  plan.chunk_values = 4'096;
  plan.participants_min = plan.quorum = (options.sites + 1) / 2;
  if (!options.defaults) {
    plan.soft_deadline = std::chrono::milliseconds(2'000);
    plan.soft_deadline_min = std::chrono::milliseconds(500);
    plan.hard_deadline = std::chrono::milliseconds(6'000);
  }
  plan.attempts_max = 1'000;
  plan.models_kept = 200;
  plan.seed = options.seed;
  plan.sum_digest = true;
  return plan;
}

}  // namespace fluvial::chaos
