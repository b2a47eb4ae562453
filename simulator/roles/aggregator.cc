#include "simulator/roles/aggregator.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "aggregator/service/incarnation.h"
#include "core/net/deadline.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "simulator/roles/fence.h"

namespace fluvial::simulator {
namespace {

constexpr std::string_view kSoftware = "fluvial simulate";
constexpr std::uint64_t kForwardedPartBytes = 1024;  // small, so that models can be cut off in the middle

tree::HubOptions hub_options(Cast& cast, HostId host, std::optional<Renewing>& renewing) {
  tree::HubOptions options;
  options.staging_bytes_max = cast.staging_bytes_max();
  options.spill_folder = "spill";
  options.self = cast.identity(host).node;
  options.software = kSoftware;
  options.model_part_bytes = kForwardedPartBytes;
  if (renewing) {
    options.verify = renewing->renewal().verifier();
    options.past_certificate_max = cast.past_certificate_max();
  }
  return options;
}

// What the version before does not know, it does not pass on.
void say_as_before(v1::Envelope* message) {
  if (message->has_round_open()) message->mutable_round_open()->clear_late();
  if (!message->has_partial_begin()) return;
  for (v1::Contributor& one : *message->mutable_partial_begin()->mutable_contributors()) {
    one.clear_base_version();
    one.clear_admitted_version();
  }
}

}  // namespace

// The service that ships, except for the checks that a tampered one skips.
class AggregatorRole::Region final : public aggregator::RegionService {
 public:
  Region(AggregatorRole& role, tree::Runtime& runtime, net::TaskGroup& tasks)
      : RegionService(runtime, tasks, role.cast_.identities()(role.host()), role.report_,
                      hub_options(role.cast_, role.host(), role.renewing_),
                      role.cast_.scenario().federation.parentless_max),
        role_(role),
        tamper_(role.cast_.tamper()) {}

  void renewal_told(Duration validity, std::uint64_t trust) override {
    if (role_.renewing_) role_.renewing_->told();
    if (!tamper_.renews_too_late()) RegionService::renewal_told(validity, trust);
  }
  Result<transfer::Terms> admit(const transfer::UpdateHead& head) override {
    role_.cast_.contributes(role_.host(), head.site, role_.look_every());
    return tampered(RegionService::admit(head), head.run, head.round, /*brings_integers=*/true);
  }
  Result<transfer::Terms> admit(const transfer::PartialHead& head) override {
    return tampered(RegionService::admit(head), head.run, head.round, !head.what.contributors.empty());
  }
  void arrived(transfer::StagedArrival arrival) override {
    tamper_.staged(&arrival);
    RegionService::arrived(std::move(arrival));
  }
  // The machine is shown an arrival that looks right; the sum gets what really came.
  void staged(aggregator::ArrivalId arrival, const round::Arrival& what) override {
    round::Arrival looks = what;
    looks.contributors = shown(tamper_, machine().gather(), what.contributors);
    RegionService::staged(arrival, looks);
  }
  void taken(aggregator::ArrivalId arrival, const round::ContributorSet& with_probes) override {
    RegionService::taken(arrival, shown_of(tamper_, machine().gather(), with_probes));
  }
  Status may_join(const tree::Child& child) override {
    const Status may = RegionService::may_join(child);
    const bool lies = role_.cast_.is_malicious(role_.host()) && role_.world().faults_on();
    const bool is_by_lease = !may.ok() && may.error().code != Code::kUnavailable;
    const bool is_itself = child.node == role_.cast_.identity(role_.host()).node;
    return is_by_lease && !is_itself && (lies || tamper_.takes_any_lease()) ? Status{} : may;
  }
  void child_joined(const tree::Child& child) override {
    role_.cast_.child_joined(role_.host(), child);
    if (denials() != nullptr) role_.cast_.let_in(role_.host(), child.session->member(), denials());
    RegionService::child_joined(child);
  }
  void parent_up(const tree::Lease& lease) override {
    role_.cast_.parent_up(role_.host(), lease, role_.answered_);
    RegionService::parent_up(lease);
  }
  net::Awaitable<Result<round::Standing>> standing() override {
    Result<round::Standing> standing = co_await RegionService::standing();
    if (standing.ok()) role_.cast_.claim(role_.host(), &*standing);
    co_return standing;
  }
  net::Awaitable<Status> from_parent(net::Frame frame) override {
    const bool commits = frame.header.has_round_commit();
    const Status taken = co_await RegionService::from_parent(std::move(frame));
    if (commits && taken.ok() && !machine().is_open()) {
      role_.cast_.checks().nothing_staged(role_.host(), hub().budget().bytes_used(), sum().staged_count());
    }
    co_return taken;
  }

 private:
  Result<transfer::Terms> tampered(Result<transfer::Terms> admitted, RunId run, RoundId round, bool brings_integers) {
    const bool is_open = machine().is_open() && machine().opening().run == run && machine().opening().round == round;
    if (!admitted.ok() && is_open && is_overlooked(tamper_, admitted.error().code)) admitted = terms(brings_integers);
    if (admitted.ok()) tamper_.terms(&*admitted);
    return admitted;
  }

