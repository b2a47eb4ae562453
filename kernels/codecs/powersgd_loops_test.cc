// The loops of low-rank factors give, on every target, the bits of their definition (cpu/lowrank_loops.h), whatever the
// shapes.
#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/cpu/lowrank_loops.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using test_values::bits_of;
using test_values::normals;

struct Shape {
  std::size_t rows, cols, rank;
};

constexpr Shape kShapes[] = {{1, 1, 1},     {3, 17, 2},    {4, 16, 4},    {5, 15, 3},   {9, 33, 5},
                             {8, 2048, 2},  {7, 64, 7},    {11, 2049, 1}, {6, 4100, 6}, {256, 20, 2},
                             {263, 530, 3}, {520, 513, 9}, {2, 31, 64}};

double sum_of(std::vector<double> lanes) {
  for (std::size_t half = lanes.size() / 2; half > 0; half /= 2) {
    for (std::size_t l = 0; l < half; ++l) lanes[l] += lanes[l + half];
  }
  return lanes[0];
}

float projected(const std::vector<float>& m, const Shape& shape, const std::vector<float>& q, std::size_t i,
                std::size_t k) {
  double sum = 0;
  for (std::size_t first = 0; first < shape.cols; first += cpu::kLowrankCols) {
    float lanes[16] = {};
    for (std::size_t j = first; j < std::min(first + cpu::kLowrankCols, shape.cols); ++j) {
      const float product = m[i * shape.cols + j] * q[k * shape.cols + j];
      lanes[(j - first) % 16] = lanes[(j - first) % 16] + product;
    }
    sum += sum_of(std::vector<double>(lanes, lanes + 16));
  }
  return static_cast<float>(sum);
}

float projected_back(const std::vector<float>& m, const Shape& shape, const std::vector<float>& p, std::size_t j,
                     std::size_t k) {
  double sum = 0;
  for (std::size_t first = 0; first < shape.rows; first += cpu::kLowrankRows) {
    const std::size_t rows = std::min(cpu::kLowrankRows, shape.rows - first);
    const std::size_t grouped = rows / cpu::kLowrankGroup * cpu::kLowrankGroup;
    float block = 0;
    for (std::size_t i = 0; i < rows;) {
      const std::size_t end = i < grouped ? i + cpu::kLowrankGroup : i + 1;
      float group = m[(first + i) * shape.cols + j] * p[k * shape.rows + first + i];
      for (++i; i < end; ++i) {
        const float product = m[(first + i) * shape.cols + j] * p[k * shape.rows + first + i];
        group = group + product;
      }
      block = block + group;
    }
    sum += static_cast<double>(block);
  }
  return static_cast<float>(sum);
}

float outer(const Shape& shape, const std::vector<float>& p, const std::vector<float>& q, std::size_t at) {
  float sum = 0;
  for (std::size_t k = 0; k < shape.rank; ++k) {
    const float product = q[k * shape.cols + at % shape.cols] * p[k * shape.rows + at / shape.cols];
    sum = k == 0 ? product : sum + product;
  }
  return sum;
}

class LowrankLoops : public ::testing::TestWithParam<cpu::Target> {
 protected:
  const cpu::LowrankLoops& loops_ = cpu::lowrank_loops(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Targets, LowrankLoops, ::testing::ValuesIn(cpu::supported_targets()),
                         [](const auto& test) { return std::string(cpu::target_name(test.param)); });

TEST_P(LowrankLoops, ProjectAsDefined) {
  for (const Shape& shape : kShapes) {
    const auto m = normals(shape.rows * shape.cols, 1);
    const auto q = normals(shape.rank * shape.cols, 2);
    std::vector<float> p(shape.rank * shape.rows), expected(p.size());
    loops_.project(m.data(), shape.rows, shape.cols, q.data(), shape.rank, p.data(), shape.rows);
    for (std::size_t i = 0; i < p.size(); ++i) {
      expected[i] = projected(m, shape, q, i % shape.rows, i / shape.rows);
    }
    EXPECT_EQ(bits_of(p), bits_of(expected)) << shape.rows << " x " << shape.cols << " rank " << shape.rank;
  }
}

TEST_P(LowrankLoops, ProjectBackAsDefinedInAnyParts) {
  for (const Shape& shape : kShapes) {
    const auto m = normals(shape.rows * shape.cols, 3);
    const auto p = normals(shape.rank * shape.rows, 4);
    std::vector<float> expected(shape.rank * shape.cols);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = projected_back(m, shape, p, i % shape.cols, i / shape.cols);
    }
    for (const std::size_t step : {shape.cols, std::size_t{7}, std::size_t{512}}) {
      std::vector<double> sums(expected.size());
      std::vector<float> q(expected.size());
      for (std::size_t first = 0; first < shape.cols; first += step) {
        loops_.project_back(m.data(), shape.rows, shape.cols, first, std::min(step, shape.cols - first), p.data(),
                            shape.rank, sums.data(), q.data());
      }
      EXPECT_EQ(bits_of(q), bits_of(expected)) << shape.rows << " x " << shape.cols << " in steps of " << step;
    }
  }
}

TEST_P(LowrankLoops, LeaveAndExpandAsDefinedInAnyParts) {
  for (const Shape& shape : kShapes) {
    const std::size_t n = shape.rows * shape.cols;
    const auto m = normals(n, 5);
    const auto p = normals(shape.rank * shape.rows, 6);
    const auto q = normals(shape.rank * shape.cols, 7);
    std::vector<float> left(n), expanded(n);
    for (std::size_t i = 0; i < n; ++i) {
      expanded[i] = outer(shape, p, q, i) + 0.0F;
      left[i] = m[i] - expanded[i];
    }
    for (const std::size_t step : {n, std::size_t{100}, 3 * shape.cols + 5, 9 * shape.cols}) {
      std::vector<float> in_place = m, out(n);
      for (std::size_t first = 0; first < n; first += step) {
        const std::size_t count = std::min(step, n - first);
        loops_.leave(in_place.data() + first, first, count, shape.rows, shape.cols, p.data(), q.data(), shape.rank,
                     in_place.data() + first);
        loops_.expand(first, count, shape.rows, shape.cols, p.data(), q.data(), shape.rank, out.data() + first);
      }
      EXPECT_EQ(bits_of(in_place), bits_of(left)) << shape.rows << " x " << shape.cols << " in steps of " << step;
      EXPECT_EQ(bits_of(out), bits_of(expanded)) << shape.rows << " x " << shape.cols << " in steps of " << step;
    }
  }
}

TEST_P(LowrankLoops, DotAndSubtractAsDefined) {
  for (const std::size_t n : {0U, 1U, 15U, 16U, 17U, 1000U}) {
    const auto x = normals(n, 8), y = normals(n, 9);
    const std::vector<double> a(x.begin(), x.end()), b(y.begin(), y.end());
    std::vector<double> lanes(16, 0.0), rest = b, expected = b;
    for (std::size_t i = 0; i < n; ++i) {
      lanes[i % 16] += a[i] * b[i];
      expected[i] -= 0.37 * a[i];
    }
    EXPECT_EQ(loops_.dot(a.data(), b.data(), n), sum_of(lanes));
    loops_.subtract_scaled(0.37, a.data(), n, rest.data());
    EXPECT_EQ(rest, expected);
  }
}

}  // namespace
}  // namespace fluvial::kernels
