#include "coordinator/logic/problems.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/base/clock_limits.h"
#include "core/base/format.h"
#include "core/round/contribution.h"

namespace fluvial::coordinator {
namespace {

using std::chrono::duration_cast;

// The section of an alert's name, as the documentation's anchors have it.
std::string runbook(const char* section) { return std::string("runbook.md#") + section; }

std::string days_left(WallTime end, WallTime now) {
  if (end <= now) return "has ended";
  const auto hours = duration_cast<std::chrono::hours>(end - now).count();
  return hours < 48 ? "ends in " + std::to_string(hours) + " h" : "ends in " + std::to_string(hours / 24) + " days";
}

constexpr std::uint32_t kMissedOften = 5;  // rounds running

std::string one_decimal(double value) {
  const auto tenths = static_cast<std::int64_t>(value * 10 + 0.5);
  return std::to_string(tenths / 10) + "." + std::to_string(tenths % 10);
}

class Finder {
 public:
  explicit Finder(const Situation& facts) : facts_(facts) {}

  std::vector<Problem> find() {
    disk();
    authority();
    run();
    nobody();
    for (const MemberFacts& member : facts_.members) of(member);
    staging();
    const auto mild = [](const Problem& one) { return one.severity != Severity::kError; };
    std::vector<Problem> worst_first;
    std::ranges::remove_copy_if(found_, std::back_inserter(worst_first), mild);
    std::ranges::copy_if(found_, std::back_inserter(worst_first), mild);
    return worst_first;
  }

 private:
  void add(Severity severity, std::string what, std::string advice, std::string page, std::string node = "",
           std::optional<WallTime> since = std::nullopt) {
    found_.push_back({severity, std::move(what), std::move(node), since, std::move(advice), std::move(page)});
  }

  void disk() {
    if (facts_.storage_fault.empty()) return;
    add(Severity::kError, "the disk fails: " + facts_.storage_fault,
        "free or repair it; nothing is promised until it works. Then resume the run, or restart the coordinator where "
        "it says so",
        runbook("fluvialstoragefault"));
  }

  void run() {
    if (!facts_.run) return;
    const RunFacts& run = *facts_.run;
    const std::string name = "run " + std::to_string(run.run.value());
    if (run.paused && !run.by_person) {
      add(Severity::kError, name + " paused itself: " + run.reason, "remove the cause, then `fluvial run resume`",
          runbook("fluvialrunpauseditself"));
    }
    if (!run.paused && !run.waits.empty()) {
      add(Severity::kError, name + " opens no round: " + run.waits,
          "bring sites back (they are listed under what it waits for), or start a run that needs fewer",
          runbook("fluvialrunwaitsforsites"));
    }
    if (run.round != RoundId(0) && run.in + run.may_come < run.quorum) {
      add(Severity::kWarning,
          name + ": round " + std::to_string(run.round.value()) + " cannot have its quorum: " + std::to_string(run.in) +
              " in, " + std::to_string(run.may_come) + " may come, " + std::to_string(run.quorum) + " needed",
          "bring back those it waits for; the run pauses when its attempts are used up",
          runbook("fluvialquorumatrisk"));
    } else if (run.attempt > 1) {
      add(Severity::kWarning,
          name + ": round " + std::to_string(run.round.value()) + " is in its attempt " + std::to_string(run.attempt),
          "look at those it waits for; the run pauses when its attempts are used up", runbook("fluvialroundstuck"));
    }
  }

  void nobody() {
    const bool any_site = std::ranges::any_of(facts_.members, [](const auto& one) { return one.role == Role::kSite; });
    if (!any_site) {
      add(Severity::kWarning, "no site is enrolled", "`fluvial token create --role site --name NAME` invites one",
          "enrol.md");
      return;
    }
    const bool any_here =
        std::ranges::any_of(facts_.members, [](const auto& one) { return one.role == Role::kSite && one.stay.here; });
    if (any_here) return;
    add(Severity::kError, "no site is connected", "is the members' port reachable? `fluvial doctor` here, then there",
        runbook("fluvialsiteaway"));
  }

