#include "core/round/worker_config.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/base/format.h"
#include "core/base/printable.h"

namespace fluvial::round {
namespace {

using Kind = Schedule::Kind;

constexpr Kind kKinds[] = {Kind::kConstant, Kind::kLinear, Kind::kCosine, Kind::kDecay};
constexpr double kRoundsMax = 1e9;  // as of a plan
constexpr std::size_t kShownTextMax = 80;

Error wrong(std::string_view key, const std::string& value, std::string_view what) {
  return {Code::kInvalidArgument,
          format_text("worker.{} = {}: expected {}", printable(key, kShownTextMax), value, what)};
}

Error expected(std::string_view what) { return {Code::kInvalidArgument, format_text("expected {}", what)}; }

// visit(name, part) for each, in the order in which they are written.
template <typename S, typename Visit>
void visit_parts(S& schedule, Visit&& visit) {
  visit("schedule", schedule.named);
  visit("start", schedule.start);
  visit("end", schedule.end);
  visit("decay", schedule.decay);
  visit("every", schedule.every);
  visit("rounds", schedule.rounds);
  visit("warmup", schedule.warmup);
}

WorkerValue value_of(Kind kind) { return std::string(schedule_name(kind)); }
WorkerValue value_of(double number) { return number; }
WorkerValue value_of(std::uint64_t number) { return static_cast<double>(number); }

Status read(const WorkerValue& value, std::optional<Kind>& to) {
  const std::string* name = std::get_if<std::string>(&value);
  for (const Kind kind : kKinds) {
    if (name != nullptr && *name == schedule_name(kind)) return to = kind, Status();
  }
  return expected("constant, linear, cosine or decay");
}
Status read(const WorkerValue& value, std::optional<double>& to) {
  const double* number = std::get_if<double>(&value);
  if (number == nullptr) return expected("a number");
  return to = *number, Status();
}
Status read(const WorkerValue& value, std::optional<std::uint64_t>& to) {
  const double* number = std::get_if<double>(&value);
  const bool whole = number != nullptr && *number >= 0 && *number <= kRoundsMax && *number == std::floor(*number);
  if (!whole) return expected("a whole number from 0 to 1000000000");
  return to = static_cast<std::uint64_t>(*number), Status();
}

bool is_list_within(std::size_t items) { return items >= 1 && items <= kWorkerItemsMax; }

constexpr std::string_view kFinite = "a finite number";
constexpr std::string_view kText = "a text of at most 1024 characters, none of them a control character";
constexpr std::string_view kList = "a list of 1 to 256 numbers or texts";

bool is_text(const std::string& text) { return text.size() <= kWorkerTextBytesMax && is_printable(text); }

// What was expected instead; empty: nothing else.
std::string_view fault_of(double number) { return std::isfinite(number) ? "" : kFinite; }
std::string_view fault_of(bool) { return ""; }
std::string_view fault_of(const std::string& text) { return is_text(text) ? "" : kText; }
std::string_view fault_of(const std::vector<double>& numbers) {
  if (!is_list_within(numbers.size())) return kList;
  return std::ranges::all_of(numbers, [](double number) { return std::isfinite(number); }) ? "" : "finite numbers";
}
std::string_view fault_of(const std::vector<std::string>& texts) {
  if (!is_list_within(texts.size())) return kList;
  return std::ranges::all_of(texts, is_text) ? "" : kText;
}

std::size_t bytes_of(double) { return 8; }
std::size_t bytes_of(bool) { return 8; }
std::size_t bytes_of(const std::string& text) { return text.size(); }
template <typename Item>
std::size_t bytes_of(const std::vector<Item>& items) {
  std::size_t bytes = 0;
  for (const Item& item : items) bytes += bytes_of(item);
  return bytes;
}

Status check_key(const std::string& key, const std::string& value) {
  if (key.size() <= kWorkerKeyBytesMax) return {};
  return wrong(key, value, format_text("a name of at most {} characters", kWorkerKeyBytesMax));
}

Status check_count(std::size_t count) {
  if (count <= kWorkerKeysMax) return {};
  return Error{Code::kInvalidArgument, format_text("worker = (table): expected at most {} keys", kWorkerKeysMax)};
}

// ---- schedules ---------------------------------------------------------------------------------------------------

std::uint64_t warmup_of(const Schedule& schedule) { return schedule.warmup.value_or(0); }
std::uint64_t length_of(const Schedule& schedule, std::uint64_t rounds) { return schedule.rounds.value_or(rounds); }

// Of the way from start to end, 0 to 1: the first round after the warm-up begins it, the last of the schedule ends it.
double way_at(const Schedule& schedule, std::uint64_t round, std::uint64_t rounds) {
  const std::uint64_t first = std::max<std::uint64_t>(warmup_of(schedule), 1);
  const std::uint64_t last = length_of(schedule, rounds);
  if (last <= first) return 0;
  return std::min(1.0, static_cast<double>(round - first) / static_cast<double>(last - first));
}

double decayed(const Schedule& schedule, std::uint64_t round) {
  const std::uint64_t first = std::max<std::uint64_t>(warmup_of(schedule), 1);
  const double start = *schedule.start;
  const std::uint64_t times = (round - first) / std::max<std::uint64_t>(schedule.every.value_or(1), 1);
  const double value = start * std::pow(*schedule.decay, static_cast<double>(times));
  if (!schedule.end) return value;
  return std::clamp(value, std::min(start, *schedule.end), std::max(start, *schedule.end));
}

class Checker {
 public:
  Checker(const std::string& name, const Schedule& schedule, std::uint64_t rounds)
      : name_(name), schedule_(schedule), rounds_(rounds) {}

