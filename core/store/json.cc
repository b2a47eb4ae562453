#include "core/store/json.h"

#include <boost/json/array.hpp>
#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <charconv>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/base/printable.h"

namespace fluvial::store {
namespace {

namespace json = boost::json;

constexpr std::size_t kDepthMax = 16;

// What Boost.JSON does not tell: it keeps the last of two equal keys in silence, and of a fraction of more than 15
// digits it makes a neighbour of the number that is meant.
struct Scan {
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  using Code = json::error_code;
  using View = json::string_view;

  std::vector<std::unordered_set<std::string>> open;
  std::string key;
  std::string repeated;
  std::vector<double> fractions;  // in the order of the text

  bool on_document_begin(Code&) { return true; }
  bool on_document_end(Code&) { return true; }
  bool on_object_begin(Code&) { return open.emplace_back(), true; }
  bool on_object_end(std::size_t, Code&) { return open.pop_back(), true; }
  bool on_array_begin(Code&) { return true; }
  bool on_array_end(std::size_t, Code&) { return true; }
  bool on_key_part(View part, std::size_t, Code&) { return key.append(part.data(), part.size()), true; }
  bool on_key(View part, std::size_t, Code& code) {
    key.append(part.data(), part.size());
    if (!open.back().insert(key).second) {
      repeated = key;
      code = json::error::exception;
      return false;
    }
    key.clear();
    return true;
  }
  bool on_string_part(View, std::size_t, Code&) { return true; }
  bool on_string(View, std::size_t, Code&) { return true; }
  bool on_number_part(View, Code&) { return true; }
  bool on_int64(std::int64_t, View, Code&) { return true; }
  bool on_uint64(std::uint64_t, View, Code&) { return true; }
  bool on_double(double nearly, View text, Code&) {  // all of it: the parser is given the whole text at once
    double exact = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), exact);
    const bool is_read = error == std::errc() && end == text.data() + text.size();
    fractions.push_back(is_read ? exact : nearly);
    return true;
  }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(View, Code&) { return true; }
  bool on_comment(View, Code&) { return true; }
};

// Puts them in place. An object keeps the order of its text.
void put(json::value& value, const double*& next) {
  if (value.is_double()) value = *next++;
  if (json::array* const array = value.if_array()) {
    for (json::value& element : *array) put(element, next);
  }
  if (json::object* const object = value.if_object()) {
    for (auto& member : *object) put(member.value(), next);
  }
}

}  // namespace

Result<json::value> parse_json(std::string_view text, std::string_view where) {
  json::parse_options options;
  options.max_depth = kDepthMax;
  json::error_code code;
  json::basic_parser<Scan> scanner(options);
  const std::size_t consumed = scanner.write_some(false, text.data(), text.size(), code);
  if (!scanner.handler().repeated.empty() || (code == json::error::exception)) {
    return Error{Code::kInvalidArgument,
                 std::string(where) + ": the key '" + printable(scanner.handler().repeated, 512) + "' appears twice"};
  }
  if (!code && consumed < text.size()) code = json::error::extra_data;
  json::value value;
  if (!code) value = json::parse(json::string_view(text.data(), text.size()), code, {}, options);
  if (code) {
    return Error{Code::kInvalidArgument,
                 std::string(where) + ": not JSON at byte " + std::to_string(consumed) + " (" + code.message() + ")"};
  }
  const std::vector<double>& fractions = scanner.handler().fractions;
  const double* next = fractions.data();
  put(value, next);
  FLUVIAL_CHECK(next == fractions.data() + fractions.size(), "two parsers find different numbers in one text");
  return value;
}

}  // namespace fluvial::store
