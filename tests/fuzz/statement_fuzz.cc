// What the coordinator signs and others pass on: leases, openings, commits, outcomes, ends of runs, and whom it
// refuses; and what is told of histories. A statement is taken exactly as it was signed, by the right key and of the
// right history, after any way over the wire; who is refused never goes back; bytes are an error or are read again as
// the same.
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/identity/seeded_key.h"
#include "core/identity/signature.h"
#include "core/tree/denials.h"
#include "core/tree/lease_statement.h"
#include "core/tree/orders.h"
#include "core/wire/frame.h"
#include "core/wire/history_mapping.h"
#include "core/wire/mapping.h"
#include "core/wire/silence.h"
#include "tests/fuzz/errors.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {
namespace {

constexpr round::HistoryId kHistory{7};
constexpr SiteId kSite{5};

const identity::PrivateKey& key_of(std::size_t who) {  // 0: the coordinator
  static const std::vector<identity::PrivateKey> keys = [] {
    std::vector<identity::PrivateKey> made;
    for (unsigned char i = 0; i < 3; ++i) {
      Digest seed{};
      seed[0] = std::byte{i};
      made.push_back(identity::seeded_key(seed).value());
    }
    return made;
  }();
  return keys.at(who);
}
const identity::PublicKey& public_of(std::size_t who) {
  static const identity::PublicKey keys[] = {identity::PublicKey::of(key_of(0)), identity::PublicKey::of(key_of(1)),
                                             identity::PublicKey::of(key_of(2))};
  return keys[who];
}

v1::Signed sign(std::size_t who, std::string_view kind, std::string body) {
  v1::Signed order;
  order.set_signature(wire::signature_to_proto(identity::sign(key_of(who), kind, as_byte_span(body)).value()));
  order.set_body(std::move(body));
  return order;
}

// One bit of it is another; whether anything was changed.
bool damage(Input& input, v1::Signed* order) {
  std::string& bytes = input.flag() ? *order->mutable_body() : *order->mutable_signature();
  if (input.below(4) != 0 || bytes.empty()) return false;
  bytes[input.number<std::uint16_t>() % bytes.size()] ^= static_cast<char>(1 << input.below(8));
  return true;
}

Digest digest_of(Input& input) {
  Digest digest{};
  digest[0] = std::byte{input.byte()};
  digest[1] = std::byte{1};  // zeros mean that it is not known
  return digest;
}

template <typename T>
void expect(const Result<T>& result, bool expected, const char* what) {
  if (!result.ok()) check_error(result.error());
  FLUVIAL_CHECK(result.ok() == expected, what);
}
void expect(const Status& status, bool expected, const char* what) {
  if (!status.ok()) check_error(status.error());
  FLUVIAL_CHECK(status.ok() == expected, what);
}

// ---- leases ------------------------------------------------------------------------------------------------------

void lease(Input& input) {
  const round::LeaseTerms terms{NodeId(input.number<std::uint32_t>()),
                                digest_of(input),
                                Epoch(input.number<std::uint64_t>()),
                                NodeId(input.byte()),
                                digest_of(input),
                                round::HistoryId(input.byte())};
  const std::size_t signer = input.below(3);
  v1::Signed signed_lease = tree::sign_lease(key_of(signer), terms, WallTime()).value();
  const bool damaged = damage(input, &signed_lease);
  const auto read = tree::read_lease(public_of(0), signed_lease);
  expect(read, signer == 0 && !damaged, "a lease that the coordinator has not given, or none where it has");
  if (read.ok()) FLUVIAL_CHECK(*read == terms, "another lease than was given");
}

// ---- who is refused ----------------------------------------------------------------------------------------------

identity::DenyEntries entries_of(Input& input) {
  identity::DenyEntries entries;
  for (std::size_t i = input.below(4); i > 0; --i) entries.nodes.insert(NodeId(input.byte()));
  for (std::size_t i = input.below(4); i > 0; --i) entries.keys.insert(digest_of(input));
  for (std::size_t i = input.below(4); i > 0; --i) entries.refused_serials.insert(to_hex(as_byte_span(input.text())));
  return entries;
}

void check_refused(const identity::DenyList& list, const identity::DenyEntries& entries) {
  for (std::uint32_t node = 0; node < 256; node += 5) {
    const identity::PeerIdentity peer{Role::kSite, NodeId(node), "hospital-a", "77"};
    const bool denied = entries.nodes.contains(NodeId(node)) || entries.refused_serials.contains("77");
    FLUVIAL_CHECK(list.check(peer).ok() == !denied, "somebody else is refused than the coordinator says");
  }
}

// An aggregator hears of lists in any order, from anybody, of any history.
void denials(Input& input) {
  const auto list = std::make_shared<identity::DenyList>();
  tree::HeardDenials heard(list);
  struct Followed {
    round::HistoryId history;
    std::uint64_t number = 0;
    identity::DenyEntries entries;
  };
  std::optional<Followed> followed;
  bool granted = false;
  round::HistoryId current;
  std::size_t key = 0;
  for (int step = 0; step < 12 && !input.done(); ++step) {
    Followed said{round::HistoryId(input.below(3)), input.below(8), entries_of(input)};
    const std::size_t signer = input.below(4) == 0 ? 1 + input.below(2) : key;
    v1::Denials message = tree::signed_denials(said.entries, said.history, said.number, key_of(signer)).value();
    const bool is_own = !damage(input, message.mutable_statement()) && signer == key;
    const bool of_lease = input.below(4) == 0 || !granted;
    if (of_lease) {
      const bool tells = input.below(4) != 0;
      const round::HistoryId history(input.below(3));
      const std::size_t by = input.below(8) == 0 ? 1 : 0;
      const bool told_before = heard.last() != nullptr;
      const Status taken = heard.granted(history, public_of(by), tells ? &message : nullptr);
      check_error(taken);
      if (!tells && told_before) {
        FLUVIAL_CHECK(!taken.ok(), "a coordinator that tells no longer is believed");
        continue;
      }
      granted = true;
      current = history;
      key = by;
    } else {
      const Result<bool> taken = heard.told(message);
      expect(taken, is_own, "a list that the coordinator has not said, or not one that it has");
      if (taken.ok() && *taken) FLUVIAL_CHECK(said.history == current, "a list of another history is followed");
    }
    if (heard.last() == nullptr) continue;
    const auto now = tree::read_denials(*heard.last(), public_of(0));
    const auto now_by_another = tree::read_denials(*heard.last(), public_of(1));
    FLUVIAL_CHECK(now.ok() || now_by_another.ok(), "what is passed on is signed");
    const tree::Denied& last = now.ok() ? *now : *now_by_another;
    if (followed && followed->history == last.history) {
      FLUVIAL_CHECK(last.number >= followed->number, "who is refused goes back");
    }
    followed = Followed{last.history, last.number, last.who};
  }
  FLUVIAL_CHECK(heard.may_admit().ok() == granted, "somebody is admitted before anything was heard");
  if (followed && heard.last() != nullptr && heard.nodes() == followed->entries.nodes) {
    check_refused(*list, followed->entries);
  }
}

// ---- orders ------------------------------------------------------------------------------------------------------

wire::Opening opening_of(Input& input) {
  wire::Opening opening;
  opening.run = RunId(10 + input.below(4));
  opening.round = RoundId(1 + input.number<std::uint16_t>());
  opening.attempt = AttemptId(1 + input.byte() % 4U);
  opening.epoch = Epoch(1 + input.number<std::uint16_t>());
  opening.base = {opening.run, ModelVersion(opening.round.value() - 1), digest_of(input), 1'200};
  opening.plan.name = "fuzz";
  opening.plan.local_steps = 1 + input.byte();
  opening.plan.worker.values["lr"] = static_cast<double>(input.byte());
  opening.scale_bits = 20;
  opening.value_count = 250;
  opening.participants = {{kSite, Epoch(3), 100}};
  opening.soft_left = std::chrono::seconds(input.byte());
  opening.hard_left = std::chrono::seconds(300);
  for (std::size_t i = input.below(3); i > 0; --i) opening.continues.push_back(RunId(input.below(10)));
  return opening;
}

// Whether what the statement says of it is another now.
bool change(Input& input, wire::Opening* opening) {
  switch (input.below(16)) {
    case 0: opening->run = opening->run.next(); return true;
    case 1: opening->round = opening->round.next(); return true;
    case 2: opening->attempt = opening->attempt.next(); return true;
    case 3: opening->epoch = opening->epoch.next(); return true;
    case 4: opening->base.digest[31] ^= std::byte{1}; return true;
    case 5: opening->base.bytes += 4; return true;
    case 6: opening->plan.local_steps += 1; return true;
    case 7: opening->plan.worker.values["lr"] = -1.0; return true;
    case 8: opening->scale_bits += 1; return true;
    case 9: opening->value_count += 1; return true;
    case 10: opening->integer_count += 1; return true;
    case 11: opening->continues.push_back(RunId(9)); return true;
    case 12: opening->participants.push_back({SiteId(6), Epoch(1), 1}); return true;   // who takes no part
    case 13: opening->participants.front().lease = Epoch(input.byte()); return false;  // its parent's to say
    case 14: opening->counted = {kSite}; return false;
    default: return false;
  }
}

// A frame's header is all that a peer gets.
v1::Envelope over_the_wire(const v1::Envelope& message) {
  const auto head = wire::encode_head(message, 0, {});
  FLUVIAL_CHECK(head.ok(), "an order fits a frame");
  const auto header = wire::parse_header(head->span().subspan(wire::kPrefixBytes));
  FLUVIAL_CHECK(header.ok(), "an order is read");
  return *header;
}

struct Signing {
  explicit Signing(Input& input)
      : signer(input.below(4) == 0 ? 1 : 0),
        history(input.below(4) == 0 ? round::HistoryId(input.byte()) : kHistory),
        other_kind(input.below(8) == 0) {}
  bool is_right() const { return signer == 0 && history == kHistory && !other_kind; }
  wire::Order sign(Input& input, std::string_view kind, std::string body) {
    v1::Signed order = fuzz::sign(signer, other_kind ? "fluvial something else 1" : kind, std::move(body));
    damaged = damage(input, &order);
    return std::make_shared<const v1::Signed>(std::move(order));
  }
  std::size_t signer;
  round::HistoryId history;
  bool other_kind;
  bool damaged = false;
};

tree::Orders orders() {
  tree::Orders made;
  made.in_history(kHistory);
  made.by(public_of(0));
  return made;
}

void opening(Input& input) {
  wire::Opening made = opening_of(input);
  Signing signing(input);
  made.order = signing.sign(input, wire::kOpeningKind, wire::opening_body(made, {kSite}, signing.history));
  const bool changed = change(input, &made);
  tree::Orders heard = orders();
  const auto came = wire::from_proto(over_the_wire(wire::to_envelope(made)).round_open());
  check_error(came);
  FLUVIAL_CHECK(came.ok() || changed, "an opening that no child can read");
  if (!came.ok()) return;
  expect(heard.opened(*came), signing.is_right() && !signing.damaged && !changed,
         "an opening that the coordinator has not made, or not one that it has");
}

void commit(Input& input) {
  wire::Commit made;
  made.run = RunId(1 + input.below(4));
  made.round = RoundId(1 + input.number<std::uint16_t>());
  made.attempt = AttemptId(1 + input.byte());
  made.model = {made.run, ModelVersion(made.round.value()), digest_of(input), 1'200};
  made.last = input.flag();
  Signing signing(input);
  made.order = signing.sign(input, wire::kCommitKind, wire::commit_body(made, input.text(), signing.history));
  bool changed = true;
  switch (input.below(16)) {
    case 0: made.round = made.round.next(); break;
    case 1: made.attempt = made.attempt.next(); break;
    case 2: made.model.digest[0] ^= std::byte{1}; break;
    case 3: made.last = !made.last; break;
    case 4: made.run = made.run.next(); break;
    default: changed = false;
  }
  Signing of_outcome(input);
  wire::Decided decided{made.run, made.round, kSite, static_cast<round::Outcome>(2 + input.below(3)), {}};
  if (decided.outcome == round::Outcome::kCounted || input.below(4) == 0) decided.digest = digest_of(input);
  wire::Decided said = decided;
  const bool other = input.below(4) == 0;
  if (other) said.site = SiteId(6);
  made.outcomes[kSite] = of_outcome.sign(input, wire::kOutcomeKind, wire::outcome_body(said, of_outcome.history));
  const auto came = wire::from_proto(over_the_wire(wire::to_envelope(made)).round_commit());
  check_error(came);
  FLUVIAL_CHECK(came.ok() || of_outcome.damaged, "a commit that no child can read");
  if (!came.ok()) return;
  const tree::Orders heard = orders();
  expect(heard.committed(*came), signing.is_right() && !signing.damaged && !changed,
         "a commit that the coordinator has not made, or not one that it has");
  const auto outcome = heard.outcome_of(kSite, *came);
  check_error(outcome);
  const bool is_commits = !decided.digest || decided.outcome == round::Outcome::kCounted;
  const bool is_said = of_outcome.is_right() && !of_outcome.damaged && !other && is_commits;
  const bool is_told = outcome.ok() && outcome->has_value();
  FLUVIAL_CHECK(is_told == is_said, "an outcome that the coordinator has not decided, or not one that it has");
  if (is_told) FLUVIAL_CHECK(**outcome == decided, "another outcome than it decided");
}

void run_state(Input& input) {
  constexpr const char* kStates[] = {"done", "stopped", "paused", "running"};
  v1::RunState state;
  state.set_run(1 + input.byte());
  state.set_state(kStates[input.below(4)]);
  state.set_name("digits");
  Signing signing(input);
  *state.mutable_order() =
      *signing.sign(input, wire::kRunStateKind, wire::run_state_body(state, Epoch(1), signing.history));
  const bool changed = input.flag();
  if (changed && state.run() % 2 == 0) state.set_name("letters");
  if (changed && state.run() % 2 == 1) state.set_run(state.run() + 1);
  expect(orders().ended(state), signing.is_right() && !signing.damaged && !changed,
         "the end of a run that the coordinator has not said, or not one that it has");
}

// ---- any bytes, signed by the coordinator ------------------------------------------------------------------------

void body(Input& input) {
  constexpr std::string_view kKinds[] = {"fluvial lease 1", "fluvial denials 1", wire::kOutcomeKind,
                                         wire::kOpeningKind};
  const std::size_t kind = input.below(std::size(kKinds));
  const v1::Signed order = sign(0, kKinds[kind], std::string(as_text(input.rest())));
  if (kind == 0) {
    const auto read = tree::read_lease(public_of(0), order);
    check_error(read);
    if (!read.ok()) return;
    const auto again = tree::read_lease(public_of(0), tree::sign_lease(key_of(0), *read, WallTime()).value());
    FLUVIAL_CHECK(again.ok() && *again == *read, "a lease is read again as another");
  } else if (kind == 1) {
    v1::Denials message;
    *message.mutable_statement() = order;
    const auto read = tree::read_denials(message, public_of(0));
    check_error(read);
    if (!read.ok()) return;
    const auto again = tree::read_denials(
        tree::signed_denials(read->who, read->history, read->number, key_of(0)).value(), public_of(0));
    FLUVIAL_CHECK(again.ok() && again->who == read->who && again->number == read->number, "a list is another, again");
  } else if (kind == 2) {
    check_error(wire::site_of_outcome(order.body()));
    const auto read = wire::decided_from(order.body(), kHistory);
    check_error(read);
    if (!read.ok()) return;
    const auto again = wire::decided_from(wire::outcome_body(*read, kHistory), kHistory);
    FLUVIAL_CHECK(again.ok() && *again == *read, "an outcome is read again as another");
  } else {
    Input nothing{ByteSpan()};
    wire::Opening made = opening_of(nothing);
    made.order = std::make_shared<const v1::Signed>(order);
    tree::Orders heard = orders();
    check_error(heard.opened(made));
  }
}

void histories(ByteSpan bytes) {
  v1::LeaseGrant grant;
  if (grant.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    const auto lineage = wire::from_proto(grant.histories());
    check_error(lineage);
    if (lineage.ok()) {
      FLUVIAL_CHECK(round::check_lineage(*lineage).ok(), "a lineage that cannot be");
      v1::LeaseGrant own;
      wire::to_proto(*lineage, own.mutable_histories());
      const auto again = wire::from_proto(own.histories());
      FLUVIAL_CHECK(again.ok() && *again == *lineage, "a lineage is read again as another");
      const round::Common common(*lineage, {});
      (void)common.has(RunId(1), RoundId(1));
    }
  }
  v1::Standing standing;
  if (!standing.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return;
  const auto read = wire::from_proto(standing);
  check_error(read);
  if (!read.ok()) return;
  const auto again = wire::from_proto(wire::to_proto(*read));
  FLUVIAL_CHECK(again.ok() && *again == *read, "what a member knows is read again as something else");
}

void run(ByteSpan bytes) {
  wire::silence_protobuf();
  Input input(bytes);
  switch (input.below(8)) {
    case 0: return lease(input);
    case 1: return denials(input);
    case 2: return opening(input);
    case 3: return commit(input);
    case 4: return run_state(input);
    case 5: return histories(input.rest());
    default: return body(input);
  }
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
