#include <utility>
#include <variant>

#include "core/base/printable.h"
#include "core/wire/mapping.h"

namespace fluvial::wire {
namespace {

using v1::WorkerValue;

Error wrong(const std::string& name, std::string_view what) {
  return {Code::kInvalidArgument,
          "worker." + fluvial::printable(name, round::kWorkerKeyBytesMax) + ": " + std::string(what)};
}

void put(double, WorkerValue&) {}  // stands among the numbers
void put(bool truth, WorkerValue& out) {
  out.set_kind(WorkerValue::KIND_BOOLEAN);
  out.add_numbers(truth ? 1 : 0);
}
void put(const std::string& text, WorkerValue& out) {
  out.set_kind(WorkerValue::KIND_TEXT);
  out.add_texts(text);
}
void put(const std::vector<double>& numbers, WorkerValue& out) {
  out.set_kind(WorkerValue::KIND_NUMBERS);
  out.mutable_numbers()->Add(numbers.begin(), numbers.end());
}
void put(const std::vector<std::string>& texts, WorkerValue& out) {
  out.set_kind(WorkerValue::KIND_TEXTS);
  out.mutable_texts()->Add(texts.begin(), texts.end());
}

Result<round::WorkerValue> value_from_proto(const WorkerValue& value) {
  const auto is = [&](int numbers, int texts) {
    return value.numbers_size() == numbers && value.texts_size() == texts;
  };
  const auto items_max = static_cast<int>(round::kWorkerItemsMax);
  if (value.numbers_size() > items_max || value.texts_size() > items_max) return wrong(value.name(), "a list too long");
  switch (value.kind()) {
    case WorkerValue::KIND_BOOLEAN:
      if (!is(1, 0) || (value.numbers(0) != 0 && value.numbers(0) != 1)) break;
      return round::WorkerValue(value.numbers(0) == 1);
    case WorkerValue::KIND_TEXT:
      if (!is(0, 1)) break;
      return round::WorkerValue(value.texts(0));
    case WorkerValue::KIND_NUMBERS:
      if (!is(value.numbers_size(), 0)) break;
      return round::WorkerValue(std::vector<double>(value.numbers().begin(), value.numbers().end()));
    case WorkerValue::KIND_TEXTS:
      if (!is(0, value.texts_size())) break;
      return round::WorkerValue(std::vector<std::string>(value.texts().begin(), value.texts().end()));
    default: break;
  }
  return wrong(value.name(), "a value of no kind that this version knows");
}

}  // namespace

void config_to_proto(const round::WorkerConfig& config, MetricsProto* numbers, WorkerValuesProto* others) {
  for (const auto& [name, value] : config) {
    if (const double* number = std::get_if<double>(&value)) {
      (*numbers)[name] = *number;
      continue;
    }
    WorkerValue& added = *others->Add();
    added.set_name(name);
    std::visit([&added](const auto& held) { put(held, added); }, value);
  }
}

Result<round::WorkerConfig> config_from_proto(const MetricsProto& numbers, const WorkerValuesProto& others) {
  if (static_cast<std::size_t>(others.size()) > round::kWorkerKeysMax || numbers.size() > round::kWorkerKeysMax) {
    return Error{Code::kInvalidArgument, "worker = (table): expected at most 64 keys"};
  }
  round::WorkerConfig config(numbers.begin(), numbers.end());
  for (const WorkerValue& other : others) {
    FLUVIAL_ASSIGN(round::WorkerValue value, value_from_proto(other));
    if (!config.emplace(other.name(), std::move(value)).second) return wrong(other.name(), "stands twice");
  }
  FLUVIAL_TRY(round::check_worker_config(config));
  return config;
}

}  // namespace fluvial::wire
