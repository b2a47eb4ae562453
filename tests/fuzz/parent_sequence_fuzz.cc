// A hostile parent and a site. The site is edge/service as it ships, in virtual time, with its real store and codecs;
// its parent says anything in any order: what the coordinator signed, the same changed or signed by somebody else, and
// bytes. Whatever it says: the site trains nothing but what the coordinator has opened, on the model that the opening
// names; what it has sent is resolved once, and only as the coordinator decided, of one run also in a round after its
// own; its store and its memory stay small; and once its parent is honest again, it takes part in a round to the end.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "core/tree/orders.h"
#include "tests/fuzz/parent_sequence_site.h"

namespace fluvial::fuzz {
namespace {

using namespace std::chrono_literals;

constexpr std::size_t kStepsMax = 64;

// ---- its parent --------------------------------------------------------------------------------------------------

class Town {
 public:
  Town() : world_(scenario(), 1, 0), truth_(node_of(kSiteHost)) {
    world_.set_faults_on(false);
    events_.parent_for = [](NodeId) { return kRoot; };
    events_.heard = [this](NodeId, const net::Frame& frame) { heard(frame); };
    world_.install(kRoot, [this](World& world, HostId host) {
      auto made = std::make_unique<Parent>(world, host, events_);
      parent_ = made.get();
      return made;
    });
    world_.install(kSiteHost, [this](World& world, HostId host) {
      auto made = std::make_unique<Site>(world, host, truth_);
      site_ = made.get();
      return made;
    });
    world_.start_all();
    FLUVIAL_CHECK(connect(), "a site finds its parent");
  }

  void play(Input& input) {
    for (std::size_t step = 0; step < kStepsMax && !input.done(); ++step) {
      if (!parent_->is_connected()) FLUVIAL_CHECK(connect(), "a site comes back to its parent");
      act(input);
      run_for(world_, step_of(input));
      site_->check();
      check_world(world_);
    }
  }

  // With an honest parent a round goes from its opening to its end.
  void recover() {
    honest_ = true;
    parent_->cut();
    FLUVIAL_CHECK(connect(), "a site comes back to an honest parent");
    for (int attempt = 1; attempt <= 20 && !is_counted(); ++attempt) {
      if (!parent_->is_connected()) FLUVIAL_CHECK(connect(), "a site stays with an honest parent");
      wire::Opening opening = opening_of(kHonestRun, 1, static_cast<std::uint32_t>(attempt));
      opening.participants = {{node_of(kSiteHost), Epoch(1), 100}};
      truth_.say_opening(&opening);
      parent_->say(wire::to_envelope(opening));
      run_until(world_, 10s, [&] { return is_counted(); });
    }
    FLUVIAL_CHECK(is_counted(), "after a hostile parent a site does not finish a round with an honest one");
    FLUVIAL_CHECK(site_->store().all_pending()->empty(), "a submission stays");
    check_world(world_);
  }

 private:
  static simulator::Scenario scenario() {
    simulator::Scenario scenario = quiet_scenario();
    scenario.tree = {.depth = 0, .sites = 1};
    return scenario;
  }
  bool connect() {
    return run_until(world_, 30s, [&] { return parent_->is_connected(); });
  }
  static Duration step_of(Input& input) {
    constexpr Duration kSteps[] = {Duration(0), 1ms, 4ms, 20ms, 400ms, 7s};
    return kSteps[input.below(std::size(kSteps))];
  }
  bool is_counted() {
    const auto last = site_->store().last_outcome(kHonestRun);
    return last.ok() && *last && (*last)->outcome == Outcome::kCounted && (*last)->round == RoundId(1);
  }

  // ---- what the site asks, and what is answered to it
  void heard(const net::Frame& frame) {
    const v1::Envelope& message = frame.header;
    if (message.has_model_request()) asked_ = message.model_request();
    if (message.has_outcome_query()) query_ = message.outcome_query();
    if (message.has_update_begin()) arriving_ = {message.update_begin(), {}};
    if (message.has_update_chunk()) arriving_.hash.update(frame.payload.span());
    if (message.has_update_end()) arrived(message.update_end(), frame.payload.span());
    if (!honest_) return;
    if (message.has_model_request()) send_model(*asked_, false);
    if (message.has_outcome_query()) answer_query(Outcome::kLate);
  }

