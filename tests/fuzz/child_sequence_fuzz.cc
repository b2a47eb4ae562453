// A hostile child, its honest sibling and their parent. The parent is an aggregator/service as it ships, in virtual
// time; one of its two sites says anything in any order: updates that are signed and right, updates that are not, under
// leases of its own or of others, and bytes. Whatever it says: what goes up names each site once, with its own
// signature, as much as its site gave and the sum of exactly those updates; staging keeps its budget and is empty after
// the round; and the honest sibling's update is in every round. From the second round on updates of earlier rounds may
// enter: one that does counts with the factor of its age, under the signature for its own round.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/tree/orders.h"
#include "core/wire/record_mapping.h"
#include "kernels/fixed.h"
#include "kernels/reference/reference.h"
#include "tests/fuzz/child_sequence_region.h"

namespace fluvial::fuzz {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kStepsMax = 64;
constexpr std::uint64_t kRounds = 4;

class Town {
 public:
  Town() : world_(scenario(), 1, 0) {
    world_.set_faults_on(false);
    events_.parent_for = [](NodeId) { return kRoot; };
    events_.heard = [this](NodeId, const net::Frame& frame) { from_region(frame); };
    world_.install(kRoot, [this](World& world, HostId host) {
      auto made = std::make_unique<Parent>(world, host, events_);
      root_ = made.get();
      return made;
    });
    world_.install(kRegion, [this](World& world, HostId host) {
      auto made = std::make_unique<Region>(world, host);
      region_ = made.get();
      return made;
    });
    install_child(kHostile, &hostile_, [](const v1::Envelope&) {});
    install_child(kHonest, &honest_, [this](const v1::Envelope& message) { to_honest(message); });
    world_.start_all();
    FLUVIAL_CHECK(run_until(world_, 30s, [&] { return root_->is_connected(); }), "an aggregator finds its parent");
    connect(kHonest, *honest_);
    connect(kHostile, *hostile_);
    run_for(world_, 10ms);
    FLUVIAL_CHECK(honest_->is_connected() && hostile_->is_connected(), "children are let in");
    open();
    run_for(world_, 5ms);
  }

  void play(Input& input) {
    for (std::size_t step = 0; step < kStepsMax && !input.done(); ++step) {
      act(input);
      run_for(world_, step_of(input));
      tend();
      region_->check();
      check_world(world_);
    }
  }

  // Whatever has happened, the honest site's update goes up, and nothing is left of the round.
  void finish() {
    for (int rounds = 0; rounds < 2; ++rounds) {
      end_round();
      next_round();
    }
    hostile_->leave();  // what it has begun to send is its session's
    FLUVIAL_CHECK(run_until(world_, 60s, [&] { return tend(), region_->is_empty(); }),
                  "staging holds what belongs to no open round: " + region_->held());
    check_world(world_);
  }

 private:
  static simulator::Scenario scenario() {
    simulator::Scenario scenario = quiet_scenario();
    scenario.tree = {.depth = 1, .aggregators = 1, .sites = 2};
    return scenario;
  }
  void install_child(HostId at, Child** out, Child::Heard heard) {
    world_.install(at, [out, heard = std::move(heard)](World& world, HostId host) {
      auto made = std::make_unique<Child>(world, host, heard);
      *out = made.get();
      return made;
    });
  }
  static Duration step_of(Input& input) {
    constexpr Duration kSteps[] = {Duration(0), 1ms, 3ms, 30ms, 2s, 12s};
    return kSteps[input.below(std::size(kSteps))];
  }

