#include "core/round/schema.h"

#include <cstring>
#include <limits>
#include <unordered_set>
#include <utility>

#include "core/base/printable.h"

namespace fluvial::round {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::size_t bytes;
};
constexpr DTypeInfo kDTypes[] = {
    {DType::kF32, "F32", 4}, {DType::kI8, "I8", 1}, {DType::kI16, "I16", 2},   {DType::kI32, "I32", 4},
    {DType::kI64, "I64", 8}, {DType::kU8, "U8", 1}, {DType::kBool, "BOOL", 1},
};

const DTypeInfo& info(DType dtype) { return kDTypes[static_cast<std::size_t>(dtype)]; }

// Calls f(T{}) with the integer type that holds `dtype`.
template <typename F>
void with_integer_type(DType dtype, F f) {
  switch (dtype) {
    case DType::kI8: return f(std::int8_t{});
    case DType::kI16: return f(std::int16_t{});
    case DType::kI32: return f(std::int32_t{});
    case DType::kI64: return f(std::int64_t{});
    case DType::kU8:
    case DType::kBool: return f(std::uint8_t{});
    case DType::kF32: break;
  }
  FLUVIAL_CHECK(false, "not an integer dtype");
}

// A name of others, in a message.
std::string named(const Tensor& tensor) { return "tensor '" + printable(tensor.name, kTensorNameBytesMax) + "'"; }

Result<std::uint64_t> count_values(const Tensor& tensor) {
  std::uint64_t count = 1;
  for (const std::uint64_t dimension : tensor.shape) {
    if (dimension != 0 && count > kModelBytesMax / dimension) {
      return Error{Code::kInvalidArgument, named(tensor) + " is larger than 2^40 values"};
    }
    count *= dimension;
  }
  return count;
}

}  // namespace

std::string_view dtype_name(DType dtype) { return info(dtype).name; }
std::size_t dtype_bytes(DType dtype) { return info(dtype).bytes; }

Result<DType> dtype_from_name(std::string_view name) {
  for (const DTypeInfo& known : kDTypes) {
    if (known.name == name) return known.dtype;
  }
  return Error{Code::kInvalidArgument,
               "dtype '" + printable(name, 64) + "': expected F32, or I8, I16, I32, I64, U8, BOOL for counters"};
}

Result<Schema> Schema::make(std::vector<Tensor> tensors) {
  if (tensors.empty()) return Error{Code::kInvalidArgument, "a model needs at least one tensor"};
  if (tensors.size() > kTensorsMax) return Error{Code::kInvalidArgument, "more than 65536 tensors"};
  Schema schema;
  std::unordered_set<std::string_view> names;
  for (const Tensor& tensor : tensors) {
    if (tensor.name.empty() || tensor.name.size() > kTensorNameBytesMax) {
      return Error{Code::kInvalidArgument, "a tensor's name has 1 to 512 bytes"};
    }
    if (!names.insert(tensor.name).second) {
      return Error{Code::kInvalidArgument, named(tensor) + " appears twice"};
    }
    if (tensor.shape.size() > kTensorRankMax) {
      return Error{Code::kInvalidArgument, named(tensor) + " has more than 8 dimensions"};
    }
    FLUVIAL_ASSIGN(const std::uint64_t count, count_values(tensor));
    schema.values_.push_back(count);
    schema.offsets_.push_back(schema.model_bytes_);
    schema.model_bytes_ += count * dtype_bytes(tensor.dtype);
    (is_averaged(tensor.dtype) ? schema.value_count_ : schema.integer_count_) += count;
    if (schema.model_bytes_ > kModelBytesMax) {
      return Error{Code::kInvalidArgument, "the model is larger than 2^40 bytes at " + named(tensor)};
    }
    if (schema.integer_count_ > kIntegerCountMax) {
      return Error{Code::kInvalidArgument, "more than 2^19 integer values at " + named(tensor) +
                                               ": leave out masks and other constants (save_model's only=)"};
    }
  }
  if (schema.value_count_ == 0) return Error{Code::kInvalidArgument, "a model needs at least one F32 value"};
  schema.tensors_ = std::move(tensors);
  return schema;
}

std::uint64_t Schema::tensor_values(std::size_t tensor_index) const { return values_.at(tensor_index); }
std::uint64_t Schema::tensor_offset_bytes(std::size_t tensor_index) const { return offsets_.at(tensor_index); }

