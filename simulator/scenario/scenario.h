// What one seed runs: every number drawn (scenario_file.h reads the file and draws). Durations are virtual time.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/clock.h"
#include "core/round/plan.h"

namespace fluvial::simulator {

struct TreeScenario {
  std::uint64_t depth = 1;          // tiers of aggregators; 0: sites hang at the coordinator
  std::uint64_t aggregators = 2;    // in each tier
  std::uint64_t sites = 3;          // below each aggregator of the last tier
  std::uint64_t sites_at_root = 0;  // besides them
};

struct SitesScenario {
  Duration train_min = std::chrono::milliseconds(100);  // uniform, for each task
  Duration train_max = std::chrono::milliseconds(400);
  std::uint64_t weight_min = 1;
  std::uint64_t weight_max = 100;
  double slow_fraction = 0;  // of the sites
  double slow_factor = 10;
  double heavy_fraction = 0;  // of the sites, which have a registered maximum heavy_factor times as large
  double heavy_factor = 1000;
};

struct WorkloadScenario {
  std::uint64_t values = 1024;  // coordinates of the model
  std::uint64_t tensors = 2;
  std::uint64_t rows = 0;      // of each tensor that is a matrix, and its columns follow; 0: two, where that divides it
  std::uint64_t integers = 0;  // int64 coordinates (counters), beside them
  double update_scale = 0.1;   // updates are uniform in [-scale, scale]
  bool sized = false;          // a few values stand for all of them (the planner)
};

struct ComputeScenario {    // of every host, for each value of the model
  double encode_ns = 4;     // a site: residual, codec, digest
  double merge_ns = 1;      // a parent: verify and add one child's update or partial
  double finalise_ns = 4;   // the coordinator: optimizer, digest, files
  double byte_ns = 0;       // either end, for each byte of a transfer: TLS, copies, digests
  std::uint64_t cores = 0;  // that all hosts share, as in a bench on one machine; 0: each has its own
};

struct LinkScenario {  // of each host of a role
  Duration delay = std::chrono::milliseconds(5);
  Duration jitter = std::chrono::milliseconds(1);
  double up_bytes_per_s = 0;  // 0: no limit
  double down_bytes_per_s = 0;
  double slow_fraction = 0;  // of the hosts
  double slow_factor = 10;   // their rates are divided by it
};

struct SessionScenario {
  Duration heartbeat_timeout = std::chrono::seconds(20);
  Duration connect_deadline = std::chrono::seconds(5);
  std::uint64_t outbox_bytes_max = 16 << 20;
  Duration reconnect_delay_min = std::chrono::milliseconds(100);
  Duration reconnect_delay_max = std::chrono::seconds(10);
};

struct FederationScenario {
  Duration failover_after = std::chrono::seconds(5);
  Duration unreachable_for = std::chrono::seconds(60);
  Duration return_after = std::chrono::seconds(30);
  Duration parentless_max = std::chrono::seconds(30);
  Duration outcome_interval = std::chrono::seconds(30);
  std::uint64_t staging_bytes_max = 1 << 20;
  std::uint64_t keep_rounds = 0;
};

struct DiskScenario {
  Duration operation = std::chrono::microseconds(200);
};

struct Faults {
  struct Network {
    double loss = 0;
    Duration loss_stall = std::chrono::milliseconds(250);
    double break_session = 0;
    double duplicate = 0;
    double reorder = 0;
    double late = 0;
    Duration late_by = std::chrono::milliseconds(500);
    double refuse_connect = 0;
    double half_open_per_minute = 0;  // sessions that end at one side alone
  } network;
  struct Partition {
    double per_minute = 0;
    Duration lasts_min = std::chrono::seconds(1);
    Duration lasts_max = std::chrono::seconds(30);
    double one_way = 0;   // fraction of them; the others cut both ways
    double flapping = 0;  // fraction that come and go
    Duration flap = std::chrono::seconds(2);
    double region = 0;       // fraction that cut a region off
    double coordinator = 0;  // fraction that cut the coordinator off; the others cut one host off
  } partition;
  struct Crash {
    double at_effect_coordinator = 0;  // for each effect that a role carries out
    double at_effect_aggregator = 0;
    double at_effect_site = 0;
    double per_minute = 0;  // of a random host, besides
    Duration down_min = std::chrono::milliseconds(200);
    Duration down_max = std::chrono::seconds(20);
    double power = 0;  // fraction of crashes that take the machine: silence, and unsynced writes suffer
    double torn = 0;   // of those, the fraction that tear unsynced writes; the others lose them
  } crash;
  struct Disk {  // for each operation
    double io_error = 0;
    double no_space = 0;
    double short_write = 0;
    double crash = 0;
    std::uint64_t only = 0;  // 0: of every host; 1: of the coordinator alone; 2: of aggregators; 3: of sites
    double models = 0;       // of the coordinator's operations on model files, besides
  } disk;
  struct Clock {
    Duration skew_max{};  // of the wall clocks, from the start
    double jumps_per_minute = 0;
    Duration jump_max{};
    double drift_ppm_max = 0;  // of the monotonic rates
  } clock;
  struct Sites {
    double corrupt = 0;             // for each update: damaged on its way
    double malicious_fraction = 0;  // of the sites: wrong weights, values, norms, digests, names
    double revoked_per_minute = 0;  // certificates
    double lost_per_minute = 0;     // folders; the site is enrolled anew
    double changed = 0;             // fraction of those that get another weight and another region
    double cloned_fraction = 0;     // of the sites, which run with the identity of another
    double version_skew = 0;        // fraction of the hosts that speak another protocol range
  } sites;
  struct Aggregators {
    double malicious_fraction = 0;  // of the aggregators, which tell lies that a parent can detect
  } aggregators;
  struct Certificates {
    double life_s = 0;              // whole seconds; 0: none ends. Else wall clocks are right: lives are that short
    double lost = 0;                // of the coordinator's answers to who renews
    double late = 0;                // of them; some come when the certificate before has ended
    double forgetful_fraction = 0;  // of the members, which do not renew while there are faults
    // From one authority to the next; none where certificates do not end, or where backups are restored.
    double rollover_steps_per_minute = 0;
    double forced = 0;  // of those steps that members stand in the way of
  } certificates;
  struct People {  // at the coordinator, who resume a paused run, and continue a stopped one, soon after
    double pause_per_minute = 0;
    double stop_per_minute = 0;
  } people;
  struct Upkeep {  // of the coordinator's folder, while it is stopped
    double backups_per_minute = 0;
    double restores_per_minute = 0;  // of the last backup, on purpose and as run.md says
  } upkeep;
  double off = 0;                             // each kind of fault is off in a seed with this probability
  Duration until = std::chrono::seconds(60);  // then no fault begins and all that can heal heals
};

struct LimitsScenario {
  Duration virtual_time = std::chrono::minutes(10);
  std::uint64_t events = 1'000'000;
  std::uint64_t progress_rounds = 2;                   // after the faults stop
  Duration progress_within = std::chrono::minutes(3);  // in virtual time; not shorter than the plan allows
};

struct Scenario {
  std::string name;
  TreeScenario tree;
  SitesScenario sites;
  WorkloadScenario workload;
  round::Plan plan;
  ComputeScenario compute;
  LinkScenario site_links;
  LinkScenario aggregator_links;
  LinkScenario coordinator_links;
  SessionScenario session;
  FederationScenario federation;
  DiskScenario disk;
  Faults faults;
  LimitsScenario limits;
};

}  // namespace fluvial::simulator
