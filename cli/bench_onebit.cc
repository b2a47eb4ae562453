#include "cli/bench_onebit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/check.h"
#include "core/digest/sha256.h"
#include "kernels/reference/sign.h"

namespace fluvial::cli {

OnebitAudit::OnebitAudit(const kernels::CodecSpec& codec, const round::Plan& plan, const OnebitAudit* before)
    : beta1_(codec.beta1),
      beta2_(plan.optimizer.beta2),
      tau_(static_cast<float>(plan.optimizer.tau)),
      freeze_(codec.freeze_rounds),
      block_(codec.block_values),
      chunk_(static_cast<std::size_t>(plan.chunk_values)) {
  if (freeze_ > 0 || before == nullptr) return;
  moment_ = before->moment_;
  variance_ = before->variance_;
  handed_ = before->handed_;
}

void OnebitAudit::exchange(const Momentum& momentum, std::span<float> residual, std::span<float> lent) const {
  const double k = beta1_ / (1 - beta1_);
  for (std::size_t i = 0; i < residual.size(); ++i) {
    const float now = momentum ? static_cast<float>(k * static_cast<double>((*momentum)[i])) : 0.0F;
    const float returned = residual[i] - lent[i];
    residual[i] = returned + now;
    lent[i] = now;
  }
}

Result<std::vector<float>> OnebitAudit::step(const json::value& round, double lr, std::span<const float> base,
                                             std::span<const float> mean) {
  const std::uint64_t number = count_member(round, "round");
  const bool warms_up = number <= freeze_;
  moment_.resize(base.size());
  variance_.resize(base.size());
  for (std::size_t i = 0; i < base.size(); ++i) {
    const auto d = static_cast<double>(mean[i]);
    if (warms_up) {
      moment_[i] = static_cast<float>(beta1_ * static_cast<double>(moment_[i]) + (1 - beta1_) * d);
      variance_[i] = static_cast<float>(beta2_ * static_cast<double>(variance_[i]) + (1 - beta2_) * (d * d));
    } else {
      moment_[i] = (static_cast<float>((1 - beta1_) * d) + moment_[i]) + 0.0F;
    }
  }
  const std::vector<float> own = moment_;  // of a warm-up, whose last step takes it whole
  std::vector<std::byte> bytes;
  if (number >= freeze_) bytes = hand_down();
  FLUVIAL_TRY(check_handed(round, bytes));
  const std::vector<float>& taken = warms_up ? own : *handed_;
  std::vector<float> model(base.begin(), base.end());
  for (std::size_t i = 0; i < base.size(); ++i) {
    if (variance_[i] == 0) continue;
    const float ratio = taken[i] / (std::sqrt(variance_[i]) + tau_);
    model[i] = static_cast<float>(static_cast<double>(base[i]) - lr * static_cast<double>(ratio));
  }
  return model;
}

std::vector<std::byte> OnebitAudit::hand_down() {
  std::vector<std::byte> bytes;
  std::vector<float> momentum;
  momentum.reserve(moment_.size());
  for (std::size_t first = 0; first < moment_.size(); first += chunk_) {
    const std::size_t count = std::min(chunk_, moment_.size() - first);
    const auto chunk = kernels::reference::encode_sign(std::span(moment_).subspan(first, count), block_);
    const auto decoded = kernels::reference::decode_sign(chunk, count);
    FLUVIAL_CHECK(decoded.has_value(), "the reference reads what it writes");
    for (const double value : *decoded) {
      momentum.push_back(static_cast<float>(value));
      float& left = moment_[momentum.size() - 1];
      left = left - momentum.back();
    }
    bytes.insert(bytes.end(), chunk.begin(), chunk.end());
    bytes.resize((bytes.size() + 3) / 4 * 4);
  }
  handed_ = std::make_shared<const std::vector<float>>(std::move(momentum));
  return bytes;
}

Status OnebitAudit::check_handed(const json::value& round, std::span<const std::byte> bytes) const {
  const json::value& state = member(round, "codec_state");
  const std::string made = bytes.empty() ? "" : to_hex(sha256(bytes));
  const std::string named = text_member(state, "sha256");
  if (made == named && count_member(state, "bytes") == bytes.size()) return {};
  return Error{Code::kDataLoss, fmt::format("round {}: the momentum that comes down is {}, expected {} of {} bytes",
                                            count_member(round, "round"), named.empty() ? "not there" : named,
                                            made.empty() ? "none" : made, bytes.size())};
}

}  // namespace fluvial::cli
