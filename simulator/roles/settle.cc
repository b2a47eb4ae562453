#include "simulator/roles/settle.h"

#include <chrono>
#include <utility>

#include "simulator/roles/cast.h"
#include "simulator/roles/coordinator.h"
#include "simulator/roles/site.h"

namespace fluvial::simulator {
namespace {

constexpr Duration kAftermath = std::chrono::minutes(2);  // after the last round: everybody hears of it

class Federation final : public Inhabitants {
 public:
  Federation(World& world, std::unique_ptr<Tamper> tamper, Lessons* lessons)
      : world_(world), tamper_(std::move(tamper)), cast_(world, *tamper_, lessons) {}

  // The processes refer to the cast, so they are destroyed first.
  ~Federation() override {
    for (const Host& host : world_.hosts()) world_.kill_for(host.id, Death::kProcess, std::chrono::hours(1));
    world_.scheduler().after(Duration(0), [] {});
    world_.step(world_.scheduler().now());
  }
  Federation(const Federation&) = delete;
  Federation& operator=(const Federation&) = delete;

  void check() override {}
  // The run has been over for a minute at least, and nothing has been wrong since.
  void check_end() override {
    if (!cast_.checks().is_over() || cast_.sized()) return;
    for (const Host& host : world_.hosts()) {
      if (host.role != Role::kSite || !world_.is_up(host.id) || cast_.is_cloned(host.id)) continue;
      const auto* site = static_cast<const SiteRole*>(world_.process(host.id));
      if (site->waits_for_outcome()) {
        world_.violate("nothing_lost", host.name + " still waits for an outcome, and the run is over");
      }
    }
  }
  std::uint64_t rounds_committed() const override { return cast_.checks().rounds().committed_count(); }
  std::vector<RoundReport> rounds() const override { return cast_.round_log().committed(); }
  bool is_done() const override {
    if (!cast_.checks().is_over()) {
      over_since_.reset();
      return false;
    }
    const TimePoint now = world_.scheduler().now();
    if (!over_since_) over_since_ = now;
    return now >= *over_since_ + kAftermath;
  }
  bool may_progress() const override {
    if (cast_.checks().is_over() || cast_.checks().is_hopeless()) return false;
    if (world_.is_up(kRoot) && !static_cast<const CoordinatorRole*>(world_.process(kRoot))->may_close()) return false;
    const round::Plan& plan = world_.scenario().plan;
    const std::size_t left = cast_.sites_left();
    const double chosen = plan.participants_fraction * static_cast<double>(left);
    return left >= plan.participants_min && chosen >= static_cast<double>(plan.quorum);
  }

 private:
  World& world_;
  std::unique_ptr<Tamper> tamper_;
  Cast cast_;
  mutable std::optional<TimePoint> over_since_;
};

}  // namespace

Settle settle(MakeTamper make_tamper) {
  return [make_tamper = std::move(make_tamper)](World& world) -> std::unique_ptr<Inhabitants> {
    return std::make_unique<Federation>(world, make_tamper(), nullptr);
  };
}

Settle settle(Lessons& lessons) {
  return [&lessons](World& world) -> std::unique_ptr<Inhabitants> {
    return std::make_unique<Federation>(world, std::make_unique<Tamper>(), &lessons);
  };
}

}  // namespace fluvial::simulator