  Status check() const {
    const Kind kind = schedule_.kind();
    if (!schedule_.start) return beside("start, as in {start = 0.1, decay = 0.99}");
    FLUVIAL_TRY(check_numbers());
    if (kind == Kind::kDecay && !schedule_.decay) return beside("decay, as in {start = 0.1, decay = 0.99}");
    const bool has_way = kind == Kind::kLinear || kind == Kind::kCosine;
    if (schedule_.decay && kind != Kind::kDecay) return part("decay", *schedule_.decay, "none" + for_kind(kind));
    if (schedule_.every && kind != Kind::kDecay) return part("every", *schedule_.every, "none" + for_kind(kind));
    if (schedule_.rounds && !has_way) return part("rounds", *schedule_.rounds, "none" + for_kind(kind));
    if (schedule_.end && kind == Kind::kConstant) return part("end", *schedule_.end, "none" + for_kind(kind));
    if (has_way && warmup_of(schedule_) >= length_of(schedule_, rounds_) && warmup_of(schedule_) > 0) {
      return part("warmup", *schedule_.warmup,
                  format_text("less than the {} rounds of the schedule", length_of(schedule_, rounds_)));
    }
    // Each is monotonic after the warm-up.
    if (std::isfinite(value_at(schedule_, std::max(rounds_, warmup_of(schedule_)), rounds_))) return {};
    return part("decay", schedule_.decay.value_or(1), "values that stay finite");
  }

 private:
  template <typename Number>
  Error part(std::string_view which, Number value, std::string_view what) const {
    return wrong(name_ + "." + std::string(which), text_of(value), what);
  }
  // Something is missing: named at a part that is there, so that a file's line can be found.
  Error beside(std::string_view what) const {
    const auto parts = parts_of(schedule_);
    if (parts.empty()) return wrong(name_, "{}", what);
    return wrong(name_ + "." + std::string(parts.front().first), shown(parts.front().second),
                 format_text("beside it {}", what));
  }
  static std::string for_kind(Kind kind) { return format_text(" for schedule = \"{}\"", schedule_name(kind)); }

  Status check_numbers() const {
    if (!std::isfinite(*schedule_.start)) return part("start", *schedule_.start, kFinite);
    if (schedule_.end && !std::isfinite(*schedule_.end)) return part("end", *schedule_.end, kFinite);
    if (schedule_.decay && !(*schedule_.decay > 0 && *schedule_.decay <= 1e6)) {
      return part("decay", *schedule_.decay, "above 0, at most 1000000");
    }
    for (const auto& [which, count] : {std::pair{"every", schedule_.every}, std::pair{"rounds", schedule_.rounds}}) {
      if (count && (*count == 0 || static_cast<double>(*count) > kRoundsMax)) {
        return part(which, *count, "1 to 1000000000");
      }
    }
    if (warmup_of(schedule_) > static_cast<std::uint64_t>(kRoundsMax)) {
      return part("warmup", warmup_of(schedule_), "0 to 1000000000");
    }
    return {};
  }

