// A model's schema: its tensors in order. The model's bytes are the tensors one after the other, little-endian, in that
// order and without padding; its digest is the SHA-256 of those bytes. The fp32 tensors, in order, form the flat vector
// that is averaged (value_count coordinates); the integer tensors, in order and widened to int64, travel unaveraged
// (integer_count values): the committed one is the element-wise maximum over the contributors.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace fluvial::round {

enum class DType { kF32, kI8, kI16, kI32, kI64, kU8, kBool };

std::string_view dtype_name(DType dtype);              // as safetensors writes it: "F32", "I64", ...
Result<DType> dtype_from_name(std::string_view name);  // kInvalidArgument names the ones that are known
std::size_t dtype_bytes(DType dtype);
inline bool is_averaged(DType dtype) { return dtype == DType::kF32; }

struct Tensor {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<std::uint64_t> shape;
  bool operator==(const Tensor&) const = default;
};

// Bounds on what a peer or a file may declare.
inline constexpr std::size_t kTensorsMax = 65'536;
inline constexpr std::size_t kTensorNameBytesMax = 512;
inline constexpr std::size_t kTensorRankMax = 8;
inline constexpr std::uint64_t kModelBytesMax = std::uint64_t{1} << 40;
inline constexpr std::uint64_t kIntegerCountMax = std::uint64_t{1} << 19;  // 4 MiB as int64: one frame

class Schema {
 public:
  Schema() = default;
  // kInvalidArgument, naming the tensor: duplicate or empty names, overflow of sizes, or a bound above.
  static Result<Schema> make(std::vector<Tensor> tensors);

  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::uint64_t value_count() const { return value_count_; }
  std::uint64_t integer_count() const { return integer_count_; }
  std::uint64_t model_bytes() const { return model_bytes_; }
  bool all_averaged() const { return integer_count_ == 0; }  // the model's bytes are the flat vector itself

  std::uint64_t tensor_values(std::size_t tensor_index) const;
  std::uint64_t tensor_offset_bytes(std::size_t tensor_index) const;  // in the model's bytes

  bool operator==(const Schema& other) const { return tensors_ == other.tensors_; }

 private:
  std::vector<Tensor> tensors_;
  std::vector<std::uint64_t> values_;
  std::vector<std::uint64_t> offsets_;
  std::uint64_t value_count_ = 0;
  std::uint64_t integer_count_ = 0;
  std::uint64_t model_bytes_ = 0;
};

// kFailedPrecondition naming the first tensor that differs and how.
Status check_same_schema(const Schema& expected, const Schema& given);

// "tensor 'fc1.weight', value 17" for a coordinate of the flat vector; for messages.
std::string value_name(const Schema& schema, std::uint64_t coordinate);

// Cuts a model's bytes into the flat fp32 vector and the widened integers, and puts them back together. Sizes must fit
// the schema (checked, our own invariant). join_model() refuses an integer that its dtype cannot hold.
void split_model(const Schema& schema, ByteSpan model, std::span<float> values, std::span<std::int64_t> integers);
void read_integers(const Schema& schema, ByteSpan model, std::span<std::int64_t> integers);  // those alone
Status join_model(const Schema& schema, std::span<const float> values, std::span<const std::int64_t> integers,
                  MutableByteSpan model);

}  // namespace fluvial::round
