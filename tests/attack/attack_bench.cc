// What an honest round and a health check take while somebody attacks, against a control that burns as much processor:
// ./dev bench attack. A federation of real processes on loopback; attackers are threads of this process.
#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <iostream>
#include <sstream>

#include "cli/bench_update.h"
#include "core/base/testing.h"
#include "tests/attack/bench_attacks.h"
#include "tests/attack/bench_federation.h"

namespace fluvial::attack {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::milliseconds kProbeInterval{50};
constexpr std::chrono::seconds kPhaseLimit{60};
constexpr std::chrono::milliseconds kSlot{10};

struct Options {
  std::uint64_t rounds = 15;
  std::vector<std::string> attacks;
  std::string json;
};

struct Figures {
  double round_ms = 0;  // the median
  double health_ms = 0;
  double health_max_ms = 0;
  std::uint64_t unhealthy = 0;  // probes without an answer
  double cores = 0;             // processors that this process and the coordinator were given together
};

double seconds_since(Clock::time_point begun) { return std::chrono::duration<double>(Clock::now() - begun).count(); }

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Asks for /healthz again and again, as a probe of an orchestrator does.
class Probe {
 public:
  explicit Probe(std::uint16_t port) : thread_([this, port] { run(port); }) {}
  void finish(Figures& figures) {
    stopping_ = true;
    thread_.join();
    figures.health_ms = median(took_ms_);
    figures.health_max_ms = took_ms_.empty() ? 0 : *std::ranges::max_element(took_ms_);
    figures.unhealthy = failed_;
  }

 private:
  void run(std::uint16_t port) {
    while (!stopping_) {
      const auto begun = Clock::now();
      if (!cli::get_page(port, "/healthz").ok()) ++failed_;
      took_ms_.push_back(seconds_since(begun) * 1e3);
      std::this_thread::sleep_for(kProbeInterval);
    }
  }
  std::atomic<bool> stopping_{false};
  std::vector<double> took_ms_;
  std::uint64_t failed_ = 0;
  std::thread thread_;
};

// So many processors' worth of nothing, on as many threads as the attack had.
std::unique_ptr<Flood> burn(unsigned threads, double cores) {
  const double share = std::clamp(cores / threads, 0.0, 1.0);
  return std::make_unique<Flood>(threads, [share](std::uint64_t) {
    const auto begun = Clock::now();
    const auto spun = std::chrono::duration_cast<Clock::duration>(kSlot * share);
    while (Clock::now() - begun < spun) {
    }
    std::this_thread::sleep_until(begun + kSlot);
  });
}

class Bench {
 public:
  explicit Bench(Options options)
      : options_(std::move(options)), federation_({.sites = 2, .aggregators = 0, .weight_max = cli::kBenchWeightMax}) {}

  Status run() {
    FLUVIAL_TRY(federation_.start(std::chrono::seconds(60)));
    FLUVIAL_ASSIGN(const Scene scene,
                   Scene::of(federation_.admin(), federation_.processes().coordinator_metrics_port()));
    FLUVIAL_ASSIGN(const Figures quiet, measure());
    fmt::print("nobody attacks: a round {:.0f} ms, /healthz {:.1f} ms\n\n", quiet.round_ms, quiet.health_ms);
    fmt::print("{:<14}{:>8}{:>12}{:>12}{:>8}{:>12}{:>12}{:>12}{:>10}\n", "attack", "threads", "round ms", "control ms",
               "ratio", "healthz ms", "control ms", "at most ms", "no answer");
    cli::json::array rows;
    for (const BenchAttack& attack : bench_attacks()) {
      const auto& wanted = options_.attacks;
      if (!wanted.empty() && std::ranges::find(wanted, attack.name) == wanted.end()) continue;
      FLUVIAL_ASSIGN(const Figures attacked, measure([&] { return attack.start(scene); }));
      const double burnt = std::max(0.0, attacked.cores - quiet.cores);
      FLUVIAL_ASSIGN(const Figures control,
                     measure([&]() -> Result<std::unique_ptr<Flood>> { return burn(attack.threads, burnt); }));
      rows.push_back(report(attack, attacked, control, burnt));
    }
    if (options_.json.empty()) return {};
    return cli::write_text_file(options_.json, cli::pretty(cli::json::object{{"quiet_round_ms", quiet.round_ms},
                                                                             {"quiet_healthz_ms", quiet.health_ms},
                                                                             {"attacks", std::move(rows)}}));
  }