  // ---- leases and rounds, as an honest coordinator has them
  Epoch lease(HostId host) const { return host == kHonest ? Epoch(1) : hostile_lease_; }
  v1::Envelope hello_of(HostId host, Epoch epoch, const v1::Signed& shown) const {
    v1::Envelope message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_protocol_min(wire::kProtocolOldest);
    hello.set_protocol_max(wire::kProtocol);
    hello.set_software("fuzz");
    hello.set_incarnation(1);
    hello.set_lease_epoch(epoch.value());
    *hello.mutable_lease() = shown;
    static_cast<void>(host);
    return message;
  }
  void connect(HostId host, Child& child) {
    child.connect(hello_of(host, lease(host), lease_of(world_, host, kRegion, lease(host))));
  }
  void open() {
    wire::Opening opening;
    opening.run = kRun;
    opening.round = RoundId(round_);
    opening.attempt = AttemptId(attempt_);
    opening.epoch = Epoch(1);
    opening.base = model(round_ - 1);
    opening.plan.name = "fuzz";
    opening.plan.chunk_values = kLayout.chunk_values;
    opening.scale_bits = kScale;
    opening.value_count = kLayout.value_count;
    for (const HostId host : {kHostile, kHonest}) {
      opening.participants.push_back({node_of(host), lease(host), kWeightMax});
    }
    opening.counted.assign(counted_.begin(), counted_.end());
    opening.late = late_of(round_);
    opening.soft_left = 10s;
    opening.hard_left = 30s;
    opening.order = std::make_shared<const v1::Signed>(signed_by(
        kRoot, wire::kOpeningKind, wire::opening_body(opening, {node_of(kHostile), node_of(kHonest)}, kHistory)));
    root_->say(wire::to_envelope(opening));
    told_ = root_->sessions();
  }
  // What the honest ones do without being asked: they come back, and say what is open.
  void tend() {
    if (root_->is_connected() && told_ != root_->sessions()) open();
    if (!honest_->is_connected() && !honest_->is_connecting()) connect(kHonest, *honest_);
  }
  bool has_honest() const { return counted_.contains(node_of(kHonest)); }
  void end_round() {
    for (int attempts = 0; attempts < 4 && !has_honest(); ++attempts) {
      run_until(world_, 40s, [&] { return tend(), has_honest(); });
      if (has_honest()) break;
      ++attempt_;
      if (root_->is_connected()) open();
    }
    FLUVIAL_CHECK(has_honest(), "the honest sibling's update is not in");
  }
  void next_round() {
    wire::Commit commit;
    commit.run = kRun;
    commit.round = RoundId(round_);
    commit.attempt = AttemptId(attempt_);
    commit.model = model(round_);
    FLUVIAL_CHECK(commit.contributors.merge(contributors_).ok(), "a set");
    for (const auto& [site, entry] : contributors_.entries()) marks_[site] = entry.own_round(commit.round);
    for (const HostId host : {kHostile, kHonest}) {
      if (!counted_.contains(node_of(host))) commit.late.push_back(node_of(host));
    }
    commit.order = std::make_shared<const v1::Signed>(
        signed_by(kRoot, wire::kCommitKind, wire::commit_body(commit, {}, kHistory)));
    root_->say(wire::to_envelope(commit));
    counted_.clear();
    contributors_.clear();
    ++round_;
    attempt_ = 1;
    run_for(world_, 5ms);
    tend();
    if (round_ <= kRounds + 2) open();
  }

  // ---- the honest sibling
  void to_honest(const v1::Envelope& message) {
    if (!message.has_round_open() || message.round_open().round() != round_) return;
    for (const std::uint32_t site : message.round_open().counted()) {
      if (site == node_of(kHonest).value()) return;
    }
    Update update{.round = round_, .submission = round_, .weight = 7, .value = 0.5F + static_cast<float>(round_)};
    update.sum_up();
    note(kHonest, update);
    honest_->send(update, lease(kHonest));
  }

  // ---- what comes up, and whether it is so
  void note(HostId host, const Update& update) { sent_[{node_of(host), update.digest}] = update; }

  void from_region(const net::Frame& frame) {
    const v1::Envelope& message = frame.header;
    if (message.has_partial_begin()) {
      const auto head = transfer::head_from_proto(message.partial_begin(), node_of(kRegion), Role::kAggregator);
      FLUVIAL_CHECK(head.ok(), "an honest aggregator's partial is refused");
      partial_ = *head;
      sums_.clear();
    }
    if (message.has_partial_chunk()) {
      const std::size_t count = kLayout.size(message.partial_chunk().index());
      std::vector<std::int64_t> sums(count);
      FLUVIAL_CHECK(kernels::merge_chunk(frame.payload.span(), sums).ok(), "a partial's chunk cannot be read");
      sums_.insert(sums_.end(), sums.begin(), sums.end());
    }
    if (message.has_partial_end() && partial_) take_partial(*std::exchange(partial_, std::nullopt));
  }

