// A model's schema to and from its message.
#pragma once

#include "core/base/result.h"
#include "core/round/schema.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::local {

inline void to_proto(const round::Schema& schema, v1::Schema& message) {
  for (const round::Tensor& tensor : schema.tensors()) {
    v1::Tensor& out = *message.add_tensors();
    out.set_name(tensor.name);
    out.set_dtype(std::string(round::dtype_name(tensor.dtype)));
    out.mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
  }
}

inline Result<round::Schema> schema_from_proto(const v1::Schema& message) {
  if (static_cast<std::size_t>(message.tensors_size()) > round::kTensorsMax) {
    return Error{Code::kInvalidArgument, "a schema of too many tensors"};
  }
  std::vector<round::Tensor> tensors;
  for (const v1::Tensor& tensor : message.tensors()) {
    FLUVIAL_ASSIGN(const round::DType dtype, round::dtype_from_name(tensor.dtype()));
    tensors.push_back({tensor.name(), dtype, {tensor.shape().begin(), tensor.shape().end()}});
  }
  return round::Schema::make(std::move(tensors));
}

}  // namespace fluvial::local
