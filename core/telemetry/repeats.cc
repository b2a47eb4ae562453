#include "core/telemetry/repeats.h"

#include <algorithm>
#include <type_traits>
#include <utility>

namespace fluvial::telemetry {
namespace {

constexpr std::string_view kOthers = "others";
constexpr char kSeparator = '\0';

constexpr std::array<std::string_view, 5> kSubjectFields = {"member", "site", "site_id", "parent", "worker"};

std::string text_of(const Field& field) {
  return std::visit(
      [](const auto& value) {
        if constexpr (std::is_same_v<std::decay_t<decltype(value)>, std::string>) {
          return value;
        } else {
          return std::to_string(value);
        }
      },
      field.value);
}

std::string cause_of(const Record& record) {
  std::string cause = record.message;
  for (const Field& field : record.fields) {
    if (std::ranges::find(kCauseFields, field.key) == kCauseFields.end()) continue;
    cause += kSeparator + field.key + '=' + text_of(field);
  }
  return cause;
}

bool comes_and_goes(const Record& record) {
  return std::ranges::find(kComingAndGoing, record.message) != kComingAndGoing.end();
}

std::string subject_of(const Record& record) {
  for (const Field& field : record.fields) {
    if (std::ranges::find(kSubjectFields, field.key) != kSubjectFields.end()) return text_of(field);
  }
  return "";
}

}  // namespace

bool Repeats::admit(const Record& record, TimePoint now) {
  const bool is_lesser = record.level < Level::kWarn;
  if (is_lesser && !comes_and_goes(record)) return true;
  std::string name = cause_of(record);
  std::string subject = is_lesser ? "" : subject_of(record);
  if (!causes_.contains(name) && is_lesser) {
    if (lesser_ >= limits_.causes_max) return true;
    ++lesser_;
  } else if (!causes_.contains(name)) {
    const auto of_subject = causes_of_.find(subject);
    if (!subject.empty() && of_subject != causes_of_.end() && of_subject->second >= limits_.causes_of_one_max) {
      name = std::string(kOthers) + kSeparator + subject;
    }
    if (causes_.size() - lesser_ >= limits_.causes_max && !causes_.contains(name)) name = kOthers;
  }
  if (causes_.empty()) oldest_ = now;
  const auto [found, is_new] =
      causes_.try_emplace(std::move(name), Cause{.subject = subject, .is_lesser = is_lesser, .since = now, .last = {}});
  if (is_new && !subject.empty()) ++causes_of_[std::move(subject)];
  Cause& cause = found->second;
  if (cause.written < limits_.burst) {
    ++cause.written;
    return true;
  }
  ++cause.held_back;
  cause.last = record;
  return false;
}

std::vector<Record> Repeats::due(TimePoint now) {
  if (causes_.empty() || now - oldest_ < limits_.window) return {};
  return take(false, now);
}

std::vector<Record> Repeats::rest() { return take(true, {}); }

std::vector<Record> Repeats::take(bool all, TimePoint now) {
  std::vector<Record> records;
  oldest_ = now;
  for (auto entry = causes_.begin(); entry != causes_.end();) {
    Cause& cause = entry->second;
    if (!all && now - cause.since < limits_.window) {
      oldest_ = std::min(oldest_, cause.since);
      ++entry;
      continue;
    }
    if (cause.held_back > 0) {
      cause.last.fields.emplace_back("more", cause.held_back);
      records.push_back(std::move(cause.last));
    }
    if (const auto of = causes_of_.find(cause.subject); of != causes_of_.end() && --of->second == 0)
      causes_of_.erase(of);
    if (cause.is_lesser) --lesser_;
    entry = causes_.erase(entry);
  }
  return records;
}

}  // namespace fluvial::telemetry
