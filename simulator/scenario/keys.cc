#include "simulator/scenario/keys.h"

#include <cmath>
#include <type_traits>
#include <utility>

namespace fluvial::simulator {
namespace {

constexpr double kDayMs = 86'400'000;
constexpr double kMany = 1'000'000'000'000;

class Declare {
 public:
  explicit Declare(std::vector<ScenarioKey>& keys) : keys_(keys) {}

  template <typename Field>
  void count(std::string key, double low, double high, Field field, std::string help) {
    add(std::move(key), "count", low, high, NumberKind::kWhole, field, 1, std::move(help));
  }
  template <typename Field>
  void ms(std::string key, Field field, std::string help) {
    add(std::move(key), "ms", 0, kDayMs, NumberKind::kReal, field, 1e6, std::move(help));
  }
  template <typename Field>
  void us(std::string key, Field field, std::string help) {
    add(std::move(key), "us", 0, kDayMs, NumberKind::kReal, field, 1e3, std::move(help));
  }
  template <typename Field>
  void real(std::string key, std::string unit, double low, double high, Field field, std::string help) {
    add(std::move(key), std::move(unit), low, high, NumberKind::kReal, field, 1, std::move(help));
  }
  template <typename Field>
  void fraction(std::string key, Field field, std::string help) {
    real(std::move(key), "fraction", 0, 1, field, std::move(help));
  }
  template <typename Field>
  void flag(std::string key, Field field, std::string help) {
    add(std::move(key), "true or false", 0, 1, NumberKind::kFlag, field, 1, std::move(help));
  }
  template <typename Field>
  void fault(std::string key, std::string unit, Field field, std::string help) {
    const double high = unit == "fraction" || unit == "rate" ? 1 : 1e6;
    add(std::move(key), std::move(unit), 0, high, NumberKind::kFault, field, 1, std::move(help));
  }

