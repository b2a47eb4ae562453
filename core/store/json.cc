#include "core/store/json.h"

#include <boost/json/basic_parser_impl.hpp>
#include <boost/json/parse.hpp>
#include <string>
#include <unordered_set>
#include <vector>

namespace fluvial::store {
namespace {

namespace json = boost::json;

constexpr std::size_t kDepthMax = 16;

// Boost.JSON keeps the last of two equal keys in silence; this handler only looks for them.
struct RepeatedKeys {
  static constexpr std::size_t max_object_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_array_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_key_size = static_cast<std::size_t>(-1);
  static constexpr std::size_t max_string_size = static_cast<std::size_t>(-1);
  using Code = json::error_code;
  using View = json::string_view;

  std::vector<std::unordered_set<std::string>> open;
  std::string key;
  std::string repeated;

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
  bool on_double(double, View, Code&) { return true; }
  bool on_bool(bool, Code&) { return true; }
  bool on_null(Code&) { return true; }
  bool on_comment_part(View, Code&) { return true; }
  bool on_comment(View, Code&) { return true; }
};

}  // namespace

Result<json::value> parse_json(std::string_view text, std::string_view where) {
  json::parse_options options;
  options.max_depth = kDepthMax;
  json::error_code code;
  json::basic_parser<RepeatedKeys> scanner(options);
  const std::size_t consumed = scanner.write_some(false, text.data(), text.size(), code);
  if (!scanner.handler().repeated.empty() || (code == json::error::exception)) {
    return Error{Code::kInvalidArgument,
                 std::string(where) + ": the key '" + scanner.handler().repeated.substr(0, 512) + "' appears twice"};
  }
  if (!code && consumed < text.size()) code = json::error::extra_data;
  json::value value;
  if (!code) value = json::parse(json::string_view(text.data(), text.size()), code, {}, options);
  if (code) {
    return Error{Code::kInvalidArgument,
                 std::string(where) + ": not JSON at byte " + std::to_string(consumed) + " (" + code.message() + ")"};
  }
  return value;
}

}  // namespace fluvial::store
