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
  d.count("tree.depth", 0, 8, FIELD(tree.depth), "tiers of aggregators; 0: sites are children of the coordinator");
  d.count("tree.aggregators", 1, 10'000, FIELD(tree.aggregators), "aggregators in each tier; each names a region");
  d.count("tree.sites", 0, 1'000'000, FIELD(tree.sites), "sites below each aggregator of the last tier");
  d.count("tree.sites_at_root", 0, 1'000'000, FIELD(tree.sites_at_root),
          "further sites, directly below the coordinator");
  d.ms("sites.train_min_ms", FIELD(sites.train_min), "the shortest time that a training task takes");
  d.ms("sites.train_max_ms", FIELD(sites.train_max), "the longest; times are uniform in between");
  d.count("sites.weight_min", 1, 1e8, FIELD(sites.weight_min), "the smallest weight of an update");
  d.count("sites.weight_max", 1, 1e8, FIELD(sites.weight_max),
          "the largest, which is also the registered maximum of every site");
  d.fraction("sites.slow_fraction", FIELD(sites.slow_fraction), "fraction of the sites that train slowly");
  d.real("sites.slow_factor", "factor", 1, 1e6, FIELD(sites.slow_factor), "by which their tasks take longer");
  d.fraction("sites.heavy_fraction", FIELD(sites.heavy_fraction),
             "fraction of the sites with a larger registered maximum");
  d.real("sites.heavy_factor", "factor", 1, 1e6, FIELD(sites.heavy_factor), "by which it is larger");
  d.count("workload.values", 1, kMany, FIELD(workload.values), "coordinates of the model");
  d.count("workload.tensors", 1, 10'000, FIELD(workload.tensors), "tensors that the coordinates are divided among");
  d.count("workload.rows", 0, 10'000, FIELD(workload.rows),
          "every other tensor is a matrix with so many rows, and what is left of it a vector; 0: of two rows, if that "
          "divides it");
  d.count("workload.integers", 0, 1e6, FIELD(workload.integers), "integer coordinates, in addition to workload.values");
  d.real("workload.update_scale", "value", 0, 1e6, FIELD(workload.update_scale),
         "the values of an update are uniform between -update_scale and update_scale");
  d.flag("workload.sized", FIELD(workload.sized), "a few values stand for the whole model: for the planner");
  d.real("compute.encode_ns", "ns/value", 0, 1e6, FIELD(compute.encode_ns), "time of a site to encode an update");
  d.real("compute.merge_ns", "ns/value", 0, 1e6, FIELD(compute.merge_ns),
         "time of a parent to verify and add one update or partial");
  d.real("compute.finalise_ns", "ns/value", 0, 1e6, FIELD(compute.finalise_ns),
         "time of the coordinator to make and write a model");
  d.real("compute.byte_ns", "ns/byte", 0, 1e6, FIELD(compute.byte_ns),
         "time of a host to send or to receive a byte of a transfer");
  d.count("compute.cores", 0, 10'000, FIELD(compute.cores), "cores that all hosts share; 0: each host has its own");
}

template <typename Field>
void declare_link(Declare& d, const std::string& role, Field field) {
  const std::string table = "links." + role + ".";
  d.ms(
      table + "delay_ms", [field](auto& s) -> auto& { return field(s).delay; },
      "one way, at this end; a path has the delays of both ends");
  d.ms(
      table + "jitter_ms", [field](auto& s) -> auto& { return field(s).jitter; },
      "at most this is added for each frame");
  d.real(
      table + "up_bytes_per_s", "bytes/s", 0, kMany, [field](auto& s) -> auto& { return field(s).up_bytes_per_s; },
      "rate of sending, shared by the host's sessions; 0: no limit");
  d.real(
      table + "down_bytes_per_s", "bytes/s", 0, kMany, [field](auto& s) -> auto& { return field(s).down_bytes_per_s; },
      "rate of receiving, shared by the host's sessions; 0: no limit");
  d.fraction(
      table + "slow_fraction", [field](auto& s) -> auto& { return field(s).slow_fraction; },
      "fraction of the hosts with slow links");
  d.real(
      table + "slow_factor", "factor", 1, 1e6, [field](auto& s) -> auto& { return field(s).slow_factor; },
      "by which their rates are divided");
}

void declare_machinery(Declare& d) {
  declare_link(d, "site", FIELD(site_links));
  declare_link(d, "aggregator", FIELD(aggregator_links));
  declare_link(d, "coordinator", FIELD(coordinator_links));
  d.ms("session.heartbeat_timeout_ms", FIELD(session.heartbeat_timeout),
       "a session ends after this long without a sign of life");
  d.ms("session.connect_deadline_ms", FIELD(session.connect_deadline), "how long a connect waits for an answer");
  d.count("session.outbox_bytes_max", 1024, kMany, FIELD(session.outbox_bytes_max),
          "bytes that may wait in one session");
  d.ms("session.reconnect_delay_min_ms", FIELD(session.reconnect_delay_min), "the first delay before connecting again");
  d.ms("session.reconnect_delay_max_ms", FIELD(session.reconnect_delay_max),
       "the longest delay before connecting again");
  d.ms("federation.failover_after_ms", FIELD(federation.failover_after),
       "when an aggregator has been away for this long, its children get another parent");
  d.ms("federation.unreachable_for_ms", FIELD(federation.unreachable_for),
       "how long a parent is avoided that a child could not reach");
  d.ms("federation.return_after_ms", FIELD(federation.return_after),
       "when a nearer aggregator has been up for this long, children return to it");
  d.ms("federation.parentless_max_ms", FIELD(federation.parentless_max),
       "after this long without a parent an aggregator sends its children away");
  d.ms("federation.outcome_interval_ms", FIELD(federation.outcome_interval),
       "how often a site asks for the outcome of an unresolved submission");
  d.count("federation.staging_bytes_max", 0, kMany, FIELD(federation.staging_bytes_max),
          "bytes of a node's staging area in memory");
  d.count("federation.keep_rounds", 0, kMany, FIELD(federation.keep_rounds),
          "committed rounds that the coordinator's journal keeps; 0: all");
  d.us("disk.operation_us", FIELD(disk.operation), "time of each disk operation");
}

void declare_network_faults(Declare& d) {
  d.fault("faults.network.loss", "rate", FIELD(faults.network.loss), "frames that are lost, and sent again");
  d.ms("faults.network.loss_stall_ms", FIELD(faults.network.loss_stall),
       "time until a lost frame is sent again; the frames behind it wait");
  d.fault("faults.network.break_session", "rate", FIELD(faults.network.break_session),
          "frames that break their session, which loses all that is in flight");
  d.fault("faults.network.duplicate", "rate", FIELD(faults.network.duplicate), "control frames that arrive twice");
  d.fault("faults.network.reorder", "rate", FIELD(faults.network.reorder),
          "control frames that change places with the one before");
  d.fault("faults.network.late", "rate", FIELD(faults.network.late), "frames that are delayed");
  d.ms("faults.network.late_by_ms", FIELD(faults.network.late_by), "the longest such delay");
  d.fault("faults.network.refuse_connect", "rate", FIELD(faults.network.refuse_connect), "connects that are refused");
  d.fault("faults.network.half_open_per_minute", "1/min", FIELD(faults.network.half_open_per_minute),
          "sessions that end at one side only; the other side notices the silence");
  d.fault("faults.partition.per_minute", "1/min", FIELD(faults.partition.per_minute), "partitions");
  d.ms("faults.partition.lasts_min_ms", FIELD(faults.partition.lasts_min), "the shortest duration of a partition");
  d.ms("faults.partition.lasts_max_ms", FIELD(faults.partition.lasts_max),
       "the longest; durations are uniform in between");
  d.fraction("faults.partition.one_way", FIELD(faults.partition.one_way),
             "fraction of the partitions that cut one direction only");
  d.fraction("faults.partition.flapping", FIELD(faults.partition.flapping),
             "fraction of the partitions that come and go while they last");
  d.ms("faults.partition.flap_ms", FIELD(faults.partition.flap), "average time until a flapping partition changes");
  d.fraction("faults.partition.region", FIELD(faults.partition.region),
             "fraction of the partitions that cut off a whole region");
  d.fraction("faults.partition.coordinator", FIELD(faults.partition.coordinator),
             "fraction of the partitions that cut off the coordinator; the rest cut off one other host");
}

void declare_host_faults(Declare& d) {
  d.fault("faults.crash.at_effect_coordinator", "rate", FIELD(faults.crash.at_effect_coordinator),
          "steps between two effects at which the coordinator crashes");
  d.fault("faults.crash.at_effect_aggregator", "rate", FIELD(faults.crash.at_effect_aggregator),
          "steps between two effects at which an aggregator crashes");
  d.fault("faults.crash.at_effect_site", "rate", FIELD(faults.crash.at_effect_site),
          "steps between two effects at which a site crashes");
  d.fault("faults.crash.per_minute", "1/min", FIELD(faults.crash.per_minute), "crashes of any host, at any time");
  d.ms("faults.crash.down_min_ms", FIELD(faults.crash.down_min), "the shortest time that a crashed host is down");
  d.ms("faults.crash.down_max_ms", FIELD(faults.crash.down_max), "the longest; times are uniform in between");
  d.fraction("faults.crash.power", FIELD(faults.crash.power),
             "fraction of the crashes that are power cuts, which lose unsynced writes; the rest kill the process only");
  d.fraction("faults.crash.torn", FIELD(faults.crash.torn),
             "fraction of the power cuts that tear unsynced writes, sector by sector, instead of losing them");
  d.fault("faults.disk.io_error", "rate", FIELD(faults.disk.io_error), "disk operations that fail with EIO");
  d.fault("faults.disk.no_space", "rate", FIELD(faults.disk.no_space), "disk operations that fail with ENOSPC");
  d.fault("faults.disk.short_write", "rate", FIELD(faults.disk.short_write), "disk operations that write only half");
  d.fault("faults.disk.crash", "rate", FIELD(faults.disk.crash),
          "disk operations in the middle of which the machine crashes");
  d.count("faults.disk.only", 0, 3, FIELD(faults.disk.only),
          "whose disks have these faults: 0 all, 1 the coordinator's, 2 the aggregators', 3 the sites'");
  d.fault("faults.disk.models", "rate", FIELD(faults.disk.models),
          "further operations of the coordinator on model files that fail with EIO or ENOSPC");
  d.ms("faults.clock.skew_max_ms", FIELD(faults.clock.skew_max),
       "largest error of a wall clock at the start, either way");
  d.fault("faults.clock.jumps_per_minute", "1/min", FIELD(faults.clock.jumps_per_minute), "jumps of a wall clock");
  d.ms("faults.clock.jump_max_ms", FIELD(faults.clock.jump_max), "the largest jump, either way");
  d.real("faults.clock.drift_ppm_max", "ppm", 0, 500'000, FIELD(faults.clock.drift_ppm_max),
         "largest error of a monotonic clock's rate, either way");
}

void declare_member_faults(Declare& d) {
  d.fault("faults.sites.corrupt", "rate", FIELD(faults.sites.corrupt), "updates that are damaged on their way");
  d.fault("faults.sites.malicious_fraction", "fraction", FIELD(faults.sites.malicious_fraction),
          "fraction of the sites that send wrong weights, values, digests, names and claims of what they know");
  d.fault("faults.sites.revoked_per_minute", "1/min", FIELD(faults.sites.revoked_per_minute),
          "revocations of a site's certificate");
  d.fault("faults.sites.lost_per_minute", "1/min", FIELD(faults.sites.lost_per_minute),
          "sites that lose their folder, are enrolled anew and begin with nothing");
  d.fraction("faults.sites.changed", FIELD(faults.sites.changed),
             "fraction of the lost sites that return with another weight, in another region");
  d.fault("faults.sites.cloned_fraction", "fraction", FIELD(faults.sites.cloned_fraction),
          "fraction of the sites that run under the identity of another site");
  d.fault("faults.aggregators.malicious_fraction", "fraction", FIELD(faults.aggregators.malicious_fraction),
          "fraction of the aggregators that send wrong names, digests, probes, sums, attempts and claims");
  d.fault("faults.certificates.life_s", "s", FIELD(faults.certificates.life_s),
          "for how long certificates are issued; 0: they do not end. Otherwise wall clocks are right");
  d.fault("faults.certificates.lost", "rate", FIELD(faults.certificates.lost),
          "renewed certificates that are lost on their way to the member");
  d.fault("faults.certificates.late", "rate", FIELD(faults.certificates.late),
          "renewed certificates that arrive late, some of them when the one before has ended");
  d.fault("faults.certificates.forgetful_fraction", "fraction", FIELD(faults.certificates.forgetful_fraction),
          "fraction of the members that let their certificates end while there are faults");
  d.fault(
      "faults.certificates.rollover_steps_per_minute", "1/min", FIELD(faults.certificates.rollover_steps_per_minute),
      "times that a person takes the next step from one certificate authority to another, unless backups are restored");
  d.fraction("faults.certificates.forced", FIELD(faults.certificates.forced),
             "fraction of the steps that are taken with --force while members stand in the way");
  d.fault("faults.people.pause_per_minute", "1/min", FIELD(faults.people.pause_per_minute),
          "times that a person pauses the run, and resumes it soon after");
  d.fault("faults.people.stop_per_minute", "1/min", FIELD(faults.people.stop_per_minute),
          "times that a person stops the run, and continues it with another");
  d.fault("faults.sites.version_skew", "fraction", FIELD(faults.sites.version_skew),
          "fraction of the hosts that run another version");
  d.fault("faults.upkeep.backups_per_minute", "1/min", FIELD(faults.upkeep.backups_per_minute),
          "backups of the coordinator's folder, while it is stopped");
  d.fault("faults.upkeep.restores_per_minute", "1/min", FIELD(faults.upkeep.restores_per_minute),
          "restores of the last backup, with --restored");
  d.ms("faults.until_ms", FIELD(faults.until), "from here on no fault begins, and all that can heal heals");
  d.fraction("faults.off", FIELD(faults.off),
             "probability that a kind of fault (a `rate`, a `1/min` or a fraction of hosts) is off in a seed");
  d.ms("limits.virtual_ms", FIELD(limits.virtual_time), "the run ends at this time");
  d.count("limits.events", 1, kMany, FIELD(limits.events), "or after this many events");
  d.count("limits.progress_rounds", 0, 1000, FIELD(limits.progress_rounds),
          "rounds that must be committed once the faults have stopped; 0: none, and the run ends with its plan");
  d.ms("limits.progress_within_ms", FIELD(limits.progress_within), "the time that they may take");
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
    declare_member_faults(declare);
    return list;
  }();
  return keys;
}

}  // namespace fluvial::simulator