 private:
  template <typename Field>
  void add(std::string key, std::string unit, double low, double high, NumberKind kind, Field field, double scale,
           std::string help) {
    using Value = std::remove_cvref_t<decltype(field(std::declval<Scenario&>()))>;
    const auto set = [=](Scenario& scenario, double number) {
      if constexpr (std::is_same_v<Value, Duration>) {
        field(scenario) = Duration(static_cast<Duration::rep>(std::llround(number * scale)));
      } else if constexpr (std::is_same_v<Value, bool>) {
        field(scenario) = number != 0;
      } else {
        field(scenario) = static_cast<Value>(number);
      }
    };
    const auto get = [=](const Scenario& scenario) {
      if constexpr (std::is_same_v<Value, Duration>) {
        return static_cast<double>(field(scenario).count()) / scale;
      } else {
        return static_cast<double>(field(scenario));
      }
    };
    keys_.push_back({std::move(key), std::move(unit), low, high, kind, std::move(help), set, get});
  }
  std::vector<ScenarioKey>& keys_;
};

#define FIELD(name) [](auto& scenario) -> auto& { return scenario.name; }

void declare_federation(Declare& d) {
  d.count("tree.depth", 0, 8, FIELD(tree.depth), "tiers of aggregators; 0: sites hang at the coordinator");
  d.count("tree.aggregators", 1, 10'000, FIELD(tree.aggregators), "in each tier; each names a region");
  d.count("tree.sites", 0, 1'000'000, FIELD(tree.sites), "below each aggregator of the last tier");
  d.count("tree.sites_at_root", 0, 1'000'000, FIELD(tree.sites_at_root), "besides them, at the coordinator");
  d.ms("sites.train_min_ms", FIELD(sites.train_min), "a task takes from here");
  d.ms("sites.train_max_ms", FIELD(sites.train_max), "to here, uniformly");
  d.count("sites.weight_min", 1, 1e8, FIELD(sites.weight_min), "of an update");
  d.count("sites.weight_max", 1, 1e8, FIELD(sites.weight_max), "likewise; the registered maximum of every site");
  d.fraction("sites.slow_fraction", FIELD(sites.slow_fraction), "of the sites, which train slowly");
  d.real("sites.slow_factor", "factor", 1, 1e6, FIELD(sites.slow_factor), "by which they do");
  d.fraction("sites.heavy_fraction", FIELD(sites.heavy_fraction), "of the sites, whose registered maximum is larger");
  d.real("sites.heavy_factor", "factor", 1, 1e6, FIELD(sites.heavy_factor), "by which it is");
  d.count("workload.values", 1, kMany, FIELD(workload.values), "coordinates of the model");
  d.count("workload.tensors", 1, 10'000, FIELD(workload.tensors), "that they are divided among");
  d.count("workload.integers", 0, 1e6, FIELD(workload.integers), "whole-number coordinates, beside them");
  d.real("workload.update_scale", "value", 0, 1e6, FIELD(workload.update_scale),
         "the values of an update are uniform between minus this and this");
  d.flag("workload.sized", FIELD(workload.sized), "a few values stand for all of them: the planner's");
  d.real("compute.encode_ns", "ns/value", 0, 1e6, FIELD(compute.encode_ns), "a site takes to encode an update");
  d.real("compute.merge_ns", "ns/value", 0, 1e6, FIELD(compute.merge_ns),
         "a parent takes to verify and add one arrival");
  d.real("compute.finalise_ns", "ns/value", 0, 1e6, FIELD(compute.finalise_ns),
         "the coordinator takes to make and write a model");
  d.real("compute.byte_ns", "ns/byte", 0, 1e6, FIELD(compute.byte_ns),
         "a host takes for each byte of a transfer, sent or received");
  d.count("compute.cores", 0, 10'000, FIELD(compute.cores), "that all hosts share; 0: each has its own");
}

template <typename Field>
void declare_link(Declare& d, const std::string& role, Field field) {
  const std::string table = "links." + role + ".";
  d.ms(
      table + "delay_ms", [field](auto& s) -> auto& { return field(s).delay; },
      "one way, at this end; a path has both ends' delays");
  d.ms(table + "jitter_ms", [field](auto& s) -> auto& { return field(s).jitter; }, "at most, added for each frame");
  d.real(
      table + "up_bytes_per_s", "bytes/s", 0, kMany, [field](auto& s) -> auto& { return field(s).up_bytes_per_s; },
      "shared by all of the host's sessions; 0: no limit");
  d.real(
      table + "down_bytes_per_s", "bytes/s", 0, kMany, [field](auto& s) -> auto& { return field(s).down_bytes_per_s; },
      "likewise");
  d.fraction(
      table + "slow_fraction", [field](auto& s) -> auto& { return field(s).slow_fraction; },
      "of the hosts, whose links are slow");
  d.real(
      table + "slow_factor", "factor", 1, 1e6, [field](auto& s) -> auto& { return field(s).slow_factor; },
      "by which their rates are divided");
}

void declare_machinery(Declare& d) {
  declare_link(d, "site", FIELD(site_links));
  declare_link(d, "aggregator", FIELD(aggregator_links));
  declare_link(d, "coordinator", FIELD(coordinator_links));
  d.ms("session.heartbeat_timeout_ms", FIELD(session.heartbeat_timeout), "without a sign of life a session ends");
  d.ms("session.connect_deadline_ms", FIELD(session.connect_deadline), "of a connect without an answer");
  d.count("session.outbox_bytes_max", 1024, kMany, FIELD(session.outbox_bytes_max), "waiting in one session");
  d.ms("session.reconnect_delay_min_ms", FIELD(session.reconnect_delay_min), "the first backoff step");
  d.ms("session.reconnect_delay_max_ms", FIELD(session.reconnect_delay_max), "the last one");
  d.ms("federation.failover_after_ms", FIELD(federation.failover_after),
       "an aggregator is away so long: others get its children");
  d.ms("federation.unreachable_for_ms", FIELD(federation.unreachable_for),
       "a parent that a child could not reach is avoided for it");
  d.ms("federation.return_after_ms", FIELD(federation.return_after),
       "a nearer aggregator is up so long: children go home");
  d.ms("federation.parentless_max_ms", FIELD(federation.parentless_max),
       "an aggregator without a parent for so long sends its children away");
  d.ms("federation.outcome_interval_ms", FIELD(federation.outcome_interval),
       "so often a site asks for an outcome that it has not heard of");
  d.count("federation.staging_bytes_max", 0, kMany, FIELD(federation.staging_bytes_max),
          "of a node's staging area in memory");
  d.count("federation.keep_rounds", 0, kMany, FIELD(federation.keep_rounds),
          "committed rounds that the coordinator's journal keeps; 0: all");
  d.us("disk.operation_us", FIELD(disk.operation), "each operation on a disk takes");
}

void declare_network_faults(Declare& d) {
  d.fault("faults.network.loss", "rate", FIELD(faults.network.loss), "of the frames: lost, and sent again");
  d.ms("faults.network.loss_stall_ms", FIELD(faults.network.loss_stall),
       "until it is sent again; what is behind it waits");
  d.fault("faults.network.break_session", "rate", FIELD(faults.network.break_session),
          "of the frames: its session breaks, with all that is in flight");
  d.fault("faults.network.duplicate", "rate", FIELD(faults.network.duplicate),
          "of the control frames: they come twice");
  d.fault("faults.network.reorder", "rate", FIELD(faults.network.reorder),
          "of the control frames: they change places with the one before");
  d.fault("faults.network.late", "rate", FIELD(faults.network.late), "of the frames: delayed");
  d.ms("faults.network.late_by_ms", FIELD(faults.network.late_by), "at most, by this");
  d.fault("faults.network.refuse_connect", "rate", FIELD(faults.network.refuse_connect), "of the connects");
  d.fault("faults.network.half_open_per_minute", "1/min", FIELD(faults.network.half_open_per_minute),
          "sessions that end at one side; the other learns it by silence");
  d.fault("faults.partition.per_minute", "1/min", FIELD(faults.partition.per_minute), "partitions");
  d.ms("faults.partition.lasts_min_ms", FIELD(faults.partition.lasts_min), "each lasts from here");
  d.ms("faults.partition.lasts_max_ms", FIELD(faults.partition.lasts_max), "to here, uniformly");
  d.fraction("faults.partition.one_way", FIELD(faults.partition.one_way), "of them: one direction alone");
  d.fraction("faults.partition.flapping", FIELD(faults.partition.flapping),
             "of them: they come and go while they last");
  d.ms("faults.partition.flap_ms", FIELD(faults.partition.flap), "each way, on average");
  d.fraction("faults.partition.region", FIELD(faults.partition.region), "of them: a whole region");
  d.fraction("faults.partition.coordinator", FIELD(faults.partition.coordinator),
             "of them: the coordinator. The rest: one other host");
}

void declare_host_faults(Declare& d) {
  d.fault("faults.crash.at_effect_coordinator", "rate", FIELD(faults.crash.at_effect_coordinator),
          "of the steps between two effects: the coordinator dies there");
  d.fault("faults.crash.at_effect_aggregator", "rate", FIELD(faults.crash.at_effect_aggregator),
          "likewise, an aggregator");
  d.fault("faults.crash.at_effect_site", "rate", FIELD(faults.crash.at_effect_site), "likewise, a site");
  d.fault("faults.crash.per_minute", "1/min", FIELD(faults.crash.per_minute), "crashes of any host, at any time");
  d.ms("faults.crash.down_min_ms", FIELD(faults.crash.down_min), "a host is down from here");
  d.ms("faults.crash.down_max_ms", FIELD(faults.crash.down_max), "to here, uniformly");
  d.fraction("faults.crash.power", FIELD(faults.crash.power),
             "of the crashes: the machine's, and unsynced writes are lost. The rest: the process's");
  d.fraction("faults.crash.torn", FIELD(faults.crash.torn),
             "of those: unsynced writes are torn instead, sector by sector");
  d.fault("faults.disk.io_error", "rate", FIELD(faults.disk.io_error), "of the disk operations: EIO");
  d.fault("faults.disk.no_space", "rate", FIELD(faults.disk.no_space), "likewise: ENOSPC");
  d.fault("faults.disk.short_write", "rate", FIELD(faults.disk.short_write), "likewise: half is written");
  d.fault("faults.disk.crash", "rate", FIELD(faults.disk.crash), "likewise: the machine dies in the middle");
  d.count("faults.disk.only", 0, 3, FIELD(faults.disk.only),
          "these are of every host's disk (0), or of the coordinator's (1), aggregators' (2) or sites' (3) alone");
  d.fault("faults.disk.models", "rate", FIELD(faults.disk.models),
          "of the coordinator's operations on model files, besides: EIO or ENOSPC");
  d.ms("faults.clock.skew_max_ms", FIELD(faults.clock.skew_max), "of the wall clocks, from the start, either way");
  d.fault("faults.clock.jumps_per_minute", "1/min", FIELD(faults.clock.jumps_per_minute), "of a wall clock");
  d.ms("faults.clock.jump_max_ms", FIELD(faults.clock.jump_max), "either way");
  d.real("faults.clock.drift_ppm_max", "ppm", 0, 500'000, FIELD(faults.clock.drift_ppm_max),
         "of the monotonic clocks' rates, either way");
  d.fault("faults.sites.corrupt", "rate", FIELD(faults.sites.corrupt), "of the updates: damaged on their way");
  d.fault("faults.sites.malicious_fraction", "fraction", FIELD(faults.sites.malicious_fraction),
          "of the sites: wrong weights, values, digests, names and claims of what they know");
  d.fault("faults.sites.revoked_per_minute", "1/min", FIELD(faults.sites.revoked_per_minute), "certificates of sites");
  d.fault("faults.sites.lost_per_minute", "1/min", FIELD(faults.sites.lost_per_minute),
          "folders of sites, each of which is enrolled anew and begins with nothing");
  d.fraction("faults.sites.changed", FIELD(faults.sites.changed), "of those: with another weight, in another region");
  d.fault("faults.sites.cloned_fraction", "fraction", FIELD(faults.sites.cloned_fraction),
          "of the sites: they run under the identity of another site");
  d.fault("faults.aggregators.malicious_fraction", "fraction", FIELD(faults.aggregators.malicious_fraction),
          "of the aggregators: wrong names, digests, probes, sums, attempts, claims");
  d.fault("faults.people.pause_per_minute", "1/min", FIELD(faults.people.pause_per_minute),
          "pauses of the run by a person, who resumes it soon after");
  d.fault("faults.people.stop_per_minute", "1/min", FIELD(faults.people.stop_per_minute),
          "stops of the run by a person, who starts another that continues it");
  d.fault("faults.sites.version_skew", "fraction", FIELD(faults.sites.version_skew), "of the hosts: another version");
  d.fault("faults.upkeep.backups_per_minute", "1/min", FIELD(faults.upkeep.backups_per_minute),
          "of the coordinator's folder, while it is stopped");
  d.fault("faults.upkeep.restores_per_minute", "1/min", FIELD(faults.upkeep.restores_per_minute),
          "of the last backup, with --restored");
  d.ms("faults.until_ms", FIELD(faults.until), "from here on no fault begins, and what can heal heals");
  d.fraction(
      "faults.off", FIELD(faults.off),
      "each kind of fault (every `rate`, `1/min` and fraction of hosts) is off in a seed, with this probability");
  d.ms("limits.virtual_ms", FIELD(limits.virtual_time), "a run ends here");
  d.count("limits.events", 1, kMany, FIELD(limits.events), "or after so many events");
  d.count("limits.progress_rounds", 0, 1000, FIELD(limits.progress_rounds),
          "rounds that must be committed after the faults have stopped; 0: none, and the run ends with its plan");
  d.ms("limits.progress_within_ms", FIELD(limits.progress_within), "and within this time");
}

#undef FIELD

}  // namespace

const std::vector<ScenarioKey>& scenario_keys() {
  static const std::vector<ScenarioKey> keys = [] {
    std::vector<ScenarioKey> list;
    Declare declare(list);
    declare_federation(declare);
    declare_machinery(declare);
    declare_network_faults(declare);
    declare_host_faults(declare);
    return list;
  }();
  return keys;
}

}  // namespace fluvial::simulator
