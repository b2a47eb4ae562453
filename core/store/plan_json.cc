#include "core/store/plan_json.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/printable.h"
#include "core/round/plan_keys.h"
#include "core/round/reported.h"
#include "core/store/json.h"

namespace fluvial::store {
namespace {

namespace json = boost::json;
using round::Milliseconds;
using round::Plan;
using round::PlanKey;

Error expected(std::string_view key, std::string_view what) {
  return {Code::kInvalidArgument, "plan: " + std::string(key) + ": expected " + std::string(what)};
}

Status read(const json::value& from, std::string_view key, std::string& to) {
  if (!from.is_string()) return expected(key, "a text");
  to = view(from.get_string());
  return {};
}
Status read(const json::value& from, std::string_view key, bool& to) {
  if (!from.is_bool()) return expected(key, "true or false");
  to = from.get_bool();
  return {};
}
Status read(const json::value& from, std::string_view key, double& to) {
  if (!from.is_number()) return expected(key, "a number");
  to = from.to_number<double>();
  return {};
}
template <typename T>
  requires std::is_unsigned_v<T>
Status read(const json::value& from, std::string_view key, T& to) {
  json::error_code code;
  const T value = from.is_number() ? from.to_number<T>(code) : T{0};
  if (!from.is_number() || code) {
    return expected(key, "a whole number from 0 to " + std::to_string(std::numeric_limits<T>::max()));
  }
  to = value;
  return {};
}
Status read(const json::value& from, std::string_view key, Milliseconds& to) {
  std::uint64_t count = 0;
  FLUVIAL_TRY(read(from, key, count));
  if (count > std::uint64_t{1} << 40) return expected(key, "at most 2^40 ms");
  to = Milliseconds(static_cast<std::int64_t>(count));
  return {};
}
Status read(const json::value& from, std::string_view key, round::ServerOptimizer& to) {
  std::string text;
  FLUVIAL_TRY(read(from, key, text));
  return round::assign(to, round::parse_server_optimizer(text));
}
Status read(const json::value& from, std::string_view key, round::MissingWorkers& to) {
  std::string text;
  FLUVIAL_TRY(read(from, key, text));
  const Result<round::MissingWorkers> missing = round::missing_workers_from_name(text);
  if (!missing.ok()) return expected(key, "continue or decline");
  to = *missing;
  return {};
}
template <typename Item>
Status read_items(const json::array& from, std::string_view key, round::WorkerValue& to) {
  std::vector<Item> items(from.size());
  for (std::size_t i = 0; i < items.size(); ++i) FLUVIAL_TRY(read(from[i], key, items[i]));
  return to = std::move(items), Status();
}
Status read(const json::value& from, std::string_view key, round::WorkerValue& to) {
  if (from.is_number()) return to = from.to_number<double>(), Status();
  if (from.is_bool()) return to = from.get_bool(), Status();
  if (from.is_string()) return to = std::string(view(from.get_string())), Status();
  const json::array* items = from.if_array();
  if (items == nullptr || items->empty() || items->size() > round::kWorkerItemsMax) {
    return expected(key, "a number, a text, true or false, a list of 1 to 256 of the first two, or a schedule");
  }
  return items->front().is_string() ? read_items<std::string>(*items, key, to) : read_items<double>(*items, key, to);
}
Status read(const json::object& from, const std::string& key, round::Schedule& to) {
  for (const auto& [name, value] : from) {
    const std::string part(name.data(), name.size()), where = key + "." + printable(part, 64);
    round::WorkerValue own;
    FLUVIAL_TRY(read(value, where, own));
    const Status set = round::set_part(to, part, own);
    if (!set.ok()) return Error{Code::kInvalidArgument, "plan: " + where + ": " + set.error().message};
  }
  return {};
}
Status read(const json::value& from, std::string_view key, round::WorkerTable& to) {
  if (!from.is_object()) return expected(key, "a table");
  if (from.get_object().size() > round::kWorkerKeysMax) return expected(key, "at most 64 keys");
  to = {};
  for (const auto& [name, value] : from.get_object()) {
    const std::string text(name.data(), name.size());
    const std::string where = std::string(key) + "." + printable(text, 64);
    const json::object* parts = value.if_object();
    FLUVIAL_TRY(parts != nullptr ? read(*parts, where, to.schedules[text]) : read(value, where, to.values[text]));
  }
  return {};
}
Status read(const json::value& from, std::string_view key, round::Metrics& to) {
  if (!from.is_object()) return expected(key, "a table of numbers");
  to.clear();
  for (const auto& [name, value] : from.get_object()) {
    const std::string text(name.data(), name.size());
    double& metric = to[text] = std::numeric_limits<double>::quiet_NaN();
    if (!value.is_null()) FLUVIAL_TRY(read(value, std::string(key) + "." + printable(text, 64), metric));
  }
  return {};
}

json::value write(const std::string& from) { return json::value(view(from)); }
json::value write(bool from) { return from; }
json::value write(double from) { return from; }
json::value write(std::uint64_t from) { return from; }
json::value write(std::uint32_t from) { return std::uint64_t{from}; }
json::value write(Milliseconds from) { return static_cast<std::uint64_t>(from.count()); }
json::value write(const round::ServerOptimizer& from) { return json::value(view(round::to_string(from))); }
json::value write(round::MissingWorkers from) { return json::value(view(round::missing_workers_name(from))); }
template <typename Item>
json::value write(const std::vector<Item>& from) {
  json::array items;
  for (const Item& item : from) items.push_back(write(item));
  return items;
}
json::value write(const round::WorkerValue& from) {
  return std::visit([](const auto& held) { return write(held); }, from);
}
json::value write(const round::Schedule& from) {
  json::object parts;
  for (const auto& [name, value] : round::parts_of(from)) parts[view(name)] = write(value);
  return parts;
}
json::value write(const round::WorkerTable& from) {
  json::object object;
  for (const auto& [name, value] : from.values) object[view(name)] = write(value);
  for (const auto& [name, schedule] : from.schedules) object[view(name)] = write(schedule);
  return object;
}

Result<round::Tensor> tensor_from(const json::value& value) {
  const Error bad{Code::kInvalidArgument, "schema: expected objects of name, dtype and shape"};
  const json::object* object = value.if_object();
  if (object == nullptr || object->size() != 3) return bad;
  const json::value* name = object->if_contains("name");
  const json::value* dtype = object->if_contains("dtype");
  const json::value* shape = object->if_contains("shape");
  if (name == nullptr || dtype == nullptr || shape == nullptr) return bad;
  if (!name->is_string() || !dtype->is_string() || !shape->is_array()) return bad;
  round::Tensor tensor;
  tensor.name = view(name->get_string());
  FLUVIAL_ASSIGN(tensor.dtype, round::dtype_from_name(view(dtype->get_string())));
  for (const json::value& dimension : shape->get_array()) {
    json::error_code code;
    tensor.shape.push_back(dimension.is_number() ? dimension.to_number<std::uint64_t>(code) : 0);
    if (!dimension.is_number() || code) return bad;
  }
  return tensor;
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  json::object object;
  visit_plan(plan, [&](const PlanKey& key, const auto& field) { object[view(key.name)] = write(field); });
  return json::serialize(object);
}

std::string plan_as_written(const Plan& plan) {
  json::object object;
  visit_plan(plan, [&](const PlanKey& key, const auto& field) {
    if (key.name == "optimizer.momentum" && !round::has_momentum(plan.optimizer.kind)) return;
    object[view(key.name)] = write(field);
  });
  return json::serialize(object);
}

Result<Plan> plan_from_json(std::string_view text) {
  FLUVIAL_ASSIGN(const json::value parsed, parse_json(text, "plan"));
  const json::object* object = parsed.if_object();
  if (object == nullptr) return Error{Code::kInvalidArgument, "plan: expected a JSON object"};
  Plan plan;
  std::size_t used = 0;
  std::vector<std::string_view> known;
  FLUVIAL_TRY(try_plan(plan, [&](const PlanKey& key, auto& field) -> Status {
    known.push_back(key.name);
    const json::value* found = object->if_contains(view(key.name));
    if (found == nullptr) return {};
    ++used;
    return read(*found, key.name, field);
  }));
  if (used != object->size()) {
    for (const auto& entry : *object) {
      const std::string_view key(entry.key().data(), entry.key().size());
      if (std::find(known.begin(), known.end(), key) == known.end()) {
        return Error{Code::kInvalidArgument, "plan: unknown key '" + printable(key, 64) + "'"};
      }
    }
  }
  FLUVIAL_TRY(check_plan(plan));
  return plan;
}

std::string schema_to_json(const round::Schema& schema) {
  json::array array;
  for (const round::Tensor& tensor : schema.tensors()) {
    json::object object;
    object["name"] = view(tensor.name);
    object["dtype"] = view(round::dtype_name(tensor.dtype));
    object["shape"] = json::array(tensor.shape.begin(), tensor.shape.end());
    array.push_back(std::move(object));
  }
  return json::serialize(array);
}

Result<round::Schema> schema_from_json(std::string_view text) {
  FLUVIAL_ASSIGN(const json::value parsed, parse_json(text, "schema"));
  if (!parsed.is_array()) return Error{Code::kInvalidArgument, "schema: expected a JSON array"};
  std::vector<round::Tensor> tensors;
  for (const json::value& value : parsed.get_array()) {
    FLUVIAL_ASSIGN(round::Tensor tensor, tensor_from(value));
    tensors.push_back(std::move(tensor));
  }
  return round::Schema::make(std::move(tensors));
}

std::string metrics_to_json(const round::Metrics& metrics) {
  json::object object;
  for (const auto& [name, value] : metrics) {
    if (round::counts(value)) object[view(name)] = value;
  }
  return json::serialize(object);
}

std::string reported_to_json(const round::Metrics& metrics) {
  json::object object;
  for (const auto& [name, value] : metrics) object[view(name)] = round::counts(value) ? json::value(value) : nullptr;
  return json::serialize(object);
}

Result<round::Metrics> metrics_from_json(std::string_view text) {
  FLUVIAL_ASSIGN(const json::value parsed, parse_json(text, "metrics"));
  round::Metrics metrics;
  FLUVIAL_TRY(read(parsed, "metrics", metrics));
  return metrics;
}

}  // namespace fluvial::store
