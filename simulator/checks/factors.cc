#include "simulator/checks/factors.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/base/format.h"
#include "simulator/checks/widths.h"

namespace fluvial::simulator {
namespace {

constexpr std::size_t kHeadBytes = 32;
constexpr double kRounding = 0x1p-16;  // of a product's fp32 sums, as a part of what was added up
constexpr double kFull = 1 - 0x1p-12;  // of a bound: who sends less by a factor comes as near

double greatest(const std::vector<double>& values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}

double norm(const std::vector<double>& values) {
  double squares = 0;
  for (const double value : values) squares += value * value;
  return std::sqrt(squares);
}

}  // namespace

Factors::Factors(kernels::reference::LowRank low_rank, const round::Plan& plan)
    : low_rank_(std::move(low_rank)),
      rank_(*kernels::reference::powersgd_rank(plan.codec)),
      seed_(plan.seed),
      value_abs_max_(plan.value_abs_max),
      norm_max_(plan.update_norm_max) {
  std::size_t at = 0;
  for (const kernels::reference::CutMatrix& cut : low_rank_.cuts()) {
    for (; at < cut.first; ++at) plain_.push_back(at);
    at += cut.rows * cut.cols;
    q_count_ += cut.rank * cut.cols;
  }
  for (; at < low_rank_.value_count(); ++at) plain_.push_back(at);
}

std::optional<Factors> Factors::of(const round::Plan& plan, const round::Schema& schema) {
  const std::optional<std::size_t> rank = kernels::reference::powersgd_rank(plan.codec);
  if (!rank) return std::nullopt;
  std::vector<std::vector<std::uint64_t>> tensors;
  for (const round::Tensor& tensor : schema.tensors()) {
    if (round::is_averaged(tensor.dtype)) tensors.push_back(tensor.shape);
  }
  return Factors({tensors, *rank}, plan);
}

std::vector<float> Factors::factors_in(ByteSpan state) {
  std::vector<float> q(state.size() < kHeadBytes ? 0 : (state.size() - kHeadBytes) / sizeof(float));
  if (!q.empty()) std::memcpy(q.data(), state.data() + kHeadBytes, q.size() * sizeof(float));
  return q;
}

std::string Factors::wrong_state(ByteSpan bytes, const std::vector<float>& q, std::optional<RoundId> round) const {
  if (bytes.size() != kHeadBytes + q.size() * sizeof(float)) return "it has another length";
  if (load_le<std::uint32_t>(bytes.data()) != 1 || load_le<std::uint32_t>(bytes.data() + 4) != rank_) {
    return "it is of another version or rank";
  }
  if (load_le<std::uint64_t>(bytes.data() + 8) != seed_) return "it is of another run";
  if (round && load_le<std::uint64_t>(bytes.data() + 16) != round->value() + 1) return "it is of another round";
  const std::vector<float> there = factors_in(bytes);
  const auto [own, expected] = std::ranges::mismatch(there, q);
  if (own == there.end()) return {};
  return format_text("value {} of its factors is {}; the mean settles to {}",
                     static_cast<std::uint64_t>(own - there.begin()), *own, *expected);
}

bool Factors::reaches_a_bound(const std::vector<double>& values) const {
  return greatest(values) > value_abs_max_ * kFull || (norm_max_ > 0 && norm(values) > norm_max_ * kFull);
}

std::string Factors::wrong_sent(const Exact& exact, const std::vector<double>& sent) const {
  if (sent.size() != exact.values.size()) return "it sends another number of values";
  std::size_t most = 0;
  for (std::size_t i = 0; i < sent.size(); ++i) {
    if (std::abs(exact.values[i]) > std::abs(exact.values[most])) most = i;
  }
  double factor = 1, doubt = 0;
  if (!sent.empty() && exact.values[most] != 0) {
    doubt = kRounding * exact.added[most] / std::abs(exact.values[most]);
    factor = sent[most] / exact.values[most];
  }
  if (std::abs(factor - 1) > doubt) {
    if (!(factor > 0 && factor < 1) || !reaches_a_bound(exact.values) || !reaches_a_bound(sent)) {
      return format_text("it sends {} of what it has, and no bound calls for that", factor);
    }
  }
  for (std::size_t i = 0; i < sent.size(); ++i) {
    const double off = std::abs(sent[i] - factor * exact.values[i]);
    if (off <= 2 * kRounding * exact.added[i] + doubt * std::abs(exact.values[i]) + 0x1p-120) continue;
    return format_text("value {} that it sends is {}; its vector makes {}", std::uint64_t{i}, sent[i],
                       factor * exact.values[i]);
  }
  return {};
}

// Of the places of a value of a matrix, of P and of Q that belong together.
void Factors::for_each_product(const std::function<void(std::size_t, std::size_t, std::size_t)>& visit) const {
  for (const kernels::reference::CutMatrix& cut : low_rank_.cuts()) {
    for (std::size_t at = 0; at < cut.rows * cut.cols * cut.rank; ++at) {
      const std::size_t j = at % cut.cols, i = at / cut.cols % cut.rows, k = at / cut.cols / cut.rows;
      visit(cut.first + i * cut.cols + j, cut.p_first + k * cut.rows + i, cut.q_first + k * cut.cols + j);
    }
  }
}

std::string Factors::wrong_first(std::span<const float> p, std::span<const float> q,
                                 const std::vector<double>& sent) const {
  if (p.size() != low_rank_.value_count() || q.size() != q_count_) return "its vector or its state has another length";
  Exact exact{std::vector<double>(sent_values(0)), std::vector<double>(sent_values(0))};
  for_each_product([&](std::size_t m, std::size_t in_p, std::size_t in_q) {
    const double product = wide(p[m]) * wide(q[in_q]);
    exact.values[in_p] += product;
    exact.added[in_p] += std::abs(product);
  });
  return wrong_sent(exact, sent);
}

std::string Factors::wrong_second(std::span<const float> p, std::span<const float> basis,
                                  const std::vector<double>& sent, std::span<const float> left) const {
  if (p.size() != low_rank_.value_count() || basis.size() != sent_values(0)) {
    return "its vector or the mean has another length";
  }
  Exact exact{std::vector<double>(sent_values(1)), std::vector<double>(sent_values(1))};
  for (std::size_t i = 0; i < plain_.size(); ++i) {
    exact.values[q_count_ + i] = wide(p[plain_[i]]);
    exact.added[q_count_ + i] = std::abs(wide(p[plain_[i]]));
  }
  for_each_product([&](std::size_t m, std::size_t in_p, std::size_t in_q) {
    const double product = wide(p[m]) * wide(basis[in_p]);
    exact.values[in_q] += product;
    exact.added[in_q] += std::abs(product);
  });
  const std::string wrong = wrong_sent(exact, sent);
  if (!wrong.empty()) return wrong;
  std::vector<float> narrow;
  for (const double value : sent) narrow.push_back(static_cast<float>(value));
  return wrong_left(p, basis, narrow, left, !reaches_a_bound(exact.values));
}

// What a factor left out was rounded once more.
std::string Factors::wrong_left(std::span<const float> p, std::span<const float> basis, const std::vector<float>& sent,
                                std::span<const float> left, bool to_the_bit) const {
  if (left.size() != p.size()) return "what it leaves has another length";
  std::vector<float> expected = low_rank_.left(p, basis, sent);
  for (std::size_t i = 0; i < plain_.size(); ++i) expected[plain_[i]] = p[plain_[i]] - sent[q_count_ + i];
  std::vector<double> doubt(p.size());
  for (const kernels::reference::CutMatrix& cut : low_rank_.cuts()) {
    for (std::size_t at = 0; !to_the_bit && at < cut.rows * cut.cols; ++at) {
      double added = std::abs(wide(p[cut.first + at]));
      for (std::size_t k = 0; k < cut.rank; ++k) {
        added += std::abs(wide(basis[cut.p_first + k * cut.rows + at / cut.cols]) *
                          wide(sent[cut.q_first + k * cut.cols + at % cut.cols]));
      }
      doubt[cut.first + at] = 0x1p-21 * added;
    }
  }
  for (std::size_t i = 0; i < p.size(); ++i) {
    if (std::abs(wide(left[i]) - wide(expected[i])) <= doubt[i]) continue;
    return format_text("value {} that it leaves is {}; what it had and what it sends make {}", std::uint64_t{i},
                       left[i], expected[i]);
  }
  return {};
}

}  // namespace fluvial::simulator
