#include "simulator/roles/cast.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/digest/sha256.h"
#include "core/store/certificate_book.h"
#include "core/store/journal.h"
#include "core/store/model_store.h"
#include "core/wire/protocol.h"
#include "kernels/chunks.h"
#include "kernels/fixed.h"
#include "simulator/roles/aggregator.h"
#include "simulator/roles/certificates.h"
#include "simulator/roles/coordinator.h"
#include "simulator/roles/planned_site.h"
#include "simulator/roles/site.h"
#include "simulator/roles/training.h"

namespace fluvial::simulator {

Cast::Cast(World& world, Tamper& tamper, Lessons* lessons)
    : world_(world),
      tamper_(tamper),
      lessons_(lessons),
      schema_(lessons != nullptr ? lessons->schema() : schema_of(handled(world.scenario().workload))),
      staging_bytes_max_(world.scenario().federation.staging_bytes_max),
      checks_([&world](std::string invariant, std::string detail) {
        world.violate(std::move(invariant), std::move(detail));
      }),
      rollovers_(*this),
      model_files_(world.disk(kRoot).files(), "models", world.chance().stream("model files"),
                   [&world] { return world.faults_on() ? world.scenario().faults.disk.models : 0; }),
      enrolment_rng_(world.chance().stream("enrolled anew")),
      claims_rng_(world.chance().stream("claims")),
      impostors_rng_(world.chance().stream("impostors")),
      inventions_rng_(world.chance().stream("invented leases")),
      thefts_rng_(world.chance().stream("stolen certificates")),
      renewals_rng_(world.chance().stream("renewals")) {
  draw();
  draw_certificates();
  if (sized()) plan_for_whole_model();
  const Status founded = found();
  FLUVIAL_CHECK(founded.ok(), "the federation could not be founded: " + (founded.ok() ? "" : founded.error().message));
  install();
}

// The processes handle a small model, and the world charges them for the planned one.
void Cast::plan_for_whole_model() {
  const WorkloadScenario& whole = scenario().workload;
  stand_ins_.emplace(scenario(), schema_);
  PayloadScale scale;
  scale.model = static_cast<double>(schema_of(whole).model_bytes()) / static_cast<double>(schema_.model_bytes());
  scale.update = stand_ins_->bytes_a_byte();
  const auto packed_bytes_max = [&](std::uint64_t values) {
    const kernels::ChunkLayout layout{values, scenario().plan.chunk_values};
    const std::size_t last = layout.chunk_count() - 1;
    return static_cast<double>(last) * static_cast<double>(kernels::packed_bytes_max(layout.size(0))) +
           static_cast<double>(kernels::packed_bytes_max(layout.size(last)));
  };
  scale.partial = packed_bytes_max(whole.values) / packed_bytes_max(schema_.value_count());
  world_.network().set_payload_scale(scale);
  staging_bytes_max_ = static_cast<std::uint64_t>(static_cast<double>(staging_bytes_max_) / scale.update);
  checks_.rounds().keep_no_books();
}

void Cast::draw() {
  Rng rng = world_.chance().stream("cast");
  const Faults::Sites& faults = scenario().faults.sites;
  for (const Host& host : world_.hosts()) {
    const SitesScenario& sites = scenario().sites;
    weights_.push_back(between(rng, sites.weight_min, sites.weight_max));
    enrolled_before_.push_back(0);
    if (host.id != kRoot && happens(rng, faults.version_skew)) {
      (rng.below(2) == 0 ? newer_ : alien_).insert(host.id);
    }
    if (host.role != Role::kSite) continue;
    if (happens(rng, faults.malicious_fraction)) malicious_.insert(host.id);
    if (happens(rng, sites.slow_fraction)) slow_.insert(host.id);
  }
  Rng before = world_.chance().stream("cast of the version before");
  for (const Host& host : world_.hosts()) {
    if (host.role == Role::kSite && happens(before, faults.version_skew)) older_.insert(host.id);
  }
  Rng parents = world_.chance().stream("aggregators of the version before");
  for (const Host& host : world_.hosts()) {
    const bool is_older = happens(parents, faults.version_skew);
    if (host.role == Role::kAggregator && is_older) older_parents_.insert(host.id);
  }
  Rng others = world_.chance().stream("cast of others");
  for (const Host& host : world_.hosts()) {
    const bool lies = happens(others, scenario().faults.aggregators.malicious_fraction);
    if (host.role == Role::kAggregator && lies) malicious_.insert(host.id);
    std::uint64_t& weight = weights_[host.id.value()];
    if (!happens(others, scenario().sites.heavy_fraction)) continue;
    const double heavy = static_cast<double>(weight) * scenario().sites.heavy_factor;
    weight = static_cast<std::uint64_t>(std::min(heavy, static_cast<double>(round::kWeightLimit - 1)));
  }
  draw_clones(others);
}

// Two machines with one certificate: a copied folder.
void Cast::draw_clones(Rng& rng) {
  std::vector<HostId> sites;
  for (const Host& host : world_.hosts()) {
    if (host.role == Role::kSite && !malicious_.contains(host.id)) sites.push_back(host.id);
  }
  for (const HostId site : sites) {
    if (!happens(rng, scenario().faults.sites.cloned_fraction)) continue;
    const HostId of = sites[rng.below(sites.size())];
    if (of == site || clones_.contains(of) || clones_.contains(site)) continue;
    clones_[site] = clones_[of] = of;
    weights_[site.value()] = weights_[of.value()];
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
  for (const Host& host : world_.hosts()) FLUVIAL_TRY(enrol(*journal, host, now));
  for (const auto& [clone, of] : clones_) {
    identities_[clone.value()] = identities_[of.value()];
    show(clone, credentials_[of.value()], serials_[of.value()]);
    checks_.rounds().excuse(identity(of).node);  // the bytes of two machines meet in one transfer
  }
  checks_.set_staged_max(world_.hosts().size());

  const Buffer model = lessons_ != nullptr ? model_of(schema_, lessons_->initial_model())
                                           : initial_model(schema_, world_.chance().seed());
  store::RunRow run;
  run.plan = scenario().plan;
  run.schema = schema_;
  run.initial_model = sha256(model.span());
  run.created_at = now;
  FLUVIAL_ASSIGN(run.id, journal->create_run(run));
  std::vector<float> values(schema_.value_count());
  std::vector<std::int64_t> integers(schema_.integer_count());
  FLUVIAL_ASSIGN(store::ModelStore models, store::ModelStore::open(files, "models"));
  FLUVIAL_ASSIGN(const std::string optimizer,
                 models.put({run.id, ModelVersion(0)}, schema_, model.span(), run.initial_model, {}));
  (void)optimizer;
  round::split_model(schema_, model.span(), values, integers);
  checks_.rounds().run_started(run, {values, integers});
  return {};
}

Status Cast::enrol(store::CoordinatorJournal& journal, const Host& host, WallTime now) {
  Identity identity{NodeId(0), host.role, host.name};
  const auto clone = clones_.find(host.id);
  const auto [private_key, public_key] = key_number(host.id.value());
  std::optional<identity::Credentials> credentials;
  if (host.role == Role::kCoordinator) {
    FLUVIAL_ASSIGN(identity.node, journal.reserve_node_id(host.role, host.name));
    credentials = certify(host.id, identity, 0, private_key, now);
  } else if (clone == clones_.end() || clone->second == host.id) {
    store::TokenRow token;
    token.id = host.name;
    token.secret_hash = sha256(as_byte_span(host.name));
    token.role = host.role;
    token.name = host.name;
    token.expires_at = now + std::chrono::hours(1);
    FLUVIAL_TRY(journal.add_token(token));
    store::NodeRow node;
    node.role = host.role;
    node.name = host.name;
    node.region = host.region;
    node.weight_max = host.role == Role::kSite ? weight_max(host.id) : 0;
    node.enrolled_at = now;
    FLUVIAL_ASSIGN(node.id, journal.reserve_node_id(host.role, host.name));
    identity.node = node.id;
    credentials = certify(host.id, identity, 0, private_key, now);
    node.certificate_serial = credentials ? credentials->chain.front().serial_hex() : serial_of(host.id, 0);
    const Buffer key = public_key.der();
    const WallTime ends = credentials ? credentials->chain.front().not_after() : kCertificatesEnd;
    FLUVIAL_ASSIGN(const store::NodeRow enrolled,
                   journal.redeem_token(token.secret_hash, node, now, {key.span(), ends}));
    FLUVIAL_CHECK(enrolled.id == identity.node, "a node id that was reserved");
  }
  // The planner and real training look at a settled federation: no host begins at the root because its region is not
  // known yet.
  if ((sized() || lessons_ != nullptr) && host.role == Role::kAggregator) {
    FLUVIAL_TRY(journal.set_advertise(identity.node, address_of(host.id)));
  }
  identities_.push_back(std::move(identity));
  const HostId own = clone == clones_.end() ? host.id : clone->second;
  keys_.push_back(key_number(own.value()));
  serials_.emplace_back();
  credentials_.emplace_back();
  shown_.emplace_back();
  show(host.id, std::move(credentials), serial_of(own, 0));
  return {};
}

void Cast::install() {
  for (const Host& host : world_.hosts()) {
    world_.install(host.id, [this, role = host.role](World&, HostId id) -> std::unique_ptr<Process> {
      switch (role) {
        case Role::kCoordinator: return std::make_unique<CoordinatorRole>(*this, id);
        case Role::kAggregator: return std::make_unique<AggregatorRole>(*this, id);
        case Role::kSite:
        case Role::kOperator: break;
      }
      if (sized()) return std::make_unique<PlannedSite>(*this, id);
      return std::make_unique<SiteRole>(*this, id);
    });
  }
  world_.set_person([this](Order what, HostId host) { order(what, host); });
  world_.set_upkeep([this](World::Upkeep upkeep) {
    const Disk::Inspection inspection(world_.disk(kRoot));
    if (upkeep == World::Upkeep::kBackUp) return checks_.rounds().backed_up();
    const Status begun = begin_history();
    FLUVIAL_CHECK(begun.ok(), "a restored folder that cannot be marked");
  });
}

// A person's command on the coordinator's machine, while it is up.
void Cast::order(Order order, HostId host) {
  if (order == Order::kEnrolAnew) return enrol_anew(host);
  if (!world_.is_up(kRoot)) return;
  auto* coordinator = static_cast<CoordinatorRole*>(world_.process(kRoot));
  switch (order) {
    case Order::kRevoke:
      revoked_.insert(host);
      coordinator->revoke(identity(host).node);
      break;
    case Order::kPause: coordinator->pause(); break;
    case Order::kStop: coordinator->stop(); break;
    case Order::kRollOver: coordinator->roll_over(); break;
    case Order::kEnrolAnew: break;
  }
}

bool Cast::is_in_order(HostId host) const {
  return ends(host) && !revoked_.contains(host) && !is_dishonest(identity(host).node) && !attempted_.contains(host);
}

bool Cast::can_enrol_anew(HostId host) const {
  return !sized() && world_.host(host).role == Role::kSite && !clones_.contains(host);
}

void Cast::enrol_anew(HostId host) {
  if (!can_enrol_anew(host) || !world_.is_up(kRoot)) return;
  const SitesScenario& sites = scenario().sites;
  store::NodeRow row;
  row.role = Role::kSite;
  row.name = identity(host).name;
  row.region = world_.host(host).region;
  row.weight_max = weight_max(host);
  if (happens(enrolment_rng_, scenario().faults.sites.changed)) {
    row.weight_max = between(enrolment_rng_, sites.weight_min, sites.weight_max);
    row.region = world_.hosts()[enrolment_rng_.below(world_.hosts().size())].region;
  }
  attempt_enrolment(host, std::move(row));
}

Status Cast::begin_history() {
  store::FileSystem& files = world_.disk(kRoot).files();
  const WallTime now = world_.clock(kRoot).wall_now();
  FLUVIAL_ASSIGN(const std::unique_ptr<store::CoordinatorJournal> journal,
                 store::CoordinatorJournal::open(files, "journal.sqlite"));
  FLUVIAL_ASSIGN(store::ModelStore models, store::ModelStore::open(files, "models"));
  FLUVIAL_ASSIGN(const std::vector<round::ModelKey> referenced, journal->referenced_models());
  FLUVIAL_TRY(models.set_aside({referenced.begin(), referenced.end()}, "aside-" + std::to_string(++restores_)));
  const round::HistoryId id(world_.chance().stream("history", restores_).next() | 1);
  // Its clock may be behind an earlier restore's: then members name the epoch.
  FLUVIAL_ASSIGN(const round::History history, journal->begin_history(id, checks_.rounds().greatest_epoch(), now));
  FLUVIAL_TRY(repeat_orders(*journal, now));
  FLUVIAL_ASSIGN(const std::vector<store::RunRow> runs, journal->runs());
  checks_.restored(history.id, *journal, runs.empty() ? "" : round::run_status_name(runs.back().status));
  return {};
}

// Repeats the orders since the backup: revokes the same members again, and enrols the same members anew, as they are
// now.
Status Cast::repeat_orders(store::CoordinatorJournal& journal, WallTime now) {
  std::set<NodeId> revoked;  // a cloned site is revoked on both of its machines
  for (const HostId host : revoked_) revoked.insert(identity(host).node);
  for (const NodeId node : revoked) FLUVIAL_TRY(journal.revoke(node, now));
  attempted_.clear();
  for (const Host& host : world_.hosts()) {
    if (host.id == kRoot || revoked.contains(identity(host.id).node)) continue;
    FLUVIAL_ASSIGN(std::optional<store::NodeRow> row, journal.node(identity(host.id).node));
    const std::string& serial = serials_[host.id.value()];
    const Buffer key = keys_[host.id.value()].second.der();
    FLUVIAL_ASSIGN(const auto current, store::CertificateBook(journal).current_of(identity(host.id).node));
    const bool same_key = current && std::ranges::equal(current->key, key.span());
    if (!row || (!row->revoked_at && same_key)) continue;
    store::TokenRow token;
    token.id = row->name + "-after-restore-" + std::to_string(restores_);
    token.secret_hash = sha256(as_byte_span(token.id));
    token.role = row->role;
    token.name = row->name;
    token.expires_at = now + std::chrono::hours(1);
    FLUVIAL_TRY(journal.add_token(token));
    row->weight_max = weight_max(host.id);
    row->enrolled_at = now;
    row->certificate_serial = serial;
    FLUVIAL_ASSIGN(const store::NodeRow enrolled,
                   journal.redeem_token(token.secret_hash, *row, now, {key.span(), shown_[host.id.value()].not_after}));
    FLUVIAL_CHECK(enrolled.id == row->id, "a member that is another when it is enrolled anew");
  }
  return {};
}

void Cast::claim(HostId host, round::Standing* standing) {
  if (!is_malicious(host) || !world_.faults_on()) return;
  round::KnownRound known{RunId(1), RoundId(claims_rng_.below(1'000)), true, claims_rng_.below(2) == 0, {}};
  switch (claims_rng_.below(8)) {
    case 0: standing->epoch = Epoch(claims_rng_.next()); break;
    case 1: standing->epoch = Epoch(standing->epoch.value() + claims_rng_.below(1'000'000)); break;
    case 2: known.run = RunId(claims_rng_.below(1'000)); [[fallthrough]];
    case 3: standing->rounds.push_back(known); break;
    case 4: standing->history = round::HistoryId(claims_rng_.next()); break;
    default: break;
  }
  if (standing->rounds.size() > round::kKnownRoundsMax) standing->rounds.erase(standing->rounds.begin());
}

Duration Cast::time_for_values(double ns_a_value) const {
  const double seconds = ns_a_value * 1e-9 * static_cast<double>(scenario().workload.values);
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
}

// Zero for a model of a few values.
Duration Cast::time_to_pack() const {
  return std::chrono::microseconds(1) + (sized() ? time_for_values(scenario().compute.merge_ns) : Duration(0));
}

std::string Cast::address_of(HostId host) { return "host-" + std::to_string(host.value()) + ":7000"; }

net::HostPort Cast::host_port(HostId host) { return {"host-" + std::to_string(host.value()), 7000}; }

Node::IdentityOf Cast::identities() const {
  return [this](HostId host) { return shown_.at(host.value()); };
}

WorkCosts Cast::work_costs() const {
  constexpr Duration kCall = std::chrono::microseconds(100);
  const auto& compute = scenario().compute;
  return {kCall + time_for_values(compute.merge_ns), time_to_pack(), 4 * kCall + time_for_values(compute.finalise_ns)};
}

HostId Cast::host_at(const std::string& address) const {
  const std::size_t colon = address.find(':');
  std::uint32_t number = 0;
  if (!address.starts_with("host-") || colon == std::string::npos) return kRoot;
  std::from_chars(address.data() + 5, address.data() + colon, number);
  return number < identities_.size() ? HostId(number) : kRoot;
}

bool Cast::is_dishonest(NodeId node) const {
  const auto has_it = [&](HostId host) { return identity(host).node == node; };
  return std::ranges::any_of(malicious_, has_it) ||
         std::ranges::any_of(clones_, [&](const auto& entry) { return has_it(entry.first); });
}

wire::Protocols Cast::protocols(HostId host) const {
  if (alien_.contains(host)) return {wire::kProtocol + 1, wire::kProtocol + 2};
  if (newer_.contains(host)) return {wire::kProtocol, wire::kProtocol + 1};
  return {wire::kProtocol, wire::kProtocol};
}

std::size_t Cast::number_of(HostId site) const {
  return static_cast<std::size_t>(std::ranges::count_if(
      world_.hosts(), [&](const Host& host) { return host.role == Role::kSite && host.id < site; }));
}

void Cast::committing(const round::CommitRecord& record, std::span<const float> model) {
  if (lessons_ == nullptr) return;
  std::vector<Counted> updates;
  for (const Host& host : world_.hosts()) {
    const round::Contribution* entry = record.contributors.find(identity(host.id).node);
    if (entry != nullptr) updates.push_back({number_of(host.id), entry->weight, entry->staleness(), entry->share});
  }
  lessons_->committing(updates, model, world_.scheduler().now());
}

double Cast::slowness(HostId site) const {
  if (lessons_ != nullptr) return lessons_->slowness(number_of(site));
  return slow_.contains(site) ? scenario().sites.slow_factor : 1;
}

bool Cast::may_take_part(const Host& host) const {
  return host.role == Role::kSite && !alien_.contains(host.id) && !malicious_.contains(host.id) &&
         !clones_.contains(host.id);
}

std::size_t Cast::sites_left() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      world_.hosts(), [&](const Host& host) { return may_take_part(host) && !revoked_.contains(host.id); }));
}

}  // namespace fluvial::simulator
