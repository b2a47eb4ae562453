// A convolution block of the cnn: 3 x 3 filters with a border of zeros, ReLU, then the largest of each 2 x 2 square.
//
// Maps are [channel][row][column]. Parameters are those of PyTorch's Conv2d: filters [out][in][3][3], then a bias for
// each output. Holds scratch space of the last forward(): one thread at a time. T is float; the test of the gradient
// uses double.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fluvial::digits {

struct ConvolutionShape {
  std::size_t inputs = 1;   // channels
  std::size_t outputs = 1;  // channels
  std::size_t side = 2;     // rows, and columns, of the input; even

  std::size_t filter_count() const { return inputs * outputs * 9; }
  std::size_t parameter_count() const { return filter_count() + outputs; }
  std::size_t input_count() const { return inputs * side * side; }
  std::size_t output_count() const { return outputs * (side / 2) * (side / 2); }
};

template <typename T>
class Convolution {
 public:
  explicit Convolution(const ConvolutionShape& shape);

  // Valid until the next forward().
  std::span<const T> forward(std::span<const T> parameters, std::span<const T> maps);
  // After forward() of the same parameters and maps. `errors` is d loss / d output. Adds to `gradient`; sets
  // `map_errors`, d loss / d input, unless it is empty.
  void backward(std::span<const T> parameters, std::span<const T> maps, std::span<const T> errors,
                std::span<T> gradient, std::span<T> map_errors) const;

 private:
  ConvolutionShape shape_;
  std::vector<T> before_;              // the filters' outputs, before the ReLU
  std::vector<T> after_;               // after ReLU and pooling
  std::vector<std::uint32_t> chosen_;  // for each of after_, where in before_ it is from
};

extern template class Convolution<float>;
extern template class Convolution<double>;

}  // namespace fluvial::digits
