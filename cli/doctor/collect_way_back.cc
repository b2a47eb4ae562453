// The way back: whether the aggregators can be reached at the addresses that they give their children. Nothing of the
// federation's is shown to them: the visitor's certificate is one that nobody trusts, made for the visit. In TLS 1.3
// the server has shown its own by the time it sees that; then it hangs up.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>
#include <thread>
#include <utility>

#include "cli/admin_client.h"
#include "cli/doctor/collect.h"
#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/identity/tls.h"
#include "core/tree/runtime.h"
#include "core/tree/visit.h"

namespace fluvial::cli::doctor {
namespace {

constexpr std::size_t kAtOnceMax = 32;
constexpr Duration kWayBackStepMax = std::chrono::seconds(5);
constexpr Duration kBeginUntil = std::chrono::seconds(30);  // no visit begins later
constexpr std::chrono::hours kStrangerValidity{1};

// Its name is what the aggregator's log says.
Result<identity::Credentials> stranger(std::vector<identity::Certificate> trusted) {
  const WallTime now = SystemClock().wall_now();
  FLUVIAL_ASSIGN(const auto nobody,
                 identity::CertificateAuthority::create_in_memory("fluvial-doctor", now, 2 * kStrangerValidity));
  FLUVIAL_ASSIGN(identity::KeyAndCsr made, identity::make_key_and_csr());
  const identity::Grant grant{{Role::kSite, NodeId(1), "fluvial-doctor"}, kStrangerValidity};
  FLUVIAL_ASSIGN(std::vector<identity::Certificate> chain, nobody.issue_chain(made.csr_der.span(), grant, now));
  return identity::Credentials{std::move(made.key), std::move(chain), std::move(trusted)};
}

Result<std::shared_ptr<const identity::TlsContext>> context_of(const Subject& subject) {
  FLUVIAL_ASSIGN(const auto chain, identity::Certificate::load_chain(subject.data_dir + "/ca/ca.pem"));
  FLUVIAL_ASSIGN(const identity::Credentials credentials, stranger({chain.back()}));
  return identity::TlsContext::member_client(credentials);
}

std::vector<WayBackFacts::Aggregator> aggregators_in(const json::value& listing) {
  std::vector<WayBackFacts::Aggregator> found;
  for (const json::value& node : array_member(listing, "nodes")) {
    const std::string address = text_member(node, "advertise");
    if (text_member(node, "role") != "aggregator" || bool_member(node, "revoked") || address.empty()) continue;
    WayBackFacts::Aggregator one{.name = text_member(node, "name"), .connected = bool_member(node, "connected")};
    one.expected = identity::describe(
        {Role::kAggregator, NodeId(static_cast<std::uint32_t>(count_member(node, "id"))), one.name, {}, {}});
    one.visit.address = address;
    found.push_back(std::move(one));
  }
  return found;
}

void visit(VisitFacts* facts, std::shared_ptr<const identity::TlsContext> tls, const net::SessionSettings& session) {
  const auto at = net::parse_host_port(facts->address);
  if (!at.ok()) {
    facts->reached = at.error();
    return;
  }
  const auto met = tree::visit_blocking({*at, std::nullopt}, std::move(tls), session);
  if (!met.ok()) {
    facts->reached = met.error();
    return;
  }
  facts->peer = met->peer;
  facts->handshake = met->handshake;
}

void visit_all(WayBackFacts* facts, const std::shared_ptr<const identity::TlsContext>& tls) {
  net::SessionSettings session;
  session.resolve_deadline = session.connect_deadline = session.handshake_deadline = kWayBackStepMax;
  session.drain_deadline = std::chrono::seconds(1);
  const SystemClock clock;
  const TimePoint end = clock.now() + kBeginUntil;
  std::atomic<std::size_t> next{0};
  std::vector<std::jthread> visitors;
  for (std::size_t i = 0; i < std::min(kAtOnceMax, facts->aggregators.size()); ++i) {
    visitors.emplace_back([&] {
      for (std::size_t at = next++; at < facts->aggregators.size(); at = next++) {
        WayBackFacts::Aggregator& one = facts->aggregators[at];
        one.tried = clock.now() < end;
        if (one.tried) visit(&one.visit, tls, session);
      }
    });
  }
}

}  // namespace

WayBackFacts collect_way_back(const Subject& subject) {
  WayBackFacts facts;
  const AdminClient admin(subject.coordinator->admin_socket);
  const auto listing = admin.get("/v1/nodes");
  const auto authority = admin.get("/v1/authority");
  const auto tls = context_of(subject);
  if (!listing.ok() || !authority.ok()) {
    facts.listed = listing.ok() ? authority.error() : listing.error();
    return facts;
  }
  if (!tls.ok()) return facts;  // the certificates' check says why
  facts.in_rollover = array_member(*authority, "authorities").size() > 1;
  facts.aggregators = aggregators_in(*listing);
  visit_all(&facts, *tls);
  return facts;
}

}  // namespace fluvial::cli::doctor