  struct Arriving {
    v1::UpdateBegin begin;
    Sha256 hash;
  };
  void arrived(const v1::UpdateEnd& end, ByteSpan trailer) {
    arriving_.hash.update(trailer);
    const Digest digest = arriving_.hash.finish();
    const v1::UpdateBegin& begin = arriving_.begin;
    const Result<Digest> said = wire::digest_from_proto(end.sha256());
    const Result<Signature> signature = wire::signature_from_proto(end.signature());
    FLUVIAL_CHECK(said.ok() && signature.ok(), "an update ends with its digest and its signature");
    const round::Contribution given{SiteId(begin.key().site()),
                                    Epoch(begin.lease_epoch()),
                                    begin.weight(),
                                    *said,
                                    0,
                                    {},
                                    Incarnation(begin.key().incarnation()),
                                    begin.key().submission(),
                                    {},
                                    *signature};
    const Status authentic =
        tree::check_author(identity_of(world_, kSiteHost).key, RunId(begin.key().run()), RoundId(begin.key().round()),
                           wire::digest_from_proto(begin.base_sha256()).value(), given);
    FLUVIAL_CHECK(authentic.ok(), "what a site contributes is signed as it is");
    if (!honest_ || RunId(begin.key().run()) != kHonestRun) return;
    FLUVIAL_CHECK(begin.first_chunk() == 0 && digest == *said, "an honest parent gets the whole update");
    commit(RunId(begin.key().run()), 1, Outcome::kCounted, *said);
  }

  void commit(RunId run, std::uint64_t round, Outcome wish, const std::optional<Digest>& digest) {
    wire::Commit made;
    made.run = run;
    made.round = RoundId(round);
    made.attempt = AttemptId(1);
    made.model = model(run, round).ref;
    truth_.say_commit(&made);
    const wire::Decided decided = truth_.decide(run, made.round, wish, digest);
    truth_.say(decided);
    wire::Decided shown = decided;
    if (shown.outcome != Outcome::kCounted) shown.digest.reset();  // as commits have it
    made.outcomes[decided.site] = std::make_shared<const v1::Signed>(truth_.order_of(shown));
    parent_->say(wire::to_envelope(made));
  }

  void send_model(const v1::ModelRequest& request, bool damaged) {
    const Result<round::ModelRef> ref = wire::from_proto(request.model());
    if (!ref.ok() || ref->version.value() > kRounds + 1) return;
    const Model& wanted = model(ref->run, ref->version.value());
    if (request.offset() > wanted.bytes.size()) return;
    v1::Envelope begin;
    *begin.mutable_model_begin()->mutable_model() = request.model();
    *begin.mutable_model_begin()->mutable_schema() = wire::to_proto(schema());
    begin.mutable_model_begin()->set_offset(request.offset());
    parent_->say(begin);
    Buffer bytes = Buffer::copy_of(wanted.bytes.span().subspan(request.offset()));
    if (damaged && !bytes.empty()) bytes.data()[bytes.size() / 2] ^= std::byte{1};
    v1::Envelope part;
    part.mutable_model_chunk()->set_run(ref->run.value());
    part.mutable_model_chunk()->set_version(ref->version.value());
    part.mutable_model_chunk()->set_offset(request.offset());
    parent_->say(std::move(part), SharedBytes::from(std::move(bytes)));
  }

  void answer_query(Outcome wish) {
    if (!query_) return;
    const v1::OutcomeQuery query = *std::exchange(query_, std::nullopt);
    v1::Envelope message;
    v1::OutcomeReply& reply = *message.mutable_outcome_reply();
    reply.set_run(query.run());
    reply.set_round(query.round());
    reply.set_site(query.site());
    reply.set_sha256(query.sha256());
    if (query.round() != 0) {
      const Digest about = wire::digest_from_proto(query.sha256()).value();
      const RunId run(query.run());
      const bool waits = wish == Outcome::kPending && !truth_.is_decided(run, RoundId(query.round()));
      if (wish == Outcome::kPending) wish = Outcome::kLate;
      wire::Decided decided =
          waits ? wire::Decided{run, RoundId(query.round()), node_of(kSiteHost), Outcome::kPending, {}}
                : truth_.decide(run, RoundId(query.round()), wish, about);
      if (decided.outcome == Outcome::kCounted && decided.digest != about) decided.outcome = Outcome::kLate;
      decided.digest = about;
      truth_.say(decided);
      reply.set_outcome(wire::to_proto(decided.outcome));
      *reply.mutable_order() = truth_.order_of(decided);
    }
    parent_->say(std::move(message));
  }