  void take_partial(const transfer::PartialHead& head) {
    const bool is_open = head.round == RoundId(round_) && head.attempt == AttemptId(attempt_);
    const bool is_before = head.round < RoundId(round_) && head.round.value() + drift_of(round_) >= round_;
    if (!is_open && !is_before) return;
    std::vector<SiteId> without;
    for (const auto& [site, entry] : head.what.contributors.entries()) {
      const bool is_decided = marks_.contains(site) && entry.own_round(RoundId(round_)) <= marks_.at(site);
      const bool is_stale = is_decided || entry.lease != lease(HostId(site.value() - 1));
      if (counted_.contains(site) || is_stale || !entry.signature) without.push_back(site);  // as the root would
      FLUVIAL_CHECK(entry.signature || site == node_of(kHostile), "a signature is lost");
    }
    const Status status =
        without.empty() ? Status{} : Status{Error{Code::kUnauthenticated, "not as the root takes it"}};
    if (status.ok()) count(head);
    root_->say(transfer::partial_receipt(kRun, head.round, head.sequence, status, without));
  }

  void check_versions(const round::Contribution& entry) const {
    if (round_ == 1) {
      FLUVIAL_CHECK(entry.base == ModelVersion() && entry.admitted == ModelVersion(), "an old update, and none may be");
      return;
    }
    FLUVIAL_CHECK(entry.admitted < ModelVersion(round_) && entry.admitted.value() + drift_of(round_) >= round_ - 1,
                  "admitted on another model");
    FLUVIAL_CHECK(entry.base <= entry.admitted && entry.staleness() <= kStalenessMax, "older than may be");
  }

  void count(const transfer::PartialHead& head) {
    std::vector<std::int64_t> expected(head.what.contributors.empty() ? 0 : kLayout.value_count);
    for (const auto& [site, entry] : head.what.contributors.entries()) {
      FLUVIAL_CHECK(site == node_of(kHostile) || site == node_of(kHonest), "a site that takes no part");
      const HostId host(site.value() - 1);
      check_versions(entry);
      const std::uint64_t age = entry.staleness();
      const Status own = tree::check_author(identity_of(world_, host).key, kRun, RoundId(entry.base.value() + 1),
                                            model(entry.base.value()).digest, entry);
      FLUVIAL_CHECK(own.ok(), "a contribution goes up without the signature of its site");
      const auto sent = sent_.find({site, entry.digest});
      FLUVIAL_CHECK(sent != sent_.end(), "a contribution that nobody has sent");
      FLUVIAL_CHECK(entry.weight > 0 && entry.weight <= kWeightMax && entry.lease == lease(host), "beyond its terms");
      const std::uint64_t share = entry.weight * kFactors[age];  // in units of 2^-9
      FLUVIAL_CHECK(entry.probe == static_cast<std::int64_t>(share) << (kScale - 9), "not added exactly once");
      const auto term = kernels::reference::fixed_term(static_cast<double>(sent->second.value),
                                                       static_cast<std::uint32_t>(share), kScale - 9);
      FLUVIAL_CHECK(term.has_value(), "beyond what a round can hold");
      for (std::int64_t& sum : expected) sum += *term;
    }
    FLUVIAL_CHECK(sums_ == expected, "the sum is not that of its contributors");
    for (const auto& [site, entry] : head.what.contributors.entries()) {
      FLUVIAL_CHECK(counted_.insert(site).second, "a site counts twice");
    }
    FLUVIAL_CHECK(contributors_.merge(head.what.contributors).ok(), "a site counts twice");
  }

  // ---- what the hostile one says
  Update update_of(Input& input) {
    constexpr float kValues[] = {1,       -1,
                                 100.25F, 1e-30F,
                                 2'000,   std::numeric_limits<float>::quiet_NaN(),
                                 0.5F,    std::numeric_limits<float>::infinity()};
    Update update{.round = input.below(8) == 0 ? input.byte() : round_};
    update.round = std::max<std::uint64_t>(update.round, 1);
    if (update.round != round_ && input.flag()) update.into = round_;
    update.submission = 1 + input.below(4);
    update.weight = input.below(4) == 0 ? input.number<std::uint32_t>() : 1 + input.below(kWeightMax);
    update.value = kValues[input.below(std::size(kValues))];
    update.sum_up();
    return update;
  }

