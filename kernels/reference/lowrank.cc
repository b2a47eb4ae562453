#include "kernels/reference/lowrank.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <string>

#include "kernels/reference/reference.h"

namespace fluvial::kernels::reference {
namespace {

double dot(std::span<const double> a, std::span<const double> b) {
  std::array<double, 16> lanes{};
  for (std::size_t i = 0; i < a.size(); ++i) lanes[i % 16] += a[i] * b[i];
  for (std::size_t half = 8; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// By the power of two that brings its norm into [0.5, 1).
void scale(std::span<float> column) {
  const std::vector<double> wide(column.begin(), column.end());
  int exponent = 0;
  (void)std::frexp(std::sqrt(dot(wide, wide)), &exponent);
  for (float& value : column) value = static_cast<float>(std::ldexp(static_cast<double>(value), -exponent));
}

// Value (i, j) of P Q^T.
float product(const CutMatrix& cut, std::span<const float> p, std::span<const float> q, std::size_t i, std::size_t j) {
  float sum = p[cut.p_first + i] * q[cut.q_first + j];
  for (std::size_t k = 1; k < cut.rank; ++k) {
    const float term = p[cut.p_first + k * cut.rows + i] * q[cut.q_first + k * cut.cols + j];
    sum = sum + term;
  }
  return sum;
}

}  // namespace

std::optional<std::size_t> powersgd_rank(std::string_view codec) {
  if (codec != "powersgd" && !codec.starts_with("powersgd:")) return std::nullopt;
  constexpr std::string_view kKey = "rank=";
  const std::size_t at = codec.find(kKey);
  return at == std::string_view::npos ? 2 : std::stoul(std::string(codec.substr(at + kKey.size())));
}

LowRank::LowRank(const std::vector<std::vector<std::uint64_t>>& tensors, std::size_t rank) {
  for (const std::vector<std::uint64_t>& dims : tensors) {
    std::uint64_t count = 1;
    for (const std::uint64_t dim : dims) count *= dim;
    if (dims.size() >= 2 && count > 0) {
      const auto n = static_cast<std::size_t>(dims[0]);
      const std::size_t m = static_cast<std::size_t>(count) / n;
      const std::size_t r = std::min({rank, n, m});
      if (n * m > 2 * r * (n + m)) {
        cuts_.push_back({value_count_, n, m, r, p_count_, q_count_});
        p_count_ += r * n;
        q_count_ += r * m;
      }
    }
    value_count_ += static_cast<std::size_t>(count);
  }
}

std::size_t LowRank::sent_count(std::uint32_t pass) const {
  if (pass == 0) return p_count_;
  std::size_t count = q_count_ + value_count_;
  for (const CutMatrix& cut : cuts_) count -= cut.rows * cut.cols;
  return count;
}

std::vector<float> LowRank::warm_start(std::uint64_t run, std::span<const float> mean) const {
  std::vector<float> q(q_count_);
  for (std::size_t i = 0; i < std::min(q.size(), mean.size()); ++i) q[i] = mean[i];
  for (const CutMatrix& cut : cuts_) {
    for (std::size_t k = 0; k < cut.rank; ++k) {
      const std::size_t first = cut.q_first + k * cut.cols;
      const std::span<float> column = std::span(q).subspan(first, cut.cols);
      if (std::ranges::all_of(column, [](float value) { return value == 0; })) {
        for (std::size_t j = 0; j < column.size(); ++j) {
          const auto bits = static_cast<int>(random_bits(run, UINT64_MAX, UINT32_MAX, first + j));
          column[j] = static_cast<float>(2 * bits - 65535) / 65536;
        }
      }
      scale(column);
    }
  }
  return q;
}

std::vector<float> LowRank::basis(std::span<const float> mean) const {
  std::vector<float> out(mean.size());
  for (const CutMatrix& cut : cuts_) {
    std::vector<std::vector<double>> columns;
    for (std::size_t k = 0; k < cut.rank; ++k) {
      const std::size_t first = cut.p_first + k * cut.rows;
      const std::span<const float> from = mean.subspan(first, cut.rows);
      std::vector<double> column(from.begin(), from.end());
      const double before = std::sqrt(dot(column, column));
      for (const std::vector<double>& unit : columns) {
        const double along = dot(unit, column);
        for (std::size_t i = 0; i < column.size(); ++i) {
          const double part = along * unit[i];
          column[i] = column[i] - part;
        }
      }
      const double after = std::sqrt(dot(column, column));
      const bool stays = after > 1e-8 * before;
      for (std::size_t i = 0; i < column.size(); ++i) {
        column[i] = stays ? column[i] / after : 0.0;
        out[first + i] = static_cast<float>(column[i]);
      }
      columns.push_back(std::move(column));
    }
  }
  return out;
}

std::vector<float> LowRank::expanded(std::span<const float> basis, std::span<const float> sent) const {
  std::vector<float> out;
  out.reserve(value_count_);
  std::size_t plain = q_count_;  // the next value that is not cut
  for (const CutMatrix& cut : cuts_) {
    while (out.size() < cut.first) out.push_back(sent[plain++]);
    for (std::size_t i = 0; i < cut.rows; ++i) {
      for (std::size_t j = 0; j < cut.cols; ++j) out.push_back(product(cut, basis, sent, i, j) + 0.0F);
    }
  }
  while (out.size() < value_count_) out.push_back(sent[plain++]);
  return out;
}

std::vector<float> LowRank::left(std::span<const float> p, std::span<const float> basis,
                                 std::span<const float> sent) const {
  std::vector<float> out(value_count_);
  for (const CutMatrix& cut : cuts_) {
    for (std::size_t i = 0; i < cut.rows; ++i) {
      for (std::size_t j = 0; j < cut.cols; ++j) {
        const std::size_t at = cut.first + i * cut.cols + j;
        out[at] = p[at] - product(cut, basis, sent, i, j);
      }
    }
  }
  return out;
}

}  // namespace fluvial::kernels::reference