  // ---- what a hostile one says
  enum class Forgery { kNone, kUnsigned, kOwnKey, kOtherStatement, kOtherHistory, kDamaged, kCount };
  static Forgery forgery_of(Input& input) {
    return static_cast<Forgery>(input.below(static_cast<std::size_t>(Forgery::kCount)));
  }
  // Instead of the coordinator's signature: what the hostile parent has.
  static v1::Signed forged(Forgery forgery, std::string_view kind, std::string body) {
    switch (forgery) {
      case Forgery::kOwnKey: return signed_by(kSiteHost, kind, std::move(body));
      case Forgery::kOtherStatement: return signed_by(kRoot, "fluvial something else 1", std::move(body));
      case Forgery::kDamaged: {
        v1::Signed order = signed_by(kRoot, kind, body);
        order.mutable_body()->push_back('\x78');  // 15: varint, a field of nobody's, cut short
        return order;
      }
      default: return {};
    }
  }
  static RunId run_of(Input& input) { return RunId(1 + input.below(kRuns)); }
  static std::uint64_t round_of(Input& input) { return 1 + input.below(kRounds); }

  // What stands in an opening beside the coordinator's word, and what its parent may say of it.
  void dress(Input& input, wire::Opening* opening) const {
    opening->participants = {{node_of(kSiteHost), Epoch(input.byte()), input.below(4) == 0 ? input.byte() : 100U}};
    if (input.below(8) == 0) opening->counted = {node_of(kSiteHost)};
    if (input.below(8) == 0) opening->gone = {node_of(kSiteHost)};
    if (input.below(4) == 0) {
      opening->received = round::Received{Incarnation(input.byte()), input.byte(), input.number<std::uint16_t>()};
    }
    if (input.below(8) == 0) opening->soft_left = std::chrono::milliseconds(input.number<std::uint32_t>());
  }

  // Which old updates may enter, and for how much: not as the coordinator says.
  static round::Lateness another_rule(Input& input, const wire::Opening& opening) {
    round::Lateness rule = opening.late.value_or(round::Lateness{1, {512, 300, 200}, {}});
    switch (input.below(5)) {
      case 4: rule.drift_max += 1U + input.byte() % 4U; break;
      case 0: rule.staleness_max += 1U + input.byte(); break;
      case 1: rule.factors.assign(input.below(20), input.number<std::uint32_t>()); break;
      case 2: ++rule.factors.back(); break;
      default: rule.earlier.push_back(model(opening.run, input.below(kRounds)).ref); break;
    }
    return rule;
  }

  void open(Input& input) {
    wire::Opening opening = opening_of(run_of(input), round_of(input), 1 + input.byte() % 3);
    dress(input, &opening);
    truth_.say_opening(&opening);
    parent_->say(wire::to_envelope(opening));
  }

  // A round that the coordinator has not opened, or not so.
  void forge_opening(Input& input) {
    wire::Opening opening = opening_of(RunId(1 + input.below(kRuns + 4)), 1 + input.number<std::uint16_t>(), 1);
    dress(input, &opening);
    const std::string own_body = wire::opening_body(opening, {node_of(kSiteHost)}, kHistory);
    const Forgery forgery = forgery_of(input);
    if (forgery == Forgery::kNone) {  // signed, and then changed
      opening.order = std::make_shared<const v1::Signed>(signed_by(kRoot, wire::kOpeningKind, own_body));
      switch (input.below(9)) {
        case 0: opening.plan.local_steps += 1 + input.byte(); break;
        case 1: opening.plan.value_abs_max += 1; break;
        case 2: opening.round = opening.round.next(); break;
        case 3: opening.run = opening.run.next(); break;
        case 4: opening.base = model(RunId(9), 1).ref; break;
        case 5: opening.epoch = opening.epoch.next(); break;
        case 6: opening.value_count += 1 + input.byte(); break;
        case 8: opening.late = another_rule(input, opening); break;
        default: opening.plan.worker.values["learning_rate"] = static_cast<double>(input.byte()); break;
      }
    } else if (forgery == Forgery::kOtherHistory) {
      opening.order = std::make_shared<const v1::Signed>(
          signed_by(kRoot, wire::kOpeningKind, wire::opening_body(opening, {node_of(kSiteHost)}, round::HistoryId(5))));
    } else if (forgery != Forgery::kUnsigned) {
      opening.order = std::make_shared<const v1::Signed>(forged(forgery, wire::kOpeningKind, own_body));
    }
    parent_->say(wire::to_envelope(opening));
  }

