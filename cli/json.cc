#include "cli/json.h"

#include <fmt/format.h>

#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>

#include "core/base/plain_numbers.h"

namespace fluvial::cli {
namespace {

constexpr std::size_t kInlineColumns = 100;  // arrays and objects that fit into a line stay on one

void print(const json::value& value, std::string indent, std::string& out) {
  const std::string flat = one_line(value);
  if (flat.size() + indent.size() <= kInlineColumns && !indent.empty()) {
    out += flat;
    return;
  }
  const std::string deeper = indent + "  ";
  if (const auto* object = value.if_object(); object != nullptr && !object->empty()) {
    std::string_view separator = "{\n";
    for (const auto& [key, inner] : *object) {
      out += fmt::format("{}{}{}: ", separator, deeper, json::serialize(json::string(key)));
      print(inner, deeper, out);
      separator = ",\n";
    }
    out += "\n" + indent + "}";
  } else if (const auto* array = value.if_array(); array != nullptr && !array->empty()) {
    std::string_view separator = "[\n";
    for (const auto& inner : *array) {
      out += fmt::format("{}{}", separator, deeper);
      print(inner, deeper, out);
      separator = ",\n";
    }
    out += "\n" + indent + "]";
  } else {
    out += flat;
  }
}

}  // namespace

Result<json::value> parse_json(std::string_view text, std::string_view what) {
  boost::system::error_code error;
  json::value value = json::parse({text.data(), text.size()}, error);
  if (error) return Error{Code::kDataLoss, fmt::format("{} is no JSON: {}", what, error.message())};
  return value;
}

const json::value& member(const json::value& value, std::string_view key) {
  static const json::value kNull;
  const auto* object = value.if_object();
  if (object == nullptr) return kNull;
  const auto* found = object->if_contains({key.data(), key.size()});
  return found == nullptr ? kNull : *found;
}

const json::array& array_member(const json::value& value, std::string_view key) {
  static const json::array kNone;
  const auto* found = member(value, key).if_array();
  return found == nullptr ? kNone : *found;
}

std::string text_member(const json::value& value, std::string_view key, std::string_view fallback) {
  const auto* found = member(value, key).if_string();
  return found == nullptr ? std::string(fallback) : std::string(found->data(), found->size());
}

double to_number(const json::value& value, double fallback) {
  if (value.is_double()) return value.get_double();
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return fallback;
}

double number_member(const json::value& value, std::string_view key, double fallback) {
  return to_number(member(value, key), fallback);
}

std::uint64_t count_member(const json::value& value, std::string_view key) {
  const json::value& found = member(value, key);
  if (found.is_uint64()) return found.get_uint64();
  if (found.is_int64() && found.get_int64() >= 0) return static_cast<std::uint64_t>(found.get_int64());
  return 0;
}

bool bool_member(const json::value& value, std::string_view key) {
  const json::value& found = member(value, key);
  return found.is_bool() && found.get_bool();
}

std::string one_line(const json::value& value) { return plain_numbers(json::serialize(value)); }

std::string pretty(const json::value& value) {
  std::string out;
  print(value, "", out);
  return out + "\n";
}

}  // namespace fluvial::cli
