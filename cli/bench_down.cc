#include "cli/bench_down.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/aggregate/model_form.h"
#include "core/digest/sha256.h"
#include "kernels/reference/reference.h"
#include "kernels/stream_key.h"

namespace fluvial::cli {

DownAudit::DownAudit(const round::Plan& plan, std::vector<float> initial)
    : down_(aggregate::parse_down(plan.down).value()),
      chunk_values_(plan.chunk_values),
      seed_(plan.seed),
      schema_(round::Schema::make({{"w", round::DType::kF32, {initial.size()}}}).value()),
      trained_(std::move(initial)) {}

Status DownAudit::committed(std::span<const float> master, const std::string& sha256_hex) {
  ++round_;
  FLUVIAL_TRY(make(master));
  const std::string made = to_hex(sha256(std::as_bytes(std::span<const float>(trained_))));
  if (made == sha256_hex) return {};
  return Error{Code::kDataLoss, fmt::format("round {}: sites train from another model ({}) than `down` makes ({})",
                                            round_, sha256_hex, made)};
}

Status DownAudit::make(std::span<const float> master) {
  if (down_.kind == aggregate::Down::Kind::kWhole) {
    trained_.assign(master.begin(), master.end());
    return {};
  }
  const bool is_delta = down_.kind == aggregate::Down::Kind::kDelta;
  Serial serial;
  Buffer unused(schema_.model_bytes());
  std::optional<aggregate::BaseModel> base;
  if (is_delta) base = aggregate::BaseModel{{}, std::as_bytes(std::span<const float>(trained_))};
  FLUVIAL_ASSIGN(const aggregate::EncodedModel encoded,
                 aggregate::encode_model(serial, down_, chunk_values_, kernels::stream_key(seed_, round_, ""), schema_,
                                         std::as_bytes(master), base, unused.span()));
  if (is_delta && encoded.bytes.size() >= master.size_bytes()) {  // no smaller: it travels whole
    trained_.assign(master.begin(), master.end());
    return {};
  }
  ByteSpan left = encoded.bytes.span();
  for (std::size_t first = 0; first < trained_.size(); first += chunk_values_) {
    const std::size_t count = std::min<std::size_t>(chunk_values_, trained_.size() - first);
    const std::size_t size = load_le<std::uint32_t>(left.data());
    const auto decoded = kernels::reference::decode(down_.codec, left.subspan(4, size), count);
    if (!decoded)
      return Error{Code::kDataLoss, fmt::format("round {}: a chunk that the reference cannot read", round_)};
    for (std::size_t i = 0; i < count; ++i) {
      const auto value = static_cast<float>((*decoded)[i]);
      trained_[first + i] = is_delta ? trained_[first + i] + value + 0.0F : value;
    }
    left = left.subspan(4 + size);
  }
  return {};
}

}  // namespace fluvial::cli