  const std::string& name_;
  const Schedule& schedule_;
  std::uint64_t rounds_;
};

}  // namespace

std::string_view schedule_name(Kind kind) {
  switch (kind) {
    case Kind::kConstant: return "constant";
    case Kind::kLinear: return "linear";
    case Kind::kCosine: return "cosine";
    case Kind::kDecay: return "decay";
  }
  return "unknown";
}

Kind Schedule::kind() const {
  if (named) return *named;
  if (decay) return Kind::kDecay;
  return end ? Kind::kLinear : Kind::kConstant;
}

double value_at(const Schedule& schedule, std::uint64_t round, std::uint64_t rounds) {
  round = std::max<std::uint64_t>(round, 1);
  const double start = *schedule.start, end = schedule.end.value_or(0);
  const std::uint64_t warmup = warmup_of(schedule);
  if (round < warmup) return start * (static_cast<double>(round) / static_cast<double>(warmup));
  switch (schedule.kind()) {
    case Kind::kConstant: return start;
    case Kind::kLinear: return std::lerp(start, end, way_at(schedule, round, rounds));
    case Kind::kCosine:
      return std::lerp(end, start, (1 + std::cos(std::numbers::pi * way_at(schedule, round, rounds))) / 2);
    case Kind::kDecay: return decayed(schedule, round);
  }
  return start;
}

std::vector<std::pair<std::string_view, WorkerValue>> parts_of(const Schedule& schedule) {
  std::vector<std::pair<std::string_view, WorkerValue>> parts;
  visit_parts(schedule, [&](std::string_view name, const auto& part) {
    if (part) parts.emplace_back(name, value_of(*part));
  });
  return parts;
}

Status set_part(Schedule& schedule, std::string_view part, const WorkerValue& value) {
  Status status = Error{Code::kNotFound, "a schedule has schedule, start, end, decay, every, rounds and warmup"};
  visit_parts(schedule, [&](std::string_view name, auto& field) {
    if (name == part) status = read(value, field);
  });
  return status;
}

const std::vector<std::string>& schedule_parts() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> all;
    const Schedule none;
    visit_parts(none, [&](std::string_view name, const auto&) { all.emplace_back(name); });
    return all;
  }();
  return names;
}

WorkerConfig config_of(const WorkerTable& table, RoundId round, std::uint64_t rounds) {
  WorkerConfig config = table.values;
  for (const auto& [name, schedule] : table.schedules) config[name] = value_at(schedule, round.value(), rounds);
  return config;
}

std::string shown(const WorkerValue& value) {
  if (const double* number = std::get_if<double>(&value)) return text_of(*number);
  if (const bool* truth = std::get_if<bool>(&value)) return text_of(*truth);
  if (const std::string* text = std::get_if<std::string>(&value)) return "'" + printable(*text, kShownTextMax) + "'";
  return "(list)";
}

Status check_worker_config(const WorkerConfig& config) {
  FLUVIAL_TRY(check_count(config.size()));
  std::size_t bytes = 0;
  for (const auto& [key, value] : config) {
    FLUVIAL_TRY(check_key(key, shown(value)));
    const std::string_view fault = std::visit([](const auto& held) { return fault_of(held); }, value);
    if (!fault.empty()) return wrong(key, shown(value), fault);
    bytes += key.size() + std::visit([](const auto& held) { return bytes_of(held); }, value);
  }
  if (bytes <= kWorkerBytesMax) return {};
  return Error{Code::kInvalidArgument,
               format_text("worker = (table): expected at most {} bytes, not {}", kWorkerBytesMax, bytes)};
}

Status check_worker_table(const WorkerTable& table) {
  FLUVIAL_TRY(check_worker_config(table.values));
  FLUVIAL_TRY(check_count(table.values.size() + table.schedules.size()));
  for (const auto& [key, schedule] : table.schedules) {
    FLUVIAL_TRY(check_key(key, "(schedule)"));
    if (table.values.contains(key)) return wrong(key, shown(table.values.at(key)), "either a value or a schedule");
  }
  return {};
}

Status check_schedules(const WorkerTable& table, std::uint64_t rounds) {
  for (const auto& [key, schedule] : table.schedules) FLUVIAL_TRY(Checker(key, schedule, rounds).check());
  return {};
}

}  // namespace fluvial::round
