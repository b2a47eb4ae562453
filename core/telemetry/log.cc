#include "core/telemetry/log.h"

#include <fmt/chrono.h>
#include <spdlog/logger.h>
#include <spdlog/pattern_formatter.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include <chrono>
#include <cmath>
#include <utility>

#include "core/base/clock.h"
#include "core/telemetry/escape.h"
#include "core/telemetry/repeats.h"

namespace fluvial::telemetry {
namespace {

std::string now_text() {
  const auto now = std::chrono::floor<std::chrono::milliseconds>(std::chrono::system_clock::now());
  const auto seconds = std::chrono::floor<std::chrono::seconds>(now);
  return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z", seconds, (now - seconds).count());
}

std::string number_text(const FieldValue& value) {
  if (const auto* real = std::get_if<double>(&value)) return fmt::format("{}", *real);
  if (const auto* flag = std::get_if<bool>(&value)) return *flag ? "true" : "false";
  if (const auto* whole = std::get_if<std::int64_t>(&value)) return fmt::format("{}", *whole);
  return fmt::format("{}", std::get<std::uint64_t>(value));
}

std::string text_line(const Record& record, std::string_view time) {
  std::string line = fmt::format("{} {:<5} ", time, level_name(record.level));
  append_escaped(line, record.message, Quotes::kAsTheyAre);
  for (const Field& field : record.fields) {
    line += ' ';
    append_escaped(line, field.key, Quotes::kAsTheyAre);
    line += '=';
    if (const auto* text = std::get_if<std::string>(&field.value)) {
      append_value(line, *text);
    } else {
      line += number_text(field.value);
    }
  }
  return line;
}

void append_json(std::string& line, const Field& field) {
  line += ",\"";
  append_escaped(line, field.key, Quotes::kEscaped);
  line += "\":";
  const auto* real = std::get_if<double>(&field.value);
  if (const auto* text = std::get_if<std::string>(&field.value)) {
    line += '"';
    append_escaped(line, *text, Quotes::kEscaped);
    line += '"';
  } else if (real != nullptr && !std::isfinite(*real)) {
    line += "null";  // JSON has no such number, and a field has one type
  } else {
    line += number_text(field.value);
  }
}

std::string json_line(const Record& record, std::string_view time) {
  std::string line = fmt::format(R"({{"time":"{}","level":"{}","message":")", time, level_name(record.level));
  append_escaped(line, record.message, Quotes::kEscaped);
  line += '"';
  for (const Field& field : record.who) append_json(line, field);
  for (const Field& field : record.fields) append_json(line, field);
  return line + "}";
}

class SpdlogSink final : public LogSink {
 public:
  SpdlogSink(spdlog::sink_ptr sink, Level level, LogFormat format)
      : logger_("fluvial", std::move(sink)), level_(level), format_(format) {
    logger_.set_formatter(std::make_unique<spdlog::pattern_formatter>("%v", spdlog::pattern_time_type::utc, "\n"));
    logger_.set_level(spdlog::level::trace);  // accepts() has decided
    logger_.flush_on(spdlog::level::trace);
    logger_.set_error_handler([](const std::string&) {});  // a full disk under the log must not stop the node
  }
  bool accepts(Level level) const override { return level >= level_ && level_ != Level::kOff; }
  void write(const Record& record) override {
    logger_.log(spdlog::level::info, spdlog::string_view_t(format_record(record, format_, now_text())));
  }

 private:
  spdlog::logger logger_;
  Level level_;
  LogFormat format_;
};

// What stands before a sink that a person reads.
class RepeatsSink final : public LogSink {
 public:
  explicit RepeatsSink(std::shared_ptr<LogSink> sink) : sink_(std::move(sink)) {}
  ~RepeatsSink() override {
    for (const Record& record : repeats_.rest()) sink_->write(record);
  }
  bool accepts(Level level) const override { return sink_->accepts(level); }
  void write(const Record& record) override {
    const TimePoint now = clock_.now();
    const std::lock_guard lock(mutex_);
    for (const Record& counted : repeats_.due(now)) sink_->write(counted);
    if (repeats_.admit(record, now)) sink_->write(record);
  }

 private:
  std::shared_ptr<LogSink> sink_;
  SystemClock clock_;
  std::mutex mutex_;
  Repeats repeats_;
};

class NullSink final : public LogSink {
 public:
  bool accepts(Level) const override { return false; }
  void write(const Record&) override {}
};

}  // namespace

std::string_view level_name(Level level) {
  switch (level) {
    case Level::kDebug: return "debug";
    case Level::kInfo: return "info";
    case Level::kWarn: return "warn";
    case Level::kError: return "error";
    case Level::kOff: return "off";
  }
  return "unknown";
}

Result<Level> level_from_name(std::string_view name) {
  for (const Level level : {Level::kDebug, Level::kInfo, Level::kWarn, Level::kError, Level::kOff}) {
    if (level_name(level) == name) return level;
  }
  return Error{Code::kInvalidArgument,
               "log level '" + std::string(name) + "': expected debug, info, warn, error or off"};
}

Result<LogFormat> log_format_from_name(std::string_view name) {
  if (name == "text") return LogFormat::kText;
  if (name == "json") return LogFormat::kJson;
  return Error{Code::kInvalidArgument, "log format '" + std::string(name) + "': expected text or json"};
}

Logger Logger::bind(Fields who, Fields fields) const {
  Bound all = bound_ ? *bound_ : Bound{};
  all.who.insert(all.who.end(), who.begin(), who.end());
  all.fields.insert(all.fields.end(), fields.begin(), fields.end());
  Logger bound(sink_);
  bound.bound_ = std::make_shared<const Bound>(std::move(all));
  return bound;
}

Logger Logger::with(Fields fields) const { return bind({}, fields); }
Logger Logger::as(Fields who) const { return bind(who, {}); }

void Logger::log(Level level, std::string_view message, Fields fields) const {
  if (!sink_->accepts(level)) return;
  Record record{level, std::string(message), {}, {}};
  if (bound_) {
    record.fields = bound_->fields;
    record.who = bound_->who;
  }
  record.fields.insert(record.fields.end(), fields.begin(), fields.end());
  sink_->write(record);
}

std::string format_record(const Record& record, LogFormat format, std::string_view time) {
  return format == LogFormat::kText ? text_line(record, time) : json_line(record, time);
}

Logger make_stderr_logger(Level level, LogFormat format) {
  return Logger(std::make_shared<RepeatsSink>(
      std::make_shared<SpdlogSink>(std::make_shared<spdlog::sinks::stderr_sink_mt>(), level, format)));
}

Result<Logger> make_file_logger(const std::string& path, Level level, LogFormat format) {
  try {
    return Logger(std::make_shared<RepeatsSink>(
        std::make_shared<SpdlogSink>(std::make_shared<spdlog::sinks::basic_file_sink_mt>(path), level, format)));
  } catch (const spdlog::spdlog_ex& error) {
    return Error{Code::kUnavailable, std::string("the log: ") + error.what()};
  }
}

Logger null_logger() { return Logger(std::make_shared<NullSink>()); }

void CaptureSink::write(const Record& record) {
  const std::lock_guard lock(mutex_);
  records_.push_back(record);
}

std::vector<Record> CaptureSink::records() const {
  const std::lock_guard lock(mutex_);
  return records_;
}

bool CaptureSink::contains(std::string_view text) const {
  const std::lock_guard lock(mutex_);
  for (const Record& record : records_) {
    if (text_line(record, "").find(text) != std::string::npos) return true;
  }
  return false;
}

}  // namespace fluvial::telemetry
