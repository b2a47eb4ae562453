// Low-rank factors, naively, written from docs/formats/codecs-powersgd.md. Matrices are row-major; factors are stored
// one column after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fluvial::kernels::reference {

struct Matrix {
  std::size_t rows = 0, cols = 0;
  std::vector<double> values;
};

// The warm start of the first round: columns of `cols` values, the first of them `first` in the whole warm start.
std::vector<double> drawn_factors(std::uint64_t run, std::uint64_t first, std::size_t cols, std::size_t rank);
// M q and M^T p.
std::vector<double> times(const Matrix& m, const std::vector<double>& q, std::size_t rank);
std::vector<double> transposed_times(const Matrix& m, const std::vector<double>& p, std::size_t rank);
// The columns of p made orthonormal in order; those that depend on the ones before become zero.
std::vector<double> orthonormal(const std::vector<double>& p, std::size_t rows, std::size_t rank);
// p q^T.
Matrix outer(const std::vector<double>& p, const std::vector<double>& q, std::size_t rows, std::size_t cols,
             std::size_t rank);

double norm(const Matrix& m);  // Frobenius
// Singular values, greatest first, by one-sided Jacobi rotations (Hestenes 1958).
std::vector<double> singular_values(const Matrix& m);
// How far the nearest matrix of that rank is (Eckart and Young 1936).
double distance_to_rank(const Matrix& m, std::size_t rank);

}  // namespace fluvial::kernels::reference
