#include "coordinator/logic/absence.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "core/round/pass.h"

namespace fluvial::coordinator {
namespace {

constexpr std::size_t kReasonBytes = 160;
constexpr Duration kSilence = std::chrono::seconds(30);  // a node reports what it does each second, or when it changes

std::string two_digits(std::int64_t value) { return (value < 10 ? "0" : "") + std::to_string(value); }

std::string cut(const std::string& text, std::size_t bytes_max) {
  if (text.size() <= bytes_max) return text;
  std::size_t end = bytes_max - 2;
  while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not within a character
  return text.substr(0, end) + "..";
}

std::string seconds_left(const Activity& activity) {
  if (!activity.left_s) return "";
  const auto seconds = static_cast<std::int64_t>(*activity.left_s + 0.5);
  if (seconds < 60) return ", " + std::to_string(seconds) + " s left";
  return ", " + std::to_string((seconds + 59) / 60) + " min left";
}

std::string progress_of(const Activity& activity) {
  if (activity.total_bytes == 0) return "";
  return " " + amount(activity.done_bytes, activity.total_bytes) + seconds_left(activity);
}

// What the node does, as the end of "it is ...".
std::string words_of(const Activity& activity, WallTime now) {
  const std::string since = " since " + clock_time(activity.since, now);
  switch (activity.doing) {
    case Doing::kFetching:
      return "fetching the model" + (activity.total_bytes == 0 ? since : ":" + progress_of(activity));
    case Doing::kTraining: return "training" + since + (activity.note.empty() ? "" : ", " + activity.note);
    case Doing::kEncoding: return "encoding its update" + since + (activity.note.empty() ? "" : ", " + activity.note);
    case Doing::kFolding: return "keeping a late update for the next round" + since;
    case Doing::kResolving: return "writing what became of its last update" + since;
    case Doing::kSending: return "sending" + (activity.total_bytes == 0 ? since : progress_of(activity));
    case Doing::kMerging: return "adding up what came" + since;
    case Doing::kWaiting: return "done since " + clock_time(activity.since, now);
    case Doing::kIdle: return "idle" + since;
    case Doing::kUnknown: return "busy" + since;
  }
  return "";
}

std::string start_it(const std::string& what) {
  return "start " + what + " or its network again; `fluvial doctor` there says what is wrong";
}

Absence not_here(const SiteKnown& site, WallTime now) {
  Absence out{AbsenceState::kAway, "", start_it("its agent"), site.stay.since, {}};
  const std::string since = clock_time(site.stay.since, now);
  out.reason =
      site.stay.came ? "not connected since " + since : "not connected since the coordinator started (" + since + ")";
  if (site.parent_stay && !site.parent_stay->here) {
    out.reason += "; nor is its aggregator " + site.parent;
    out.advice = start_it(site.parent);
  }
  return out;
}

// It is done, or has nothing to do, and yet not in the root's sum: its aggregator has it, or nobody.
Absence done_below(const SiteKnown& site, WallTime now) {
  Absence out;
  if (site.parent.empty()) {
    out.reason = "connected, but does nothing for this round";
    if (!site.activity->note.empty()) out.reason += ": " + site.activity->note;
    out.since = site.activity->since;
  } else if (site.parent_activity) {
    out.activity = site.parent_activity;
    out.reason = "with " + site.parent + ", which is " + words_of(*site.parent_activity, now);
    out.since = site.parent_activity->since;
  } else {
    out.reason = "with its aggregator " + site.parent;
  }
  if (site.overdue) out.advice = "look at the log of " + (site.parent.empty() ? "its agent" : site.parent);
  return out;
}

Absence by_report(const SiteKnown& site, WallTime now) {
  const Activity& activity = *site.activity;
  Absence out{AbsenceState::kAwaited, "", "", activity.since, activity};
  const bool moves_bytes = activity.doing == Doing::kFetching || activity.doing == Doing::kSending;
  if (moves_bytes && activity.heard_ago > kSilence) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(activity.heard_ago).count();
    out.reason = "silent for " + std::to_string(seconds) + " s; it was " + words_of(activity, now);
    out.advice = "look at its network and at the log of its agent";
    return out;
  }
  const bool is_idle = activity.doing == Doing::kIdle || activity.doing == Doing::kWaiting;
  if (activity.workers == 0 && (is_idle || activity.doing == Doing::kTraining)) {
    out.reason = "no worker attached";
    out.advice = "start the training script there";
    return out;
  }
  if (is_idle) return done_below(site, now);
  out.reason = words_of(activity, now);
  if (site.overdue && activity.doing == Doing::kTraining) {
    out.advice = "it is slower than the round's soft deadline: raise deadlines.soft_ms, or lower its local steps";
  }
  return out;
}

Absence unheard(const SiteKnown& site) {
  Absence out;
  out.since = site.stay.since;
  out.reason = "connected, and nothing of this round has come from it";
  if (!site.parent.empty()) out.reason += " or through " + site.parent;
  if (site.overdue) out.advice = "has it a worker? Look at the log of its agent";
  return out;
}

Absence asked(const SiteKnown& site) {
  Absence out{AbsenceState::kAsked, "", "", site.stay.since, site.activity};
  if (site.expected == round::Expected::kNoWorker) {
    out.reason = "no worker attached";
    out.advice = "start the training script there";
  } else {
    out.reason =
        "connected, and nothing has come from it for " + std::to_string(round::kSilentFrom) + " rounds or more";
    out.advice = "look at the log of its agent, and at what its workers do";
  }
  out.reason += "; rounds ask it and do not wait for it";
  return out;
}

// As edge/logic/owner_policy begins what an owner's rule says.
constexpr std::string_view kOwnersRule = "the site's owner allows ";

std::string about_decline(const std::string& reason) {
  if (!reason.starts_with(kOwnersRule)) return "look at the log of its agent";
  return "its owner's rules forbid it: the settings policy.* of its edge.toml, which its owner alone can change; or "
         "run "
         "without this site";
}

}  // namespace

