// Ports, and the ways to other nodes.
#include <fmt/format.h>

#include <chrono>
#include <cmath>
#include <optional>
#include <utility>

#include "cli/doctor/judge.h"
#include "cli/format.h"

namespace fluvial::cli::doctor {
namespace {

constexpr double kOffsetWarningS = 5;    // as coordinator/logic/problems.h has it
constexpr double kOffsetErrorS = 3'600;  // a certificate is good from a day before it was made
constexpr double kSlowRoundTripS = 1;

double in_seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

Finding judge_port(const PortFacts& port, const ProcessFacts& process) {
  const std::string name = fmt::format("port {} ({})", port.address, port.setting);
  if (port.bound.ok()) {
    return {Severity::kOk, name + (process.answers ? ": free; the running process listens elsewhere" : ": free")};
  }
  const std::string& why = port.bound.error().message;
  switch (port.bound.error().code) {
    case Code::kAlreadyExists: {
      const bool is_other = !port.holder.empty() && port.holder.find("fluvial") == std::string::npos;
      if (process.answers && !is_other) return {Severity::kOk, name + ": held by this node's process"};
      const std::string who = port.holder.empty() ? "another process" : port.holder;
      return {Severity::kError, fmt::format("{}: {} has it", name, who),
              fmt::format("stop that one, or give {} another port", port.setting)};
    }
    case Code::kPermissionDenied:
      return {Severity::kError, fmt::format("{}: {}", name, why),
              "ports below 1024 need CAP_NET_BIND_SERVICE: take a higher one"};
    default:
      return {Severity::kError, fmt::format("{}: {}", name, why),
              fmt::format("{} must be an address of this machine, or 0.0.0.0 for all of them", port.setting)};
  }
}

// By the words of an error: the first that it holds.
struct Advice {
  std::string_view says;
  std::string_view advice;
};
constexpr Advice kAdvice[] = {
    {"proxy ", "the proxy's own words; `no_proxy` goes without it (docs/operations/enrol.md)"},
    {"resolve", "the name is unknown here: the configuration's coordinator, or this machine's DNS (/etc/resolv.conf)"},
    {"Connection refused", "nobody listens there: is that node running, and is the port right?"},
    {"cannot connect", "a firewall on the way, or a wrong address"},
    {"has expired",
     "it renews itself at the enrolment port (7401), up to 30 days after its end (renew_ended_max_s), while the "
     "process "
     "runs: can that port be reached? After that a new token for the same name; and look at both clocks"},
    {"not yet valid", "one of the two clocks is wrong: run a time service"},
    {"deny list", "this member was shut out (fluvial nodes list at the coordinator): a new token lets it in again"},
    {"has been revoked",
     "this member was shut out (fluvial nodes list at the coordinator): a new token lets it in again"},
    {"enrolled anew", "a copy of this folder from before runs here: the newer one is the member"},
    {"may not act as", "the address is another node's: the coordinator's members' port (7400) belongs there"},
    {"is it the right port", "the port is another one's: members connect to 7400, fluvial enroll to 7401"},
    {"application protocol", "the port is another one's: members connect to 7400, fluvial enroll to 7401"},
    {"speaks protocol", "update the older of the two"},
    {"wrong authority", "the token is another federation's, or somebody stands in between: compare the pins"},
    {"certificate", "another federation, or the coordinator's folder was lost: fluvial enroll with a new token"},
    {"authority", "another federation, or the coordinator's folder was lost: fluvial enroll with a new token"},
    {"handshake",
     "something in between holds packets back or ends TLS: it must pass TCP through, large packets too (MTU)"},
};

std::string advice_on(const std::string& why) {
  for (const Advice& one : kAdvice) {
    if (why.find(one.says) != std::string::npos) return std::string(one.advice);
  }
  return "its log says more: docs/operations/troubleshooting.md";
}

Finding judge_visit(const std::string& who, const VisitFacts& visit) {
  const std::string way =
      visit.proxy.empty() ? visit.address : fmt::format("{} by the proxy {}", visit.address, visit.proxy);
  if (!visit.reached.ok()) {
    const std::string& why = visit.reached.error().message;
    return {Severity::kError, fmt::format("{}: not reached: {}", who, why), advice_on(why)};
  }
  const double round_trip = in_seconds(visit.round_trip);
  const std::string what =
      fmt::format("{} at {}: let in as a member, round trip {}", who, way, format_seconds(round_trip));
  if (round_trip > kSlowRoundTripS) {
    return {Severity::kWarning, what, "so long a way slows every round: is a link full, or a proxy slow?"};
  }
  return {Severity::kOk, what};
}

Findings judge_offset(const std::string& who, const VisitFacts& visit) {
  if (!visit.reached.ok() || !visit.wall_offset) return {};
  const double offset = -in_seconds(*visit.wall_offset);  // of this clock, as seen from there
  const std::string what = fmt::format("clock: {} {} that of the {}", format_seconds(std::fabs(offset)),
                                       offset < 0 ? "behind" : "ahead of", who);
  const char* advice =
      "run a time service (chrony, systemd-timesyncd) on both: a certificate is refused by a clock that "
      "is wrong by a day, and times in logs do not fit together";
  if (std::fabs(offset) > kOffsetErrorS) return {{Severity::kError, what, advice}};
  if (std::fabs(offset) > kOffsetWarningS) return {{Severity::kWarning, what, advice}};
  return {{Severity::kOk, what}};
}

// None where all is well.
std::optional<Finding> judge_way_back(const WayBackFacts::Aggregator& one, bool in_rollover) {
  const std::string who = fmt::format("aggregator {} at {}", one.name, one.visit.address);
  if (one.visit.reached.ok()) {
    if (one.visit.peer == one.expected) return std::nullopt;
    return Finding{Severity::kError, fmt::format("{}: {} answers there", who, one.visit.peer),
                   fmt::format("its children would come to another node: correct `advertise` of {}, or the name and "
                               "the forwarded port that lead there",
                               one.name)};
  }
  const Error& error = one.visit.reached.error();
  const std::string what = fmt::format("{}: not reached from here: {}", who, error.message);
  if (error.code != Code::kUnavailable && error.code != Code::kDeadlineExceeded) {
    if (in_rollover && error.message.find("certificate") != std::string::npos) {
      return Finding{Severity::kWarning, what,
                     "a rollover is under way, and it may still show a certificate of the other authority: fluvial "
                     "authority show says who is waited for"};
    }
    return Finding{Severity::kError, what,
                   fmt::format("something else is at that address, or {} shows no certificate of this federation: "
                               "correct its `advertise`, and see fluvial doctor aggregator on its machine",
                               one.name)};
  }
  if (!one.connected) {
    return Finding{Severity::kWarning, what + "; nor is it connected to its parent",
                   "its process or its machine is down, or its network: fluvial doctor aggregator there"};
  }
  return Finding{Severity::kWarning, what,
                 "it runs, and its children come this way: the firewall before its `listen` port, and `advertise`; "
                 "where only this machine has no way there, try from a child's machine"};
}

}  // namespace

Findings judge(const std::vector<PortFacts>& ports, const ProcessFacts& process) {
  Findings findings;
  for (const PortFacts& port : ports) findings.push_back(judge_port(port, process));
  return findings;
}

Findings judge(const ParentFacts& facts, const ProcessFacts& process) {
  Findings findings;
  const auto take = [&findings](const std::string& who, const std::optional<VisitFacts>& visit) {
    if (!visit) return;
    findings.push_back(judge_visit(who, *visit));
    for (Finding& finding : judge_offset(who, *visit)) findings.push_back(std::move(finding));
  };
  take("coordinator", facts.coordinator);
  take("parent", facts.parent);
  if (facts.advertised) {
    Finding own = judge_visit("this node's advertised address", *facts.advertised);
    if (own.severity == Severity::kError) {
      own.severity = Severity::kWarning;  // a router may not lead a machine back to itself
      own.advice =
          "its children come this way: the firewall, and advertise; where only a router stands between (no way "
          "back to itself), try from a child's machine";
    }
    findings.push_back(std::move(own));
  }
  const bool is_let_in = facts.coordinator && facts.coordinator->reached.ok();
  if (is_let_in && process.answers && !process.connected) {
    findings.push_back({Severity::kWarning,
                        "the process has no parent, and a visit with the certificate in this folder is let in",
                        "the process runs with an older certificate: restart it"});
  }
  return findings;
}

Findings judge(const AdvertisedFacts& facts) {
  Findings findings;
  const auto take = [&](const char* what, const std::string& address, const Status& reached) {
    if (reached.ok())
      return findings.push_back({Severity::kOk, fmt::format("{} {}: reached from here", what, address)});
    findings.push_back({Severity::kWarning,
                        fmt::format("{} {}: not reached: {}", what, address, reached.error().message),
                        "members come this way: the firewall, and public_host; where only a router stands between (no "
                        "way back to itself), try from a member's machine"});
  };
  take("the members' port at", facts.members, facts.members_reached);
  take("the enrolment port at", facts.enrolment, facts.enrolment_reached);
  return findings;
}

Findings judge(const WayBackFacts& facts) {
  if (!facts.listed.ok()) {
    return {{Severity::kWarning,
             "the coordinator does not say which aggregators there are: " + facts.listed.error().message,
             "its log says more: docs/operations/troubleshooting.md"}};
  }
  Findings findings;
  std::size_t reached = 0;
  std::size_t untried = 0;
  for (const WayBackFacts::Aggregator& one : facts.aggregators) {
    if (!one.tried) {
      ++untried;
      continue;
    }
    auto finding = judge_way_back(one, facts.in_rollover);
    if (finding) {
      findings.push_back(std::move(*finding));
    } else {
      ++reached;
    }
  }
  if (reached > 0) {
    findings.insert(findings.begin(), {Severity::kOk, fmt::format("{} of {} aggregators answer at the addresses that "
                                                                  "their children have",
                                                                  reached, facts.aggregators.size())});
  }
  if (untried > 0) {
    findings.push_back({Severity::kWarning,
                        fmt::format("{} of {} aggregators were not tried: the others took too long", untried,
                                    facts.aggregators.size()),
                        "those above first; then ask again"});
  }
  return findings;
}

Findings judge(const EnrolmentFacts& facts) {
  if (facts.reached.ok()) {
    return {{Severity::kOk,
             fmt::format("enrolment port {}: reached, and it shows the authority of the token's pin", facts.address)}};
  }
  const std::string& why = facts.reached.error().message;
  return {{Severity::kError, fmt::format("enrolment port {}: {}", facts.address, why), advice_on(why)}};
}

}  // namespace fluvial::cli::doctor
