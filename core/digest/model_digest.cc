#include "core/digest/model_digest.h"

#include <algorithm>

namespace fluvial {
namespace {

std::uint64_t parts_of(std::uint64_t bytes) { return (bytes + kModelPartBytes - 1) / kModelPartBytes; }

}  // namespace

ModelDigest::ModelDigest(std::uint64_t model_bytes)
    : model_bytes_(model_bytes),
      digest_(DigestKind::kTree, parts_of(model_bytes)),
      missing_(parts_of(model_bytes)),
      missing_parts_(parts_of(model_bytes)) {
  for (std::uint64_t part = 0; part < missing_.size(); ++part) missing_[part] = part_bytes(part);
}

std::uint64_t ModelDigest::part_bytes(std::uint64_t part) const {
  return std::min(kModelPartBytes, model_bytes_ - part * kModelPartBytes);
}

bool ModelDigest::ready(ByteSpan model, std::uint64_t offset, std::uint64_t size) {
  FLUVIAL_CHECK(model.size() == model_bytes_ && offset <= model_bytes_ && size <= model_bytes_ - offset,
                "bytes of another model");
  bool is_all = false;
  while (size > 0) {
    const std::uint64_t part = offset / kModelPartBytes;
    const std::uint64_t begin = part * kModelPartBytes;
    const std::uint64_t here = std::min(size, begin + part_bytes(part) - offset);
    // Who brings a part's last bytes sees what others have written of it.
    if (missing_[part].fetch_sub(here, std::memory_order_acq_rel) == here) {
      digest_.side_by_side(part, model.subspan(begin, part_bytes(part)));
      is_all = missing_parts_.fetch_sub(1, std::memory_order_acq_rel) == 1;
    }
    offset += here;
    size -= here;
  }
  return is_all;
}

Result<Digest> model_tree_digest(Parallel& parallel, ByteSpan model) {
  ModelDigest digest(model.size());
  FLUVIAL_TRY(parallel.for_each(parts_of(model.size()), [&](std::size_t part) -> Status {
    const std::uint64_t begin = part * kModelPartBytes;
    digest.ready(model, begin, std::min<std::uint64_t>(kModelPartBytes, model.size() - begin));
    return {};
  }));
  return digest.finish();
}

}  // namespace fluvial