 private:
  // While what `disturb` starts is there.
  Result<Figures> measure(const std::function<Result<std::unique_ptr<Flood>>()>& disturb = {}) {
    FLUVIAL_ASSIGN(const std::uint64_t before, federation_.committed());
    std::unique_ptr<Flood> disturbance;
    if (disturb) {
      FLUVIAL_ASSIGN(disturbance, disturb());
    }
    Probe probe(federation_.processes().coordinator_metrics_port());
    const double cpu_before = cpu_seconds();
    const auto begun = Clock::now();
    const std::vector<double> rounds_ms = watch_rounds(before + 1);
    Figures figures;
    figures.round_ms = median(rounds_ms);
    figures.cores = (cpu_seconds() - cpu_before) / seconds_since(begun);
    probe.finish(figures);
    disturbance.reset();
    if (rounds_ms.empty()) figures.round_ms = seconds_since(begun) * 1e3;  // at least
    return figures;
  }

  // From one commit to the next, `rounds` of them or as many as there are within the limit.
  std::vector<double> watch_rounds(std::uint64_t from) {
    std::vector<double> took_ms;
    std::optional<Clock::time_point> last;
    const auto begun = Clock::now();
    const Status watched = federation_.admin().watch(
        fmt::format("/v1/rounds/watch?run={}&from={}", federation_.run(), from), [&](const auto& event) {
          if (cli::text_member(event, "event") == "committed") {
            if (last) took_ms.push_back(seconds_since(*last) * 1e3);
            last = Clock::now();
          }
          return took_ms.size() < options_.rounds && Clock::now() - begun < kPhaseLimit;
        });
    if (!watched.ok()) fmt::print(stderr, "rounds: {}\n", watched.error().message);
    return took_ms;
  }

  // Of this process and the coordinator.
  double cpu_seconds() {
    rusage own{};
    ::getrusage(RUSAGE_SELF, &own);
    const auto seconds = [](const timeval& time) {
      return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
    };
    const std::string stat = text_of_file(fmt::format(
        "/proc/{}/stat", federation_.supervisor().pid_of(federation_.processes().process_of("coordinator"))));
    std::istringstream fields(stat.substr(stat.rfind(')') + 2));
    std::string skipped;
    for (int i = 0; i < 11; ++i) fields >> skipped;  // state ... cmajflt
    double user = 0, system = 0;
    fields >> user >> system;
    return seconds(own.ru_utime) + seconds(own.ru_stime) +
           (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
  }

  static cli::json::object report(const BenchAttack& attack, const Figures& attacked, const Figures& control,
                                  double burnt) {
    const double ratio = attacked.round_ms / std::max(1.0, control.round_ms);
    fmt::print("{:<14}{:>8}{:>12.0f}{:>12.0f}{:>8.2f}{:>12.1f}{:>12.1f}{:>12.0f}{:>10}\n", attack.name, attack.threads,
               attacked.round_ms, control.round_ms, ratio, attacked.health_ms, control.health_ms,
               attacked.health_max_ms, attacked.unhealthy);
    std::fflush(stdout);
    return {{"attack", attack.name},
            {"threads", attack.threads},
            {"processors_burnt", burnt},
            {"round_ms", attacked.round_ms},
            {"control_round_ms", control.round_ms},
            {"ratio", ratio},
            {"healthz_ms", attacked.health_ms},
            {"healthz_max_ms", attacked.health_max_ms},
            {"healthz_failed", attacked.unhealthy},
            {"control_healthz_ms", control.health_ms},
            {"control_healthz_max_ms", control.health_max_ms}};
  }

  const Options options_;
  BenchFederation federation_;
};

}  // namespace
}  // namespace fluvial::attack

int main(int argc, char** argv) {
  using namespace fluvial::attack;
  CLI::App app("An honest round's median and /healthz under each attack, against as much processor burnt",
               "attack_bench");
  Options options;
  std::vector<std::string> names;
  for (const BenchAttack& attack : bench_attacks()) names.push_back(attack.name);
  app.add_option("--rounds", options.rounds, "rounds to measure in each phase")->check(CLI::Range(3, 10'000));
  app.add_option("--attack", options.attacks, "these alone")->check(CLI::IsMember(names));
  app.add_option("--json", options.json, "write the figures there as well");
  CLI11_PARSE(app, argc, argv);
  const fluvial::Status ran = Bench(std::move(options)).run();
  if (!ran.ok()) std::cerr << "attack_bench: " << ran.error().message << "\n";
  return ran.ok() ? 0 : 1;
}
