// How each kind of setting is read and written. `Field` is a lambda from the owner to its field. Inside this room only.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <utility>

#include "core/base/name_rule.h"
#include "core/base/week_hours.h"
#include "core/config/declaration.h"

namespace fluvial::config {

inline Error expected(const std::string& what) { return {Code::kInvalidArgument, "expected " + what}; }

inline Result<std::uint64_t> parse_count(std::string_view value) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
  if (error != std::errc{} || end != value.data() + value.size() || value.empty()) return expected("a whole number");
  return number;
}

inline Result<std::string> parse_text(std::string_view value) {
  if (value.size() > 1024) return expected("at most 1024 characters");
  for (const char c : value) {
    if (static_cast<unsigned char>(c) < 0x20) return expected("no control characters");
  }
  return std::string(value);
}

inline std::string format_number(double value) {
  char text[64];
  const auto [end, error] = std::to_chars(text, text + sizeof(text), value);
  return {text, end};
}

template <typename Owner>
class Declare {
 public:
  using Settings = std::vector<Setting<Owner>>;
  explicit Declare(Settings& settings) : settings_(settings) {}

  template <typename Field>
  void text(std::string key, std::string unit, Field field, std::string help, bool required = false) {
    const auto set = [field](Owner& owner, std::string_view value) -> Status {
      FLUVIAL_ASSIGN(field(owner), parse_text(value));
      return {};
    };
    add(std::move(key), std::move(unit), std::move(help), required, set, reader(field));
  }

  enum class Port { kAny, kGiven };  // kAny: 0 asks for a free one
  template <typename Field>
  void address(std::string key, Port port, Field field, std::string help, bool required = false,
               bool may_be_off = false) {
    const auto set = [field, port, may_be_off](Owner& owner, std::string_view value) -> Status {
      if (may_be_off && (value == "off" || value == kMetricsAuto)) {
        field(owner) = value;
        return {};
      }
      const Result<HostPort> parsed = parse_host_port(value);
      if (!parsed.ok()) return may_be_off ? expected("host:port, auto or off") : parsed.error();
      if (port == Port::kGiven && parsed->port == 0) return expected("a port from 1 to 65535");
      field(owner) = format_host_port(*parsed);
      return {};
    };
    add(std::move(key), "host:port", std::move(help), required, set, reader(field));
  }

  template <typename Field>
  void address_or_off(std::string key, Field field, std::string help) {
    const auto set = [field](Owner& owner, std::string_view value) -> Status {
      if (value == "off") return field(owner) = value, Status();
      const Result<HostPort> parsed = parse_host_port(value);
      if (!parsed.ok()) return expected("host:port or off");
      field(owner) = format_host_port(*parsed);
      return {};
    };
    add(std::move(key), "host:port", std::move(help), false, set, reader(field));
  }

  // Empty: none is given.
  template <typename Field>
  void host(std::string key, Field field, std::string help) {
    const auto set = [field](Owner& owner, std::string_view value) -> Status {
      if (!value.empty() && !is_bare_host(value)) return expected("a host without scheme, port or brackets");
      field(owner) = value;
      return {};
    };
    add(std::move(key), "host", std::move(help), false, set, reader(field));
  }

  template <typename Field>
  void name(std::string key, Field field, std::string help) {
    const auto set = [field](Owner& owner, std::string_view value) -> Status {
      if (!is_plain_name(value)) {
        return expected("1 to 63 characters of a-z 0-9 . _ - that start with a letter or digit");
      }
      field(owner) = value;
      return {};
    };
    add(std::move(key), "name", std::move(help), false, set, reader(field));
  }

  template <typename Field>
  void choice(std::string key, std::vector<std::string> choices, Field field, std::string help) {
    std::string list;
    for (std::size_t i = 0; i < choices.size(); ++i) {
      list += (i == 0 ? "" : i + 1 == choices.size() ? " or " : ", ") + choices[i];
    }
    const auto set = [field, choices, list](Owner& owner, std::string_view value) -> Status {
      for (const std::string& known : choices) {
        if (known == value) return field(owner) = value, Status();
      }
      return expected(list);
    };
    add(std::move(key), list, std::move(help), false, set, reader(field));
  }

