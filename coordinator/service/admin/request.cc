#include "coordinator/service/admin/request.h"

#include <boost/json.hpp>
#include <charconv>

#include "core/base/printable.h"

namespace fluvial::coordinator::admin {

namespace json = boost::json;

store::AuditEntry Call::entry(store::AuditKind kind) const {
  store::AuditEntry entry{.kind = kind, .by = store::AuditBy::kUser, .user = caller.user, .from = caller.from};
  if (!caller.person) return entry;
  entry.by = store::AuditBy::kOperator;
  entry.person = {caller.person->name, caller.person->node, caller.person->serial_hex};
  return entry;
}

std::string Call::text(const std::string& key) const {
  const auto found = request.query.find(key);
  return found == request.query.end() ? std::string() : found->second;
}

Result<std::uint64_t> Call::number(const std::string& key, std::uint64_t otherwise) const {
  const auto found = request.query.find(key);
  if (found == request.query.end()) return otherwise;
  return to_number(key, found->second);
}

Result<std::uint64_t> to_number(const std::string& key, const std::string& text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) {
    return Error{Code::kInvalidArgument, key + " = '" + printable(text, 80) + "': expected a whole number"};
  }
  return value;
}

Result<json::object> parse_object(const std::string& body) {
  boost::system::error_code error;
  json::value value = json::parse(body, error);
  if (error || !value.is_object()) return Error{Code::kInvalidArgument, "expected a JSON object"};
  return value.as_object();
}

Result<std::string> text_of(const json::object& object, const char* key, const char* otherwise) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return std::string(otherwise);
  if (!value->is_string()) return Error{Code::kInvalidArgument, std::string(key) + ": expected a string"};
  return std::string(value->as_string());
}

Result<std::uint64_t> number_of(const json::object& object, const char* key, std::uint64_t otherwise) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_uint64()) return value->as_uint64();
  if (value->is_int64() && value->as_int64() >= 0) return static_cast<std::uint64_t>(value->as_int64());
  return Error{Code::kInvalidArgument, std::string(key) + ": expected a whole number"};
}

Result<bool> truth_of(const json::object& object, const char* key, bool otherwise) {
  const json::value* value = object.if_contains(key);
  if (value == nullptr || value->is_null()) return otherwise;
  if (value->is_bool()) return value->as_bool();
  return Error{Code::kInvalidArgument, std::string(key) + ": expected true or false"};
}

}  // namespace fluvial::coordinator::admin