  void whole(Input& input) {
    const Update update = update_of(input);
    note(kHostile, update);
    hostile_->send(update, hostile_lease_);
  }

  // The parts of an update one by one, each perhaps another one's.
  void begin(Input& input) {
    said_ = update_of(input);
    sent_bytes_ = {};
    well_formed_ = true;
    v1::Envelope message = begin_of(kHostile, said_, hostile_lease_);
    v1::UpdateBegin& begin = *message.mutable_update_begin();
    switch (input.below(16)) {
      case 0: begin.mutable_key()->set_site(input.flag() ? node_of(kHonest).value() : input.byte()); break;
      case 1: begin.set_lease_epoch(input.byte()); break;
      case 2: begin.set_codec(input.flag() ? "int8" : input.text()); break;
      case 3: begin.set_value_count(input.number<std::uint64_t>()); break;
      case 4: begin.set_chunk_count(input.number<std::uint32_t>()); break;
      case 5: begin.set_integer_count(input.number<std::uint32_t>()); break;
      case 6: begin.set_base_sha256(input.text()); break;
      case 7: begin.set_first_chunk(input.below(4)); break;
      case 8: begin.mutable_key()->set_run(input.byte()); break;
      case 9: begin.set_pass(input.byte()); break;
      case 10: begin.set_probe(input.flag() ? 1.0F : -1.0F); break;
      case 11: (*begin.mutable_metrics())[input.text()] = input.byte(); break;
      case 12: begin.mutable_key()->set_incarnation(input.byte()); break;
      case 13: begin.set_into(input.byte()); break;
      default: break;
    }
    begin_ = begin;
    hostile_->say(std::move(message));
  }
  void chunk(Input& input) {
    v1::Envelope part;
    const bool as_it_must = input.below(4) != 0;
    part.mutable_update_chunk()->set_index(as_it_must ? next_chunk_++ % 2 : input.byte());
    const Buffer values = said_.chunk(part.update_chunk().index() % 2);
    const ByteSpan bytes = as_it_must ? values.span() : input.bytes();
    sent_bytes_.update(bytes);
    well_formed_ = well_formed_ && as_it_must;
    hostile_->say(std::move(part), SharedBytes::from(Buffer::copy_of(bytes)));
  }
  void end(Input& input) {
    const round::ProbeBytes probe = round::probe_bytes();
    const std::string other = input.text();
    const ByteSpan trailer = input.below(4) != 0 ? ByteSpan(probe) : as_byte_span(other);
    sent_bytes_.update(trailer);
    Digest digest = sent_bytes_.finish();
    sent_bytes_ = {};
    next_chunk_ = 0;
    if (input.below(8) == 0) digest[0] ^= std::byte{1};
    v1::Envelope message;
    message.mutable_update_end()->set_sha256(wire::digest_to_proto(digest));
    switch (input.below(8)) {
      case 0: break;  // unsigned
      case 1: message.mutable_update_end()->set_signature(signature_of(kHonest, begin_, digest)); break;
      case 2: message.mutable_update_end()->set_signature(input.text()); break;
      case 3: message.mutable_update_end()->set_signature(signature_of(kHostile, begin_, Digest{})); break;
      default: message.mutable_update_end()->set_signature(signature_of(kHostile, begin_, digest)); break;
    }
    if (well_formed_) {
      said_.digest = digest;
      note(kHostile, said_);
    }
    hostile_->say(std::move(message), SharedBytes::from(Buffer::copy_of(trailer)));
  }

  void reconnect(Input& input) {
    const auto other_lease = [&]() -> v1::Signed {
      switch (input.below(6)) {
        case 0: return lease_of(world_, kHonest, kRegion, Epoch(1));       // of somebody else
        case 1: return lease_of(world_, kHostile, kRoot, hostile_lease_);  // under another parent
        case 2: return signed_by(kHostile, "fluvial lease 1", lease_of(world_, kHostile, kRegion, Epoch(9)).body());
        case 3: return {};
        default: return lease_of(world_, kHostile, kRegion, hostile_lease_);
      }
    };
    if (input.below(4) == 0) hostile_->cut();
    if (input.below(4) == 0) {  // the coordinator has granted it another one
      hostile_lease_ = hostile_lease_.next();
      if (root_->is_connected()) open();
    }
    v1::Envelope hello = hello_of(kHostile, hostile_lease_, other_lease());
    if (input.below(4) == 0) hello.mutable_hello()->set_lease_epoch(input.byte());
    if (input.below(4) == 0) hello.mutable_hello()->set_incarnation(input.byte());
    if (input.below(16) == 0) hello.mutable_hello()->set_history(input.byte());
    if (input.below(16) == 0) hello.mutable_hello()->set_protocol_max(input.byte());
    hostile_->connect(std::move(hello));
  }

