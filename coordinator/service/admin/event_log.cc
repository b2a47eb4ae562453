#include "coordinator/service/admin/event_log.h"

#include <algorithm>
#include <charconv>
#include <utility>

namespace fluvial::coordinator::admin {
namespace {

std::optional<std::uint64_t> number_in(std::string_view text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return number;
}

}  // namespace

void EventLog::happened(std::string name, std::string json) {
  const std::uint64_t number = ++last_;
  history_bytes_ += json.size();
  events_.emplace(number, LoggedEvent{number, std::move(name), std::move(json)});
  history_.push_back(number);
  drop_oldest();
}

void EventLog::drop_oldest() {
  while (history_.size() > 1 && (history_.size() > limits_.events_max || history_bytes_ > limits_.bytes_max)) {
    dropped_ = history_.front();
    history_bytes_ -= events_.at(dropped_).json.size();
    events_.erase(dropped_);
    history_.pop_front();
  }
}

bool EventLog::stands(std::string name, const std::string& subject, std::string json) {
  const auto [at, is_new] = standing_.try_emplace(subject, 0);
  if (!is_new) {
    if (events_.at(at->second).json == json) return false;
    events_.erase(at->second);
  }
  at->second = ++last_;
  events_.emplace(last_, LoggedEvent{last_, std::move(name), std::move(json)});
  return true;
}

void EventLog::forget(const std::string& subject) {
  const auto found = standing_.find(subject);
  if (found == standing_.end()) return;
  events_.erase(found->second);
  standing_.erase(found);
}

std::vector<std::string> EventLog::subjects() const {
  std::vector<std::string> subjects;
  for (const auto& [subject, number] : standing_) subjects.push_back(subject);
  return subjects;
}

std::string EventLog::id_of(std::uint64_t number) const {
  return std::to_string(epoch_.value()) + "-" + std::to_string(number);
}

std::optional<std::uint64_t> EventLog::number_of(std::string_view id) const {
  const std::size_t dash = id.find('-');
  if (dash == std::string_view::npos || number_in(id.substr(0, dash)) != epoch_.value()) return std::nullopt;
  const std::optional<std::uint64_t> number = number_in(id.substr(dash + 1));
  if (!number || !is_complete_after(*number)) return std::nullopt;
  return number;
}

std::vector<LoggedEvent> EventLog::after(std::uint64_t number, std::size_t most) const {
  std::vector<LoggedEvent> found;
  for (auto at = events_.upper_bound(number); at != events_.end() && found.size() < most; ++at) {
    found.push_back(at->second);
  }
  return found;
}

std::vector<LoggedEvent> EventLog::recent(std::size_t most) const {
  std::vector<LoggedEvent> found;
  const std::size_t begin = history_.size() - std::min(history_.size(), most);
  for (std::size_t i = begin; i < history_.size(); ++i) found.push_back(events_.at(history_[i]));
  return found;
}

std::vector<LoggedEvent> EventLog::standing(std::string_view name) const {
  std::vector<LoggedEvent> found;
  for (const auto& [subject, number] : standing_) {
    if (events_.at(number).name == name) found.push_back(events_.at(number));
  }
  return found;
}

}  // namespace fluvial::coordinator::admin
