// Structured logs, injected: a Logger is a small value that shares its sink; with() binds fields to everything it says.
// Messages and values are escaped, so what a peer sends cannot forge a line. Thread safe.
//
// A message is a constant, what varies is in fields, and docs/operations/logs.md lists those. A warning or an error
// says after a semicolon what the process does next. A test holds the sources to all of it.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"

namespace fluvial::telemetry {

enum class Level { kDebug, kInfo, kWarn, kError, kOff };
std::string_view level_name(Level level);  // "debug", "info", "warn", "error", "off"
Result<Level> level_from_name(std::string_view name);

enum class LogFormat { kText, kJson };
Result<LogFormat> log_format_from_name(std::string_view name);  // "text", "json"

using FieldValue = std::variant<std::string, std::int64_t, std::uint64_t, double, bool>;

struct Field {
  std::string key;
  FieldValue value;

  Field(std::string_view k, std::string_view v) : key(k), value(std::string(v)) {}
  Field(std::string_view k, const char* v) : key(k), value(std::string(v)) {}
  Field(std::string_view k, const std::string& v) : key(k), value(v) {}
  Field(std::string_view k, bool v) : key(k), value(v) {}
  template <std::floating_point T>
  Field(std::string_view k, T v) : key(k), value(static_cast<double>(v)) {}
  template <std::signed_integral T>
  Field(std::string_view k, T v) : key(k), value(static_cast<std::int64_t>(v)) {}
  template <std::unsigned_integral T>
    requires(!std::same_as<T, bool>)
  Field(std::string_view k, T v) : key(k), value(static_cast<std::uint64_t>(v)) {}
  template <typename Tag, typename Rep>
  Field(std::string_view k, Id<Tag, Rep> id) : key(k), value(static_cast<std::uint64_t>(id.value())) {}
  bool operator==(const Field&) const = default;
};
using Fields = std::initializer_list<Field>;

struct Record {
  Level level = Level::kInfo;
  std::string message;
  std::vector<Field> fields;    // bound ones first
  std::vector<Field> who = {};  // whose line it is: in JSON alone, for a text log has one writer
};

// Where records go. Thread safe.
class LogSink {
 public:
  virtual ~LogSink() = default;
  virtual bool accepts(Level level) const = 0;
  virtual void write(const Record& record) = 0;
};

class Logger {
 public:
  explicit Logger(std::shared_ptr<LogSink> sink) : sink_(std::move(sink)) {}

  Logger with(Fields fields) const;
  Logger as(Fields who) const;                                       // of the process: role, federation, node
  bool accepts(Level level) const { return sink_->accepts(level); }  // for lines that are costly to make
  void debug(std::string_view message, Fields fields = {}) const { log(Level::kDebug, message, fields); }
  void info(std::string_view message, Fields fields = {}) const { log(Level::kInfo, message, fields); }
  void warn(std::string_view message, Fields fields = {}) const { log(Level::kWarn, message, fields); }
  void error(std::string_view message, Fields fields = {}) const { log(Level::kError, message, fields); }
  void log(Level level, std::string_view message, Fields fields = {}) const;

 private:
  struct Bound {
    std::vector<Field> who;
    std::vector<Field> fields;
  };
  Logger bind(Fields who, Fields fields) const;

  std::shared_ptr<LogSink> sink_;
  std::shared_ptr<const Bound> bound_;
};

// To standard error: text "2026-01-31T12:00:00.123Z info  round committed run=1 round=7 site=hospital-a", or one JSON
// object a line {"time":...,"level":"info","message":"round committed","role":"site",...,"run":1,...}. Each line is
// flushed. Warnings that repeat are counted (repeats.h).
Logger make_stderr_logger(Level level, LogFormat format);
// To a file, appended; kPermissionDenied or kUnavailable when it cannot be opened.
Result<Logger> make_file_logger(const std::string& path, Level level, LogFormat format);
Logger null_logger();

// One line without its end, as the sinks write it. `time` is the text to stand in front.
std::string format_record(const Record& record, LogFormat format, std::string_view time);

// Keeps records for a test to look at.
class CaptureSink final : public LogSink {
 public:
  bool accepts(Level) const override { return true; }
  void write(const Record& record) override;
  std::vector<Record> records() const;
  bool contains(std::string_view text) const;  // in a message or in a field's text

 private:
  mutable std::mutex mutex_;
  std::vector<Record> records_;
};

}  // namespace fluvial::telemetry
