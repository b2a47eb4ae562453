// The robust rules by definition, in fp64: sorting, repeating, trying all. For tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fluvial::kernels::reference {

using Vectors = std::vector<std::vector<double>>;

double median(std::vector<double> values);
double trimmed_mean(std::vector<double> values, std::size_t drop);
// Every value as often as its weight says.
std::vector<double> repeated(const std::vector<double>& values, const std::vector<std::uint32_t>& weights);
// The mean of the `count` values nearest the median, of equally near ones the lesser first.
double mean_around_median(std::vector<double> values, std::size_t count);

double squared_distance(const std::vector<double>& a, const std::vector<double>& b);
// The m updates of the least Krum score, increasing.
std::vector<std::size_t> multi_krum(const Vectors& updates, std::size_t f, std::size_t m);
// Bulyan's choice by repeated Krum, increasing.
std::vector<std::size_t> bulyan(const Vectors& updates, std::size_t f);
// The point with the least sum of weighted distances, by many small steps.
std::vector<double> geometric_median(const Vectors& updates, const std::vector<std::uint32_t>& weights);
std::vector<double> centered_clipping(const Vectors& updates, std::vector<double> v, double tau,
                                      std::size_t iterations);

}  // namespace fluvial::kernels::reference
