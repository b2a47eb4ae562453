#include "coordinator/logic/rollover.h"

#include <algorithm>
#include <map>

namespace fluvial::coordinator {
namespace {

constexpr std::size_t kNamesMax = 10;  // in a message

Error refuse(std::string why) { return {Code::kFailedPrecondition, std::move(why)}; }

std::string some_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < names.size() && i < kNamesMax; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > kNamesMax) text += " and " + std::to_string(names.size() - kNamesMax) + " more";
  return text;
}

}  // namespace

RolloverPhase rollover_phase(bool has_next, bool has_old) {
  if (has_next) return RolloverPhase::kBegun;
  return has_old ? RolloverPhase::kIssuing : RolloverPhase::kNone;
}

std::string_view phase_name(RolloverPhase phase) {
  switch (phase) {
    case RolloverPhase::kNone: return "none";
    case RolloverPhase::kBegun: return "begun";
    case RolloverPhase::kIssuing: return "issuing";
  }
  return "none";
}

std::vector<std::string> without_list(const std::vector<TrustingMember>& members, std::uint64_t number) {
  std::vector<std::string> names;
  for (const TrustingMember& member : members) {
    if (member.listed && member.trust != number) names.push_back(member.name);
  }
  std::ranges::sort(names);
  return names;
}

std::vector<std::string> relying_on_leaving(const std::vector<HeldCertificate>& certificates, WallTime now) {
  struct Held {
    std::string name;
    bool relies = false;
    bool has_shown_another = false;
  };
  std::map<NodeId, Held> members;
  for (const HeldCertificate& one : certificates) {
    if (one.refused || one.ends_at <= now) continue;
    Held& held = members[one.node];
    held.name = one.name;
    if (one.leaving) {
      held.relies = true;
    } else {
      held.has_shown_another |= one.used;
    }
  }
  std::vector<std::string> names;
  for (const auto& [node, held] : members) {
    if (held.relies && !held.has_shown_another) names.push_back(held.name);
  }
  std::ranges::sort(names);
  return names;
}

Status may_begin(RolloverPhase phase) {
  if (phase == RolloverPhase::kNone) return {};
  return refuse(phase == RolloverPhase::kBegun
                    ? "a rollover has begun: go on with fluvial authority rollover issue, or take it back with "
                      "fluvial authority rollover undo"
                    : "a rollover is not over: end it first, with fluvial authority rollover end");
}

Status may_undo(RolloverPhase phase) {
  if (phase == RolloverPhase::kBegun) return {};
  return refuse(phase == RolloverPhase::kNone
                    ? "no rollover has begun: there is nothing to take back"
                    : "the next authority issues already: members hold its certificates. End this rollover, then roll "
                      "over once more");
}

Status may_issue(RolloverPhase phase, const std::vector<std::string>& without, bool force) {
  if (phase == RolloverPhase::kNone) return refuse("no rollover has begun: fluvial authority rollover begin");
  if (phase == RolloverPhase::kIssuing) return refuse("the next authority issues already");
  if (without.empty() || force) return {};
  return refuse("not everybody trusts the next authority yet: " + some_of(without) +
                ". They learn of it with the renewal of their certificates, or when they are started again. Wait for "
                "them, remove those that are gone for good (fluvial nodes remove), or --force: then they renew on the "
                "enrolment port");
}

Status may_end(RolloverPhase phase, const std::vector<std::string>& relying, bool force) {
  if (phase == RolloverPhase::kNone) return refuse("no rollover has begun: fluvial authority rollover begin");
  if (phase == RolloverPhase::kBegun) {
    return refuse("the next authority issues nothing yet: fluvial authority rollover issue");
  }
  if (relying.empty() || force) return {};
  return refuse("certificates of the authority before are still in use: " + some_of(relying) +
                ". Wait until they are renewed or have ended, revoke those that are gone for good, or --force: then "
                "these members need a new token");
}

}  // namespace fluvial::coordinator
