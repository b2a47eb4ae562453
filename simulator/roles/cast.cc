#include "simulator/roles/cast.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/digest/sha256.h"
#include "core/store/journal.h"
#include "core/store/model_store.h"
#include "core/wire/protocol.h"
#include "simulator/roles/aggregator.h"
#include "simulator/roles/coordinator.h"
#include "simulator/roles/site.h"
#include "simulator/roles/training.h"

namespace fluvial::simulator {

Cast::Cast(World& world, Tamper& tamper)
    : world_(world),
      tamper_(tamper),
      schema_(schema_of(world.scenario().workload)),
      checks_([&world](std::string invariant, std::string detail) {
        world.violate(std::move(invariant), std::move(detail));
      }) {
  draw();
  const Status founded = found();
  FLUVIAL_CHECK(founded.ok(), "the federation could not be founded: " + (founded.ok() ? "" : founded.error().message));
  install();
}

void Cast::draw() {
  Rng rng = world_.chance().stream("cast");
  const Faults::Sites& faults = scenario().faults.sites;
  for (const Host& host : world_.hosts()) {
    const SitesScenario& sites = scenario().sites;
    weights_.push_back(between(rng, sites.weight_min, sites.weight_max));
    if (host.id != kRoot && happens(rng, faults.version_skew)) {
      (rng.below(2) == 0 ? newer_ : alien_).insert(host.id);
    }
    if (host.role != Role::kSite) continue;
    if (happens(rng, faults.malicious_fraction)) malicious_.insert(host.id);
    if (happens(rng, sites.slow_fraction)) slow_.insert(host.id);
  }
}

// As `fluvial token create`, `fluvial enroll` and `fluvial run start` do it, before time begins.
Status Cast::found() {
  const Disk::Inspection before_time(world_.disk(kRoot));
  store::FileSystem& files = world_.disk(kRoot).files();
  FLUVIAL_ASSIGN(const std::unique_ptr<store::CoordinatorJournal> journal,
                 store::CoordinatorJournal::open(files, "journal.sqlite"));
  const WallTime now = world_.clock(kRoot).wall_now();
  FLUVIAL_TRY(journal->found({"simulated", now}));
  for (const Host& host : world_.hosts()) {
    Identity identity{NodeId(0), host.role, host.name};
    if (host.role == Role::kCoordinator) {
      FLUVIAL_ASSIGN(identity.node, journal->reserve_node_id(host.role, host.name));
    } else {
      store::TokenRow token;
      token.id = host.name;
      token.secret_hash = sha256(as_byte_span(host.name));
      token.role = host.role;
      token.name = host.name;
      token.expires_at = now + std::chrono::hours(1);
      FLUVIAL_TRY(journal->add_token(token));
      store::NodeRow node;
      node.role = host.role;
      node.name = host.name;
      node.region = host.region;
      node.weight_max = host.role == Role::kSite ? weight_max(host.id) : 0;
      node.enrolled_at = now;
      FLUVIAL_ASSIGN(const store::NodeRow enrolled, journal->redeem_token(token.secret_hash, node, now));
      identity.node = enrolled.id;
    }
    // A plan is of a federation that is settled: nobody begins at the root because its region is not known yet.
    if (sized() && host.role == Role::kAggregator) {
      FLUVIAL_TRY(journal->set_advertise(identity.node, address_of(host.id)));
    }
    identities_.push_back(std::move(identity));
  }
  checks_.set_staged_max(world_.hosts().size());

  Buffer model = sized() ? Buffer(0) : initial_model(schema_, world_.chance().seed());
  store::RunRow run;
  run.plan = scenario().plan;
  run.schema = schema_;
  run.initial_model = sized() ? sha256(as_byte_span("initial")) : sha256(model.span());
  run.created_at = now;
  FLUVIAL_ASSIGN(run.id, journal->create_run(run));
  std::vector<float> values(sized() ? 0 : schema_.value_count());
  std::vector<std::int64_t> integers(sized() ? 0 : schema_.integer_count());
  if (!sized()) {
    FLUVIAL_ASSIGN(store::ModelStore models, store::ModelStore::open(files, "models"));
    FLUVIAL_ASSIGN(const std::string optimizer,
                   models.put({run.id, ModelVersion(0)}, schema_, model.span(), run.initial_model, {}));
    (void)optimizer;
    round::split_model(schema_, model.span(), values, integers);
  }
  checks_.rounds().run_started(run, {values, integers});
  return {};
}

void Cast::install() {
  for (const Host& host : world_.hosts()) {
    world_.install(host.id, [this, role = host.role](World&, HostId id) -> std::unique_ptr<Process> {
      switch (role) {
        case Role::kCoordinator: return std::make_unique<CoordinatorRole>(*this, id);
        case Role::kAggregator: return std::make_unique<AggregatorRole>(*this, id);
        case Role::kSite: break;
      }
      return std::make_unique<SiteRole>(*this, id);
    });
  }
  world_.set_revoke([this](HostId host) {
    if (!world_.is_up(kRoot) || host == kRoot) return;
    revoked_.insert(host);
    static_cast<CoordinatorRole*>(world_.process(kRoot))->revoke(identity(host).node);
  });
}

Duration Cast::time_for_values(double ns_a_value) const {
  const double seconds = ns_a_value * 1e-9 * static_cast<double>(schema_.value_count());
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

std::string Cast::address_of(HostId host) { return "host-" + std::to_string(host.value()) + ":7000"; }

HostId Cast::host_at(const std::string& address) const {
  const std::size_t colon = address.find(':');
  std::uint32_t number = 0;
  if (!address.starts_with("host-") || colon == std::string::npos) return kRoot;
  std::from_chars(address.data() + 5, address.data() + colon, number);
  return number < identities_.size() ? HostId(number) : kRoot;
}

bool Cast::is_malicious_node(NodeId node) const {
  return std::ranges::any_of(malicious_, [&](HostId host) { return identity(host).node == node; });
}

std::pair<std::uint32_t, std::uint32_t> Cast::protocols(HostId host) const {
  if (alien_.contains(host)) return {wire::kProtocol + 1, wire::kProtocol + 2};
  if (newer_.contains(host)) return {wire::kProtocol, wire::kProtocol + 1};
  return {wire::kProtocol, wire::kProtocol};
}

std::size_t Cast::sites_left() const {
  return static_cast<std::size_t>(std::ranges::count_if(world_.hosts(), [&](const Host& host) {
    return host.role == Role::kSite && !alien_.contains(host.id) && !revoked_.contains(host.id) &&
           !malicious_.contains(host.id);
  }));
}

}  // namespace fluvial::simulator