  void chatter(Input& input) {
    v1::Envelope message;
    const std::uint32_t site = input.below(4) == 0 ? input.byte() : input.flag() ? 3U : 4U;
    switch (input.below(7)) {
      case 0:
        message.mutable_decline()->set_run(kRun.value());
        message.mutable_decline()->set_round(round_);
        message.mutable_decline()->set_site(site);
        message.mutable_decline()->set_code(input.byte() % 20U);
        message.mutable_decline()->set_attempt(input.byte() % 4U);
        break;
      case 1:
        message.mutable_outcome_query()->set_run(kRun.value());
        message.mutable_outcome_query()->set_round(input.byte());
        message.mutable_outcome_query()->set_site(site);
        message.mutable_outcome_query()->set_sha256(std::string(32, 'x'));
        break;
      case 2:
        *message.mutable_model_request()->mutable_model() = wire::to_proto(model(input.below(4)));
        message.mutable_model_request()->set_offset(input.number<std::uint16_t>());
        break;
      case 3: {
        v1::Member& member = *message.mutable_member_change()->add_up();
        member.set_node(site);
        member.set_name(input.text());
        member.set_role(v1::NODE_ROLE_SITE);
        member.set_lease_epoch(input.byte());
        message.mutable_member_change()->add_down(site);
        break;
      }
      case 4: {
        v1::NodeReport& report = *message.mutable_report()->add_nodes();
        report.set_node(site);
        report.set_note(input.text());
        break;
      }
      case 5: {
        v1::PartialBegin& begin = *message.mutable_partial_begin();
        begin.set_run(kRun.value());
        begin.set_round(round_);
        begin.set_attempt(1);
        begin.set_epoch(1);
        begin.add_contributors()->set_site(site);
        break;
      }
      default: {
        const ByteSpan header = input.bytes();
        if (!message.ParseFromArray(header.data(), static_cast<int>(header.size()))) return;
        break;
      }
    }
    hostile_->say(std::move(message), SharedBytes::from(Buffer::copy_of(input.bytes())));
  }

  void act(Input& input) {
    if (!hostile_->is_connected() && input.below(4) != 0) connect(kHostile, *hostile_);
    switch (input.below(16)) {
      case 0:
      case 1: return whole(input);
      case 2:
      case 3: return begin(input);
      case 4:
      case 5:
      case 6: return chunk(input);
      case 7:
      case 8: return end(input);
      case 9: return reconnect(input);
      case 10:
      case 11: return chatter(input);
      case 12: return hostile_->cut();
      case 13:  // the next attempt
        ++attempt_;
        return open();
      case 14:
        if (has_honest() && round_ < kRounds) next_round();
        return;
      default:
        if (input.below(4) == 0) root_->cut();
        return;
    }
  }

  Parent::Events events_;
  World world_;
  Parent* root_ = nullptr;
  Region* region_ = nullptr;
  Child* hostile_ = nullptr;
  Child* honest_ = nullptr;

  std::uint64_t round_ = 1;
  std::uint32_t attempt_ = 1;
  std::uint64_t told_ = 0;  // the root's session that has heard of the open round
  Epoch hostile_lease_{1};
  std::set<SiteId> counted_;
  round::ContributorSet contributors_;
  round::Marks marks_;  // as the coordinator keeps them
  std::map<std::pair<SiteId, Digest>, Update> sent_;

  std::optional<transfer::PartialHead> partial_;  // on its way up
  std::vector<std::int64_t> sums_;

  Update said_;  // that the hostile one has begun
  v1::UpdateBegin begin_;
  Sha256 sent_bytes_;
  std::uint64_t next_chunk_ = 0;
  bool well_formed_ = true;
};

void run(ByteSpan bytes) {
  Input input(bytes);
  Town town;
  town.play(input);
  town.finish();
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