Status check_same_schema(const Schema& expected, const Schema& given) {
  const auto shape_text = [](const Tensor& tensor) {
    std::string text = std::string(dtype_name(tensor.dtype)) + "[";
    for (std::size_t i = 0; i < tensor.shape.size(); ++i) text += (i ? "," : "") + std::to_string(tensor.shape[i]);
    return text + "]";
  };
  const auto& want = expected.tensors();
  const auto& have = given.tensors();
  for (std::size_t i = 0; i < want.size() || i < have.size(); ++i) {
    if (i >= have.size()) return Error{Code::kFailedPrecondition, named(want[i]) + " is missing"};
    if (i >= want.size()) return Error{Code::kFailedPrecondition, named(have[i]) + " is not in the schema"};
    if (want[i].name != have[i].name) {
      return Error{Code::kFailedPrecondition, named(have[i]) + " stands where " + named(want[i]) + " is expected"};
    }
    if (want[i] != have[i]) {
      return Error{Code::kFailedPrecondition,
                   named(want[i]) + " is " + shape_text(have[i]) + ", expected " + shape_text(want[i])};
    }
  }
  return {};
}

std::string value_name(const Schema& schema, std::uint64_t coordinate) {
  std::uint64_t first = 0;
  for (std::size_t t = 0; t < schema.tensors().size(); ++t) {
    if (!is_averaged(schema.tensors()[t].dtype)) continue;
    const std::uint64_t count = schema.tensor_values(t);
    if (coordinate < first + count) {
      return "tensor '" + schema.tensors()[t].name + "', value " + std::to_string(coordinate - first);
    }
    first += count;
  }
  return "value " + std::to_string(coordinate);
}

void split_model(const Schema& schema, ByteSpan model, std::span<float> values, std::span<std::int64_t> integers) {
  FLUVIAL_CHECK(values.size() == schema.value_count(), "sizes that do not fit the schema");
  read_integers(schema, model, integers);
  std::size_t value = 0;
  for (std::size_t t = 0; t < schema.tensors().size(); ++t) {
    const std::size_t count = schema.tensor_values(t);
    if (count == 0 || !is_averaged(schema.tensors()[t].dtype)) continue;
    std::memcpy(values.data() + value, model.data() + schema.tensor_offset_bytes(t), count * sizeof(float));
    value += count;
  }
}

void read_integers(const Schema& schema, ByteSpan model, std::span<std::int64_t> integers) {
  FLUVIAL_CHECK(model.size() == schema.model_bytes() && integers.size() == schema.integer_count(),
                "sizes that do not fit the schema");
  std::size_t integer = 0;
  for (std::size_t t = 0; t < schema.tensors().size(); ++t) {
    if (is_averaged(schema.tensors()[t].dtype)) continue;
    const std::byte* from = model.data() + schema.tensor_offset_bytes(t);
    with_integer_type(schema.tensors()[t].dtype, [&](auto type) {
      for (std::size_t i = 0; i < schema.tensor_values(t); ++i) {
        std::memcpy(&type, from + i * sizeof(type), sizeof(type));
        integers[integer++] = type;
      }
    });
  }
}

Status join_model(const Schema& schema, std::span<const float> values, std::span<const std::int64_t> integers,
                  MutableByteSpan model) {
  FLUVIAL_CHECK(model.size() == schema.model_bytes() && values.size() == schema.value_count() &&
                    integers.size() == schema.integer_count(),
                "sizes that do not fit the schema");
  std::size_t value = 0;
  std::size_t integer = 0;
  for (std::size_t t = 0; t < schema.tensors().size(); ++t) {
    std::byte* to = model.data() + schema.tensor_offset_bytes(t);
    const std::size_t count = schema.tensor_values(t);
    if (count == 0) continue;
    if (is_averaged(schema.tensors()[t].dtype)) {
      std::memcpy(to, values.data() + value, count * sizeof(float));
      value += count;
      continue;
    }
    bool fits = true;
    with_integer_type(schema.tensors()[t].dtype, [&](auto type) {
      using T = decltype(type);
      for (std::size_t i = 0; i < count; ++i) {
        const std::int64_t wide = integers[integer++];
        fits = fits && wide >= std::numeric_limits<T>::min() && wide <= std::numeric_limits<T>::max();
        type = static_cast<T>(wide);
        std::memcpy(to + i * sizeof(type), &type, sizeof(type));
      }
    });
    if (!fits) {
      return Error{Code::kInvalidArgument,
                   "tensor '" + schema.tensors()[t].name + "' holds an integer beyond its dtype"};
    }
  }
  return {};
}

}  // namespace fluvial::round