std::string_view absence_state_name(AbsenceState state) {
  static constexpr std::array<std::string_view, 7> kNames = {"in",   "awaited", "refused", "declined",
                                                             "away", "missed",  "asked"};
  return kNames[static_cast<std::size_t>(state)];
}

Absence why(const SiteKnown& site, WallTime now) {
  if (site.place == Place::kIn) return {AbsenceState::kIn, "", "", {}, {}};
  if (site.revoked) return {AbsenceState::kRefused, "revoked", "a new token for its name lets it back in", {}, {}};
  if (!site.quarantine.empty()) {
    return {AbsenceState::kRefused,
            "in quarantine: " + site.quarantine,
            "find out why, then `fluvial nodes clear` it",
            {},
            {}};
  }
  if (!site.ahead.empty()) {
    return {AbsenceState::kRefused,
            "refused: " + site.ahead,
            "the coordinator's folder is an older copy: see backup.md",
            {},
            {}};
  }
  if (site.place == Place::kRefused) {
    const std::string text = site.refusal ? site.refusal->message : "";
    if (site.declined) return {AbsenceState::kDeclined, "declined: " + text, about_decline(text), {}, {}};
    return {AbsenceState::kRefused, "refused: " + text, "look at its training, then at its memory and disk", {}, {}};
  }
  if (site.place == Place::kMissedPass) {
    return {AbsenceState::kMissed, "missed " + round::pass_name(site.missed_pass) + " of the attempt", "", {}, {}};
  }
  if (!site.stay.here) return not_here(site, now);
  if (site.place == Place::kMissing && site.expected != round::Expected::kYes) return asked(site);
  if (site.place == Place::kMissing) {
    Absence out = site.activity ? by_report(site, now) : Absence{};
    const std::string closed = (site.parent.empty() ? "its aggregator" : site.parent) + " closed without it";
    out.reason = out.reason.empty() ? closed : closed + "; " + out.reason;
    return out;
  }
  return site.activity ? by_report(site, now) : unheard(site);
}

std::string clock_time(WallTime then, WallTime now) {
  using namespace std::chrono;
  const auto day = floor<days>(then);
  const hh_mm_ss time(floor<seconds>(then) - day);
  std::string text = two_digits(time.hours().count()) + ":" + two_digits(time.minutes().count()) + " UTC";
  if (now - then < hours(20)) return text;
  const year_month_day date(day);
  return std::to_string(static_cast<int>(date.year())) + "-" + two_digits(static_cast<unsigned>(date.month())) + "-" +
         two_digits(static_cast<unsigned>(date.day())) + " " + text;
}

std::string amount(std::uint64_t done_bytes, std::uint64_t total_bytes) {
  static constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  std::size_t unit = 0;
  std::uint64_t size = 1;
  while (unit + 1 < kUnits.size() && total_bytes / size >= 1024) {
    size *= 1024;
    ++unit;
  }
  const auto figure = [size](std::uint64_t bytes) {
    const std::uint64_t whole = bytes / size;
    if (size == 1 || whole >= 10) return std::to_string(whole);
    return std::to_string(whole) + "." + std::to_string(bytes % size * 10 / size);
  };
  return figure(std::min(done_bytes, total_bytes)) + " of " + figure(total_bytes) + " " + kUnits[unit];
}

std::string listed(const std::vector<std::pair<std::string, std::string>>& reasons, std::size_t names_max) {
  std::string text;
  for (std::size_t i = 0; i < std::min(reasons.size(), names_max); ++i) {
    if (i > 0) text += "; ";
    text += reasons[i].first + ": " + cut(reasons[i].second, kReasonBytes);
  }
  if (reasons.size() > names_max) text += "; and " + std::to_string(reasons.size() - names_max) + " more";
  return text;
}

}  // namespace fluvial::coordinator
