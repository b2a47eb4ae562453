// What happened lately, and how things stand, under numbers that only grow: whoever watched before may go on where they
// were. Pure, and bounded: what happened is kept for a while; of what stands there is the last alone, a text a subject.
//
// Ids are "EPOCH-NUMBER": a coordinator that starts again begins another epoch, and an id of an earlier one is unknown.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"

namespace fluvial::coordinator::admin {

struct LoggedEvent {
  std::uint64_t number = 0;
  std::string name;  // "committed", "status", ...
  std::string json;
};

struct EventLogLimits {
  std::size_t events_max = 1'000;  // of what happened
  std::size_t bytes_max = 8u << 20;
};

class EventLog {
 public:
  explicit EventLog(Epoch epoch, EventLogLimits limits = {}) : epoch_(epoch), limits_(limits) {}

  void happened(std::string name, std::string json);
  // How `subject` stands now. False, and no number is used, when that is how it stood.
  bool stands(std::string name, const std::string& subject, std::string json);
  void forget(const std::string& subject);  // it stands no more; a watcher learns of that by an event of its own
  std::vector<std::string> subjects() const;

  std::uint64_t last() const { return last_; }
  std::string id_of(std::uint64_t number) const;
  // The number that the id names, if what comes after it is all here; none for any other text.
  std::optional<std::uint64_t> number_of(std::string_view id) const;
  bool is_complete_after(std::uint64_t number) const { return number >= dropped_ && number <= last_; }
  // The events after `number`, oldest first, up to the given count.
  std::vector<LoggedEvent> after(std::uint64_t number, std::size_t most) const;
  std::vector<LoggedEvent> recent(std::size_t most) const;         // of what happened, oldest first
  std::vector<LoggedEvent> standing(std::string_view name) const;  // by subject

 private:
  void drop_oldest();

  const Epoch epoch_;
  const EventLogLimits limits_;
  std::map<std::uint64_t, LoggedEvent> events_;
  std::deque<std::uint64_t> history_;  // of these, what happened
  std::size_t history_bytes_ = 0;
  std::map<std::string, std::uint64_t> standing_;  // by subject
  std::uint64_t last_ = 0;
  std::uint64_t dropped_ = 0;  // the last that was let go
};

}  // namespace fluvial::coordinator::admin