  template <typename Field>
  void gpus(std::string key, Field field, std::string help) {
    const auto set = [field](Owner& owner, std::string_view value) -> Status {
      if (value != "auto" && value != "none") FLUVIAL_TRY(parse_gpus(value));
      field(owner) = value;
      return {};
    };
    add(std::move(key), "auto, none or cuda:N,...", std::move(help), false, set, reader(field));
  }

  template <typename Field>
  void hours(std::string key, Field field, std::string help) {
    const auto set = [field](Owner& owner, std::string_view value) -> Status {
      FLUVIAL_TRY(WeekHours::parse(value));
      field(owner) = value;
      return {};
    };
    add(std::move(key), "hours", std::move(help), false, set, reader(field));
  }

  using Parse = Result<std::uint64_t> (*)(std::string_view);
  template <typename Field>
  void quantity(std::string key, std::string unit, Parse parse, std::uint64_t low, std::uint64_t high, Field field,
                std::string help) {
    const auto set = [field, parse, low, high, unit](Owner& owner, std::string_view value) -> Status {
      FLUVIAL_ASSIGN(const std::uint64_t number, parse(value));
      if (number < low || number > high) {
        return expected(std::to_string(low) + " to " + std::to_string(high) + (unit == "count" ? "" : " " + unit));
      }
      field(owner) = number;
      return {};
    };
    const auto get = [field](const Owner& owner) { return std::to_string(field(owner)); };
    add(std::move(key), std::move(unit), std::move(help), false, set, get);
  }
  template <typename Field>
  void bytes(std::string key, std::uint64_t low, std::uint64_t high, Field field, std::string help) {
    quantity(std::move(key), "bytes", &parse_bytes, low, high, field, std::move(help));
  }
  template <typename Field>
  void bytes_or_auto(std::string key, std::uint64_t low, std::uint64_t high, Field field, std::string help) {
    const auto set = [field, low, high](Owner& owner, std::string_view value) -> Status {
      if (value == "auto") return field(owner).reset(), Status();
      const Result<std::uint64_t> number = parse_bytes(value);
      if (!number.ok()) return Error{number.error().code, number.error().message + ", or auto"};
      if (*number < low || *number > high) {
        return expected(std::to_string(low) + " to " + std::to_string(high) + " bytes, or auto");
      }
      field(owner) = *number;
      return {};
    };
    const auto get = [field](const Owner& owner) {
      return field(owner) ? std::to_string(*field(owner)) : std::string("auto");
    };
    add(std::move(key), "bytes", std::move(help), false, set, get);
  }
  template <typename Field>
  void milliseconds(std::string key, std::uint64_t low, std::uint64_t high, Field field, std::string help) {
    quantity(std::move(key), "ms", &parse_milliseconds, low, high, field, std::move(help));
  }
  template <typename Field>
  void count(std::string key, std::uint64_t low, std::uint64_t high, Field field, std::string help) {
    quantity(std::move(key), "count", &parse_count, low, high, field, std::move(help));
  }

  void add(std::string key, std::string unit, std::string help, bool required,
           std::function<Status(Owner&, std::string_view)> set, std::function<std::string(const Owner&)> get) {
    settings_.push_back({std::move(key), std::move(unit), std::move(help), required, std::move(set), std::move(get)});
  }

 private:
  template <typename Field>
  static std::function<std::string(const Owner&)> reader(Field field) {
    return [field](const Owner& owner) { return std::string(field(owner)); };
  }
  Settings& settings_;
};

}  // namespace fluvial::config

// A field of the owner, const or not, for Declare.
#define FLUVIAL_FIELD(name) [](auto& owner) -> auto& { return owner.name; }