  AggregatorRole& role_;
  Tamper& tamper_;
};

AggregatorRole::AggregatorRole(Cast& cast, HostId host)
    : Node(cast.world(), host, Role::kAggregator, cast.callers(), cast.work_costs()),
      cast_(cast),
      forgery_(cast, host),
      counterfeit_(cast, host),
      report_(runtime().metrics, runtime().log) {}

AggregatorRole::~AggregatorRole() { take_down(); }

void AggregatorRole::start() {
  const auto opened = [&]() -> Result<Incarnation> {
    FLUVIAL_TRY(runtime().files.make_folder("spill"));
    return aggregator::next_incarnation(runtime().files, "incarnation");
  };
  const Result<Incarnation> incarnation = opened();
  if (is_dead()) return;
  if (!incarnation.ok()) {
    world().kill_for(host(), Death::kProcess, std::chrono::seconds(1));
    return;
  }
  cast_.checks().incarnation_began(host(), *incarnation);
  if (cast_.ends(host())) {
    renewing_.emplace(cast_, host(), runtime(), dial([](const net::HostPort&) { return Answer{kRoot, kRoot}; }),
                      dial([this](const net::HostPort&) { return enrolment(); }));
  }
  region_ = std::make_unique<Region>(*this, runtime(), tasks());
  if (renewing_) region_->with_renewal(renewing_->renewal());
  tree::UplinkOptions options;
  options.coordinator = Cast::host_port(kRoot);
  options.advertise = Cast::address_of(host());
  options.incarnation = *incarnation;
  options.software = kSoftware;
  options.jitter_seed = (std::uint64_t{host().value()} << 32) ^ incarnation->value() ^ world().chance().seed();
  options.protocols = cast_.protocols(host());
  if (renewing_) {
    options.verify = renewing_->renewal().verifier();
    options.past_certificate_max = cast_.past_certificate_max();
  }
  tree::Dial to_parent = dial([this](const net::HostPort& address) { return who_is_at(address); });
  if (cast_.rollovers().on()) {
    set_trusts([this](const identity::PeerIdentity& peer) { return cast_.rollovers().accepts(host(), peer); });
    if (renewing_) to_parent = renewing_->renewal().watching(std::move(to_parent));
  }
  uplink_ = std::make_unique<tree::Uplink>(runtime(), *region_, options, std::move(to_parent));
  region_->attach(*uplink_, [](bool) {});
  if (renewing_) {
    spawn("renewal", renewing_->renewal().run());
    spawn("watch", renewing_->watch());
  }
  if (cast_.certificate_life() > std::chrono::seconds(0)) spawn("ends", look_at_ends());
  set_outgoing([this](SessionId, v1::Envelope& message, SharedBytes& payload) { return says(message, payload); });
  spawn("sum", region_->run_lane());
  spawn("uplink", uplink_->run());
}

Node::Answer AggregatorRole::who_is_at(const net::HostPort& address) {
  answered_ = cast_.who_answers_at(host(), net::to_string(address));
  return {answered_, cast_.tamper().checks_role_alone() ? cast_.host_at(net::to_string(address)) : answered_};
}

Node::Answer AggregatorRole::enrolment() { return {kRoot, kRoot, cast_.rollovers().enrolment()}; }

Duration AggregatorRole::look_every() const { return cast_.past_certificate_max() / 4; }

// As the hub does it where it listens.
net::Awaitable<void> AggregatorRole::look_at_ends() {
  for (;;) {
    co_await net::sleep_for(look_every());
    if (!cast_.tamper().takes_an_ended_certificate()) region_->hub().end_past_certificates();
    cast_.looked_at(host(), region_->hub().children(), look_every());
  }
}

net::Awaitable<void> AggregatorRole::serve(std::shared_ptr<net::Session> session) {
  const Status known = cast_.rollovers().accepts(host(), session->member());
  if (!known.ok()) co_return session->close(known.error(), false);
  const bool ended = session->member().not_after <= runtime().clock.wall_now();
  if (!ended || cast_.tamper().takes_an_ended_certificate()) co_return co_await region_->hub().serve(session);
  session->close({Code::kUnauthenticated, "the certificate has ended"}, false);  // as TLS has it
}

void AggregatorRole::after_frame() {
  if (!region_) return;
  const store::StagingBudget& budget = region_->hub().budget();
  cast_.checks().bounds(host(), budget.bytes_used(), budget.bytes_max(), region_->sum().staged_count());
}

// A partial on its way up: the sum does not change meanwhile.
bool AggregatorRole::says(v1::Envelope& message, SharedBytes& payload) {
  cast_.hello(host(), &message);
  if (message.has_partial_begin()) {
    v1::PartialBegin& begin = *message.mutable_partial_begin();
    const transfer::NodeSum& sum = region_->sum().node();
    const auto head = transfer::head_from_proto(begin, cast_.identity(host()).node, Role::kAggregator);
    if (head.ok() && !head->what.contributors.empty() && !cast_.lies_come_from_below(host())) {
      cast_.checks().rounds().sum_sealed(
          {cast_.identity(host()).node, head->run, head->round, head->epoch, head->attempt, head->pass},
          head->what.contributors, {sum.accumulator().sum(), sum.integers(), sum.shape().scale_bits});
    }
    forgery_.draw();
    forgery_.apply(&begin);
  } else if (message.has_partial_chunk()) {
    const std::uint64_t index = message.partial_chunk().index();
    if (!forgery_.sends(index)) return false;
    const std::size_t values = region_->sum().shape().layout.size(index);
    payload = SharedBytes::from(forgery_.apply(Buffer::copy_of(payload.bytes), values));
  } else if (message.has_partial_end()) {
    Result<Digest> digest = wire::digest_from_proto(message.partial_end().sha256());
    FLUVIAL_CHECK(digest.ok(), "a digest of our own");
    forgery_.apply(&*digest);
    message.mutable_partial_end()->set_sha256(wire::digest_to_proto(*digest));
  }
  counterfeit_.says(&message);
  if (cast_.knows_no_late(host())) say_as_before(&message);
  return true;
}

}  // namespace fluvial::simulator
