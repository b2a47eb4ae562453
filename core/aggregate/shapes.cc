#include "core/aggregate/shapes.h"

#include "core/base/format.h"
#include "core/round/pass.h"

namespace fluvial::aggregate {

Shapes::Shapes(const round::Schema& schema, std::uint64_t chunk_values) : layout_{schema.value_count(), chunk_values} {
  std::uint64_t offset = 0;
  for (std::size_t i = 0; i < schema.tensors().size(); ++i) {
    const round::Tensor& tensor = schema.tensors()[i];
    if (!round::is_averaged(tensor.dtype)) continue;
    dims_.emplace_back(tensor.shape.begin(), tensor.shape.end());
    tensors_.push_back({.dims = {}, .offset_values = offset});
    offset += schema.tensor_values(i);
  }
  for (std::size_t i = 0; i < tensors_.size(); ++i) tensors_[i].dims = dims_[i];
}

Result<std::vector<std::uint64_t>> pass_values(const kernels::Codec& codec, const Shapes& shapes) {
  std::vector<std::uint64_t> counts;
  if (!codec.hands_down()) return counts;
  for (std::uint32_t pass = 0; pass < codec.passes(); ++pass) {
    counts.push_back(codec.pass_layout(shapes.schema(), pass).value_count);
    if (counts.back() > 0) continue;
    return Error{Code::kInvalidArgument,
                 format_text("codec {}: nothing of this model travels in {}: no tensor is large enough for it. Use "
                             "fp32, or a smaller rank",
                             kernels::to_string(codec.spec()), round::pass_name(pass))};
  }
  return counts;
}

}  // namespace fluvial::aggregate