  void of(const MemberFacts& member) {
    if (!member.ahead.empty()) {
      add(Severity::kError, member.name + " is refused: " + member.ahead,
          "the coordinator's folder is an older copy: start the newer one, or go through the restore",
          "backup.md#an-older-copy", member.name);
    }
    if (!member.quarantine.empty()) {
      add(Severity::kWarning, member.name + " is in quarantine: " + member.quarantine,
          "it takes part in no round. Find out why, then `fluvial nodes clear " + member.name + "`",
          runbook("fluvialsitequarantined"), member.name, member.quarantined_at);
    }
    held_twice(member);
    member_away(member);
    if (!member.past.empty()) {
      add(Severity::kWarning, member.name + " goes past " + member.past + ", which " + member.past_reason,
          "its updates cross the long way alone. Look after " + member.past, runbook("fluvialregionpastaggregator"),
          member.name);
    }
    if (facts_.run && member.stay.here && member.workers == 0) {
      add(Severity::kWarning, member.name + " has no worker attached", "start the training script there",
          runbook("fluvialsiteswithoutworkers"), member.name);
    }
    if (facts_.run && member.silent) {
      add(Severity::kWarning, member.name + " is connected and silent: rounds ask it and do not wait for it",
          "look at the log of its agent, and at what its workers do; rounds wait for it again once it is heard of",
          "plan.md#how-the-keys-act-together", member.name);
    }
    if (facts_.run && member.uncounted) {
      add(Severity::kWarning, member.name + member.uncounted->what, member.uncounted->advice, "plan.md#late",
          member.name);
    }
    if (facts_.run && member.too_heavy) {
      add(Severity::kWarning,
          member.name + " takes no part: the run has late = next, and its maximum weight is not below 2^20",
          "invite it anew with a smaller one: `fluvial token create --role site --name " + member.name +
              " --weight-max N`, then `fluvial enroll` there",
          "plan.md#late", member.name);
    }
    if (member.straggler_score) {
      add(Severity::kWarning,
          member.name + " takes " + one_decimal(*member.straggler_score) + " times as long as the median site",
          "`fluvial rounds trace` says whether it trains or sends for so long", runbook("fluvialpersistentstraggler"),
          member.name);
    }
    certificate(member);
    clock(member);
  }

  void held_twice(const MemberFacts& member) {
    if (!member.held_twice) return;
    add(Severity::kError, "two machines show the identity of " + member.name,
        "stop the one that should not have it. If you know of none, its key is stolen: `fluvial nodes revoke " +
            member.name + "`, then enrol it anew with a new key",
        "enrol.md#two-machines-with-one-identity", member.name);
  }

  void member_away(const MemberFacts& member) {
    if (!member.is_away() || !member.ahead.empty()) return;
    const bool is_site = member.role == Role::kSite;
    add(Severity::kWarning,
        member.name + (member.stay.came ? " is away since " : " has not come since the coordinator started at ") +
            clock_time(member.stay.since, facts_.now),
        is_site ? "start its agent or its network again; if it will not come back: `fluvial nodes remove " +
                      member.name + "`"
                : "start it again with its folder; its children go another way meanwhile",
        runbook(is_site ? "fluvialsiteaway" : "fluvialaggregatordown"), member.name, member.stay.since);
  }

  void authority() {
    if (!facts_.authority_began || !facts_.authority_ends) return;
    const std::chrono::milliseconds life = *facts_.authority_ends - *facts_.authority_began;
    const std::chrono::milliseconds left = *facts_.authority_ends - facts_.now;
    if (left > std::min(kAuthorityWarning, life / kCertificateWarningPart)) return;
    const bool soon = left <= std::min(kAuthorityError, life / kCertificateErrorPart);
    add(soon ? Severity::kError : Severity::kWarning,
        "the certificate authority " + days_left(*facts_.authority_ends, facts_.now) +
            ": no certificate outlasts it, and then nobody connects",
        "have the next certificate of an authority of your own PKI signed, and start the coordinator with it; or roll "
        "over: `fluvial authority rollover begin`",
        "authorities.md");
  }