  void end_round(Input& input) {
    const RunId run = run_of(input);
    const std::uint64_t round = round_of(input);
    const auto wish = static_cast<Outcome>(2 + input.below(3));
    const auto& own = site_->submission();
    const bool is_own = own && own->start.run == run && own->start.round <= RoundId(round) &&
                        round - own->start.round.value() <= (takes_old(run) ? kStalenessMax : 0);
    commit(run, round, wish, is_own ? std::optional(own->digest) : std::nullopt);
  }

  // A commit that the coordinator has not made, or a verdict of it that it has not given.
  void forge_commit(Input& input) {
    wire::Commit made;
    made.run = run_of(input);
    made.round = RoundId(round_of(input));
    made.attempt = AttemptId(1);
    made.model = model(made.run, made.round.value()).ref;
    const SiteId self = node_of(kSiteHost);
    const auto& own = site_->submission();
    const Digest digest = own ? own->digest : Digest{};
    const Forgery forgery = forgery_of(input);
    const std::string body = wire::commit_body(made, {}, kHistory);
    if (forgery == Forgery::kNone || input.flag()) {
      truth_.say_commit(&made);
    } else if (forgery != Forgery::kUnsigned) {
      made.order = std::make_shared<const v1::Signed>(forged(forgery, wire::kCommitKind, body));
    }
    switch (input.below(4)) {  // in clear, which binds nobody
      case 0: FLUVIAL_CHECK(made.contributors.add({self, Epoch(1), 5, digest}).ok(), "a set of one"); break;
      case 1: made.refusals = {{self, {Code::kInvalidArgument, "no"}}}; break;
      case 2: made.late = {self}; break;
      default: break;
    }
    wire::Decided decided{made.run, made.round, self, static_cast<Outcome>(1 + input.below(4)), std::nullopt};
    if (decided.outcome == Outcome::kCounted) decided.digest = digest;
    switch (input.below(4)) {
      case 0:
        made.outcomes[self] = std::make_shared<const v1::Signed>(
            signed_by(kSiteHost, wire::kOutcomeKind, wire::outcome_body(decided, kHistory)));
        break;
      case 1: {  // another round's
        decided.round = decided.round.next();
        made.outcomes[self] = std::make_shared<const v1::Signed>(truth_.order_of(decided));
        break;
      }
      case 2: {  // another site's
        decided.site = SiteId(77);
        made.outcomes[self] = std::make_shared<const v1::Signed>(truth_.order_of(decided));
        break;
      }
      default: break;
    }
    parent_->say(wire::to_envelope(made));
  }

  void forge_reply(Input& input) {
    v1::Envelope message;
    v1::OutcomeReply& reply = *message.mutable_outcome_reply();
    const auto& own = site_->submission();
    const RunId run = own && input.flag() ? own->start.run : run_of(input);
    const RoundId round = own && input.flag() ? own->start.round : RoundId(input.below(kRounds));
    const Digest digest = own && input.below(4) != 0 ? own->digest : Digest{};
    const auto outcome = static_cast<Outcome>(1 + input.below(4));
    reply.set_run(run.value());
    reply.set_round(round.value());
    reply.set_site(input.below(8) == 0 ? input.byte() : node_of(kSiteHost).value());
    reply.set_sha256(wire::digest_to_proto(digest));
    reply.set_outcome(wire::to_proto(outcome));
    const wire::Decided decided{run, round, node_of(kSiteHost), outcome, digest};
    const Forgery forgery = forgery_of(input);
    if (forgery == Forgery::kOtherHistory) {
      *reply.mutable_order() = signed_by(kRoot, wire::kOutcomeKind, wire::outcome_body(decided, round::HistoryId(5)));
    } else if (forgery != Forgery::kUnsigned && forgery != Forgery::kNone) {
      *reply.mutable_order() = forged(forgery, wire::kOutcomeKind, wire::outcome_body(decided, kHistory));
    }
    parent_->say(std::move(message));
  }

