#include "kernels/reference/powersgd.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "kernels/reference/reference.h"

namespace fluvial::kernels::reference {

std::vector<double> drawn_factors(std::uint64_t run, std::uint64_t first, std::size_t cols, std::size_t rank) {
  std::vector<double> q;
  for (std::size_t k = 0; k < rank; ++k) {
    std::vector<double> column(cols);
    double squares = 0;
    for (std::size_t j = 0; j < cols; ++j) {
      const double bits = random_bits(run, UINT64_MAX, UINT32_MAX, first + k * cols + j);
      column[j] = (bits - 32767.5) / 32768;
      squares += column[j] * column[j];
    }
    double scale = 1;
    while (std::sqrt(squares) * scale >= 1) scale /= 2;
    while (std::sqrt(squares) * scale < 0.5) scale *= 2;
    for (const double value : column) q.push_back(value * scale);
  }
  return q;
}

std::vector<double> times(const Matrix& m, const std::vector<double>& q, std::size_t rank) {
  std::vector<double> p(rank * m.rows, 0.0);
  for (std::size_t k = 0; k < rank; ++k) {
    for (std::size_t i = 0; i < m.rows; ++i) {
      for (std::size_t j = 0; j < m.cols; ++j) p[k * m.rows + i] += m.values[i * m.cols + j] * q[k * m.cols + j];
    }
  }
  return p;
}

std::vector<double> transposed_times(const Matrix& m, const std::vector<double>& p, std::size_t rank) {
  std::vector<double> q(rank * m.cols, 0.0);
  for (std::size_t k = 0; k < rank; ++k) {
    for (std::size_t i = 0; i < m.rows; ++i) {
      for (std::size_t j = 0; j < m.cols; ++j) q[k * m.cols + j] += m.values[i * m.cols + j] * p[k * m.rows + i];
    }
  }
  return q;
}

std::vector<double> orthonormal(const std::vector<double>& p, std::size_t rows, std::size_t rank) {
  std::vector<double> out;
  for (std::size_t k = 0; k < rank; ++k) {
    std::vector<long double> column(p.begin() + static_cast<std::ptrdiff_t>(k * rows),
                                    p.begin() + static_cast<std::ptrdiff_t>((k + 1) * rows));
    const auto length = [&] {
      long double squares = 0;
      for (const long double value : column) squares += value * value;
      return std::sqrt(squares);
    };
    const long double before = length();
    for (int twice = 0; twice < 2; ++twice) {
      for (std::size_t l = 0; l < k; ++l) {
        long double along = 0;
        for (std::size_t i = 0; i < rows; ++i) along += column[i] * static_cast<long double>(out[l * rows + i]);
        for (std::size_t i = 0; i < rows; ++i) column[i] -= along * static_cast<long double>(out[l * rows + i]);
      }
    }
    const long double after = length();
    const bool dependent = after <= 1e-8L * before;
    for (const long double value : column) out.push_back(dependent ? 0.0 : static_cast<double>(value / after));
  }
  return out;
}

Matrix outer(const std::vector<double>& p, const std::vector<double>& q, std::size_t rows, std::size_t cols,
             std::size_t rank) {
  Matrix m{rows, cols, std::vector<double>(rows * cols, 0.0)};
  for (std::size_t i = 0; i < rows; ++i) {
    for (std::size_t j = 0; j < cols; ++j) {
      for (std::size_t k = 0; k < rank; ++k) m.values[i * cols + j] += p[k * rows + i] * q[k * cols + j];
    }
  }
  return m;
}

double norm(const Matrix& m) {
  double squares = 0;
  for (const double value : m.values) squares += value * value;
  return std::sqrt(squares);
}

std::vector<double> singular_values(const Matrix& m) {
  std::vector<std::vector<double>> columns(m.cols, std::vector<double>(m.rows));
  for (std::size_t i = 0; i < m.values.size(); ++i) columns[i % m.cols][i / m.cols] = m.values[i];
  const auto dot = [&](std::size_t a, std::size_t b) {
    double sum = 0;
    for (std::size_t i = 0; i < m.rows; ++i) sum += columns[a][i] * columns[b][i];
    return sum;
  };
  bool turned = true;
  for (int sweep = 0; sweep < 60 && turned; ++sweep) {
    turned = false;
    for (std::size_t a = 0; a + 1 < m.cols; ++a) {
      for (std::size_t b = a + 1; b < m.cols; ++b) {
        const double aa = dot(a, a), bb = dot(b, b), ab = dot(a, b);
        if (std::fabs(ab) <= 1e-15 * std::sqrt(aa * bb)) continue;
        turned = true;
        const double angle = 0.5 * std::atan2(2 * ab, aa - bb);
        const double c = std::cos(angle), s = std::sin(angle);
        for (std::size_t i = 0; i < m.rows; ++i) {
          const double x = columns[a][i], y = columns[b][i];
          columns[a][i] = c * x + s * y;
          columns[b][i] = c * y - s * x;
        }
      }
    }
  }
  std::vector<double> values;
  for (std::size_t a = 0; a < m.cols; ++a) values.push_back(std::sqrt(dot(a, a)));
  std::sort(values.begin(), values.end(), std::greater<>());
  return values;
}

double distance_to_rank(const Matrix& m, std::size_t rank) {
  const std::vector<double> values = singular_values(m);
  double squares = 0;
  for (std::size_t i = rank; i < values.size(); ++i) squares += values[i] * values[i];
  return std::sqrt(squares);
}

}  // namespace fluvial::kernels::reference