  void certificate(const MemberFacts& member) {
    if (!member.certificate_ends) return;
    const Duration left = *member.certificate_ends - facts_.now;
    // One that lives longer than those that are issued now is from before them.
    const bool is_older = left > facts_.certificate_validity;
    const auto bound = [&](Duration at_most, int part) {
      return is_older ? at_most : std::min(at_most, facts_.certificate_validity / part);
    };
    if (left > bound(kCertificateWarning, kCertificateWarningPart)) return;
    const bool soon = left <= bound(kCertificateError, kCertificateErrorPart);
    add(soon ? Severity::kError : Severity::kWarning,
        "the certificate of " + member.name + " " + days_left(*member.certificate_ends, facts_.now),
        "it should have been renewed by now: see why in its log (\"certificate was not renewed\"); a member of a "
        "version "
        "up to 0.2 does not renew: update it, or enrol it again with a new token",
        runbook("fluvialcertificateexpiring"), member.name);
  }

  void clock(const MemberFacts& member) {
    if (!member.wall_offset || std::chrono::abs(*member.wall_offset) <= kWallClocksApart) return;
    const auto seconds = duration_cast<std::chrono::seconds>(std::chrono::abs(*member.wall_offset)).count();
    add(Severity::kWarning,
        "the clock of " + member.name + " is " + std::to_string(seconds) + " s " +
            (*member.wall_offset > Duration(0) ? "ahead" : "behind"),
        "let it follow a time server: certificates read clocks, and logs are compared by them",
        runbook("fluvialclocksapart"), member.name);
  }

  void staging() {
    const auto used = static_cast<double>(facts_.staging_bytes);
    if (facts_.staging_bytes_max == 0 || used < kStagingWarning * static_cast<double>(facts_.staging_bytes_max)) return;
    add(Severity::kWarning,
        "staging is near its budget: " + amount(facts_.staging_bytes, facts_.staging_bytes_max) +
            " of updates that wait",
        "rounds are right, and slower, as updates go to the disk. Raise staging_bytes_max",
        runbook("fluvialstagingnearbudget"));
  }

  const Situation& facts_;
  std::vector<Problem> found_;
};

}  // namespace

std::optional<Uncounted> uncounted(const round::Plan& plan, std::uint32_t missed) {
  const bool is_next = late_is_next(plan);
  if (round::is_async(plan) || missed < (is_next ? 2 * plan.staleness_max + 3 : kMissedOften)) return std::nullopt;
  std::string what = " works, and was in none of the last " + std::to_string(missed) + " rounds";
  if (!is_next) {
    return Uncounted{
        what + ": what it makes is late each time, and waits in its residual",
        "give the run late = \"next\", with the staleness_max that its training and upload take in rounds; "
        "or longer deadlines.soft_ms without deadlines.adaptive, fewer local steps, or a smaller codec"};
  }
  return Uncounted{what + ": its training and upload take more than staleness_max = " +
                       std::to_string(plan.staleness_max) + " of them",
                   "raise staleness_max (16 at most) or deadlines.soft_ms, or have it send less: a smaller codec"};
}

std::vector<Problem> problems(const Situation& facts) { return Finder(facts).find(); }

std::optional<std::string> heavy_sites_note(const round::Plan& plan, const std::map<NodeId, NodeEntry>& nodes) {
  constexpr std::size_t kNamed = 5;
  std::string names;
  std::size_t count = 0;
  for (const auto& [id, node] : nodes) {
    const bool is_member = node.role == Role::kSite && !node.revoked_at && !node.removed_at;
    if (!is_member || node.weight_max < round::kStaleWeightLimit || ++count > kNamed) continue;
    names += format_text("{}{} (weight_max {})", names.empty() ? "" : ", ", node.name, node.weight_max);
  }
  if (!round::late_is_next(plan) || count == 0) return std::nullopt;
  if (count > kNamed) names += format_text(" and {} more", count - kNamed);
  return format_text(
      "late = next and mode = async take no site whose token allows {} samples or more, and leave out {}: enrol it "
      "anew "
      "with a token of a smaller --weight-max, and give samples=n/1000 at all sites",
      round::kStaleWeightLimit, names);
}

}  // namespace fluvial::coordinator