  void say_run_state(Input& input) {
    constexpr const char* kStates[] = {"done", "stopped", "paused", "running", "nonsense"};
    v1::Envelope message;
    v1::RunState& state = *message.mutable_run_state();
    state.set_run(run_of(input).value());
    state.set_state(kStates[input.below(std::size(kStates))]);
    state.set_reason(input.text());
    state.set_name(state.run() % 2 == 0 ? "digits" : "");
    const Forgery forgery = forgery_of(input);
    const std::string body = wire::run_state_body(state, Epoch(1), kHistory);
    *state.mutable_order() = forgery == Forgery::kNone ? signed_by(kRoot, wire::kRunStateKind, body)
                                                       : forged(forgery, wire::kRunStateKind, body);
    parent_->say(std::move(message));
  }

  void say_receipt(Input& input) {
    v1::Envelope message;
    v1::Receipt& receipt = *message.mutable_receipt();
    receipt.set_run(run_of(input).value());
    receipt.set_round(round_of(input));
    receipt.set_site(input.below(8) == 0 ? input.byte() : node_of(kSiteHost).value());
    receipt.set_code(input.byte() % 20U);
    receipt.set_message(input.text());
    parent_->say(std::move(message));
  }

  void say_model(Input& input) {
    v1::ModelRequest request = asked_.value_or(v1::ModelRequest());
    switch (input.below(8)) {
      case 0: request.set_offset(input.number<std::uint32_t>()); break;
      case 1: *request.mutable_model() = wire::to_proto(model(run_of(input), round_of(input)).ref); break;
      case 2: {  // any part of any
        v1::Envelope part;
        part.mutable_model_chunk()->set_run(request.model().run());
        part.mutable_model_chunk()->set_version(request.model().version());
        part.mutable_model_chunk()->set_offset(input.number<std::uint16_t>());
        return parent_->say(std::move(part), SharedBytes::from(Buffer::copy_of(input.bytes())));
      }
      case 3: {  // with another schema
        v1::Envelope begin;
        *begin.mutable_model_begin()->mutable_model() = request.model();
        v1::Tensor& tensor = *begin.mutable_model_begin()->mutable_schema()->add_tensors();
        tensor.set_name(input.text());
        tensor.set_dtype("F32");
        tensor.add_shape(input.number<std::uint64_t>());
        return parent_->say(std::move(begin));
      }
      case 4:
      case 5: return say_ahead(input);
      default: break;
    }
    send_model(request, input.below(4) == 0);
  }

  // A model that may be committed next, or not, or that is none.
  void say_ahead(Input& input) {
    round::ModelRef unnamed = model(run_of(input), round_of(input)).ref;
    unnamed.digest = tree_of(unnamed).value_or(unnamed.digest);
    const std::uint8_t odd = input.byte();
    if (odd % 8 == 0) unnamed.digest.front() ^= std::byte{1};
    if (odd % 8 == 1) unnamed.bytes = input.number<std::uint64_t>();
    v1::Envelope message;
    *message.mutable_model_ahead()->mutable_model() = wire::to_proto(unnamed);
    parent_->say(std::move(message));
  }

  void say_anything(Input& input) {
    v1::Envelope message;
    const ByteSpan header = input.bytes();
    if (!message.ParseFromArray(header.data(), static_cast<int>(header.size()))) return;
    // Time is not what this is about, and a person's goodbye ends the session like any other.
    parent_->say(std::move(message), SharedBytes::from(Buffer::copy_of(input.bytes())));
  }

  void act(Input& input) {
    switch (input.below(16)) {
      case 0:
      case 1:
      case 2: return open(input);
      case 3:
      case 4: return asked_ ? send_model(*asked_, false) : void();
      case 5: return forge_opening(input);
      case 6: return end_round(input);
      case 7: return forge_commit(input);
      case 8: return forge_reply(input);
      case 9: {
        constexpr Outcome kOutcomes[] = {Outcome::kCounted, Outcome::kLate, Outcome::kRefused, Outcome::kPending};
        return answer_query(kOutcomes[input.below(std::size(kOutcomes))]);
      }
      case 10: return say_run_state(input);
      case 11: return say_receipt(input);
      case 12: return say_model(input);
      case 13: return say_anything(input);
      case 14: return parent_->cut();
      default: return;  // time passes
    }
  }

  Parent::Events events_;
  World world_;
  Truth truth_;
  Parent* parent_ = nullptr;
  Site* site_ = nullptr;
  bool honest_ = false;
  std::optional<v1::ModelRequest> asked_;
  std::optional<v1::OutcomeQuery> query_;
  Arriving arriving_;
};

void run(ByteSpan bytes) {
  Input input(bytes);
  Town town;
  town.play(input);
  town.recover();
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
