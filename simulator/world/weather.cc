#include "simulator/world/weather.h"

#include <algorithm>

namespace fluvial::simulator {

Weather::Weather(World& world) : world_(world), flap_rng_(world.chance().stream("flap")) {}

void Weather::begin() {
  const Faults& faults = world_.scenario().faults;
  Rng clocks = world_.chance().stream("clocks");
  const bool wall_is_right = faults.certificates.life_s > 0;
  for (const Host& host : world_.hosts()) {
    HostClock& clock = world_.clock(host.id);
    clock.set_rate(1 + between(clocks, -faults.clock.drift_ppm_max, faults.clock.drift_ppm_max) * 1e-6);
    const double skew = between(clocks, -1.0, 1.0) * static_cast<double>(faults.clock.skew_max.count());
    if (!wall_is_right) clock.jump_wall(Duration(static_cast<Duration::rep>(skew)));
  }
  if (faults.until <= Duration::zero()) return end();
  const Faults::Network& n = faults.network;
  world_.network().set_faults({.loss = n.loss,
                               .loss_stall = n.loss_stall,
                               .break_session = n.break_session,
                               .duplicate = n.duplicate,
                               .reorder = n.reorder,
                               .late = n.late,
                               .late_by = n.late_by,
                               .refuse_connect = n.refuse_connect});
  for (const Host& host : world_.hosts()) world_.disk(host.id).set_faults(disk_faults(host));
  repeats_.reserve(11);
  repeat("partition", faults.partition.per_minute, &Weather::part);
  repeat("crash", faults.crash.per_minute, &Weather::crash);
  repeat("half-open", n.half_open_per_minute, &Weather::half_open);
  repeat("jump", wall_is_right ? 0 : faults.clock.jumps_per_minute, &Weather::jump);
  repeat("revoke", faults.sites.revoked_per_minute, &Weather::revoke);
  repeat("lose folder", faults.sites.lost_per_minute, &Weather::lose_folder);
  repeat("pause", faults.people.pause_per_minute, &Weather::pause);
  repeat("stop", faults.people.stop_per_minute, &Weather::stop);
  repeat("roll over", faults.certificates.rollover_steps_per_minute, &Weather::roll_over);
  repeat("back up", faults.upkeep.backups_per_minute, &Weather::back_up);
  repeat("restore", faults.upkeep.restores_per_minute, &Weather::restore);
  world_.scheduler().after(faults.until, [this] { end(); });
}

void Weather::repeat(std::string_view name, double per_minute, void (Weather::*act)(Rng& rng)) {
  if (per_minute <= 0) return;
  const Duration mean(static_cast<Duration::rep>(60e9 / per_minute));
  repeats_.push_back({world_.chance().stream(name), mean, act});
  next(repeats_.size() - 1);
}

void Weather::next(std::size_t index) {
  Repeat& repeat = repeats_[index];
  world_.scheduler().after(exponential(repeat.rng, repeat.mean), [this, index] {
    if (over_) return;
    (this->*repeats_[index].act)(repeats_[index].rng);
    next(index);
  });
}

void Weather::part(Rng& rng) {
  const Faults::Partition& p = world_.scenario().faults.partition;
  Partition partition;
  partition.in = partition.out = true;
  if (happens(rng, p.one_way)) (rng.below(2) == 0 ? partition.in : partition.out) = false;
  partition.flaps = happens(rng, p.flapping);
  partition.until = world_.scheduler().now() + between(rng, p.lasts_min, std::max(p.lasts_min, p.lasts_max));
  const auto count = static_cast<std::uint64_t>(world_.hosts().size());
  const double kind = rng.uniform();
  partition.host = HostId(static_cast<std::uint32_t>(between(rng, std::uint64_t{1}, count - 1)));
  if (kind < p.region) {
    partition.kind = Partition::Kind::kRegion;
    partition.region = world_.host(partition.host).region_index;
  } else if (kind < p.region + p.coordinator) {
    partition.host = kRoot;
  }
  partitions_.push_back(partition);
  set_cut(partitions_.back(), true);
  flap(partitions_.size() - 1);
}

void Weather::set_cut(Partition& partition, bool cut) {
  if (partition.is_cut == cut) return;
  partition.is_cut = cut;
  world_.trace().event(partition.host, cut ? "cut" : "healed", partition.region,
                       (partition.in ? 1u : 0u) + (partition.out ? 2u : 0u), [&] {
                         return std::string(partition.in ? "in " : "") + (partition.out ? "out " : "") +
                                (partition.kind == Partition::Kind::kRegion ? "of its region" : "");
                       });
  Network& network = world_.network();
  for (const auto direction : {Network::Direction::kIn, Network::Direction::kOut}) {
    if (!(direction == Network::Direction::kIn ? partition.in : partition.out)) continue;
    if (partition.kind == Partition::Kind::kHost) {
      cut ? network.cut_host(partition.host, direction) : network.heal_host(partition.host, direction);
    } else {
      cut ? network.cut_region(partition.region, direction) : network.heal_region(partition.region, direction);
    }
  }
}

void Weather::flap(std::size_t index) {
  const Partition& partition = partitions_[index];
  Duration wait = partition.until - world_.scheduler().now();
  if (partition.flaps) {
    wait = std::min(wait, exponential(flap_rng_, world_.scenario().faults.partition.flap));
  }
  world_.scheduler().after(wait, [this, index] {
    if (over_) return;
    Partition& it = partitions_[index];
    if (world_.scheduler().now() >= it.until) return set_cut(it, false);
    set_cut(it, !it.is_cut);
    flap(index);
  });
}

void Weather::crash(Rng& rng) {
  const HostId host(static_cast<std::uint32_t>(rng.below(world_.hosts().size())));
  world_.kill(host, happens(rng, world_.scenario().faults.crash.power) ? Death::kMachine : Death::kProcess);
}

void Weather::half_open(Rng& rng) { world_.network().half_open(rng.next()); }

void Weather::jump(Rng& rng) {
  const HostId host(static_cast<std::uint32_t>(rng.below(world_.hosts().size())));
  const double by = between(rng, -1.0, 1.0) * static_cast<double>(world_.scenario().faults.clock.jump_max.count());
  world_.trace().event(host, "clock jumps", static_cast<std::uint64_t>(static_cast<std::int64_t>(by)));
  world_.clock(host).jump_wall(Duration(static_cast<Duration::rep>(by)));
}

DiskFaults Weather::disk_faults(const Host& host) const {
  const Faults::Disk& d = world_.scenario().faults.disk;
  const std::uint64_t role = host.role == Role::kCoordinator ? 1 : host.role == Role::kAggregator ? 2 : 3;
  if (d.only != 0 && d.only != role) return {};
  return {d.io_error, d.no_space, d.short_write, d.crash};
}

HostId Weather::any_site(Rng& rng) const {
  std::vector<HostId> sites;
  for (const Host& host : world_.hosts()) {
    if (host.role == Role::kSite) sites.push_back(host.id);
  }
  return sites.empty() ? kRoot : sites[rng.below(sites.size())];
}

void Weather::revoke(Rng& rng) {
  if (const HostId site = any_site(rng); site != kRoot) world_.order(Order::kRevoke, site);
}

void Weather::lose_folder(Rng& rng) {
  const HostId site = any_site(rng);
  if (site == kRoot || !world_.is_up(site)) return;
  world_.order(Order::kEnrolAnew, site);
}

void Weather::pause(Rng&) { world_.order(Order::kPause, kRoot); }
void Weather::stop(Rng&) { world_.order(Order::kStop, kRoot); }
void Weather::roll_over(Rng&) { world_.order(Order::kRollOver, kRoot); }

void Weather::back_up(Rng&) { world_.keep_up(World::Upkeep::kBackUp); }

void Weather::restore(Rng&) { world_.keep_up(World::Upkeep::kRestore); }

void Weather::end() {
  over_ = true;
  world_.trace().event(kRoot, "faults end");
  world_.set_faults_on(false);
  world_.network().set_faults({});
  for (const Host& host : world_.hosts()) world_.disk(host.id).set_faults({});
  for (Partition& partition : partitions_) set_cut(partition, false);
}

}  // namespace fluvial::simulator
