#include "examples/digits/convolution.h"

#include <algorithm>

#include "core/base/check.h"

namespace fluvial::digits {
namespace {

// Calls visit(filter weight's index, the first output, the first input, how many) for each run of outputs in a row that
// one weight of a filter connects with inputs. Indices are within the filters of one pair of channels and within one
// map.
template <typename Visit>
void each_run(std::size_t side, Visit&& visit) {
  for (std::size_t i = 0; i < 9; ++i) {
    const std::size_t down = i / 3;  // 0: the row above, 1: this one, 2: the row below
    const std::size_t right = i % 3;
    const std::size_t first = right == 0 ? 1 : 0;
    const std::size_t count = right == 1 ? side : side - 1;
    for (std::size_t row = down == 0 ? 1 : 0; row < side && row + down <= side; ++row) {
      visit(i, row * side + first, (row + down - 1) * side + first + right - 1, count);
    }
  }
}

}  // namespace

template <typename T>
Convolution<T>::Convolution(const ConvolutionShape& shape)
    : shape_(shape),
      before_(shape.outputs * shape.side * shape.side),
      after_(shape.output_count()),
      chosen_(shape.output_count()) {
  FLUVIAL_CHECK(shape.side >= 2 && shape.side % 2 == 0, "2 x 2 squares cover the maps");
}

template <typename T>
std::span<const T> Convolution<T>::forward(std::span<const T> parameters, std::span<const T> maps) {
  const std::size_t side = shape_.side;
  const std::size_t area = side * side;
  for (std::size_t out = 0; out < shape_.outputs; ++out) {
    T* const map = before_.data() + out * area;
    std::fill_n(map, area, parameters[shape_.filter_count() + out]);
    for (std::size_t in = 0; in < shape_.inputs; ++in) {
      const T* const filter = parameters.data() + (out * shape_.inputs + in) * 9;
      const T* const from = maps.data() + in * area;
      each_run(side, [&](std::size_t weight, std::size_t to, std::size_t input, std::size_t count) {
        for (std::size_t i = 0; i < count; ++i) map[to + i] += filter[weight] * from[input + i];
      });
    }
  }
  std::size_t next = 0;
  for (std::size_t out = 0; out < shape_.outputs; ++out) {
    for (std::size_t row = 0; row < side; row += 2) {
      for (std::size_t column = 0; column < side; column += 2, ++next) {
        const std::size_t corner = out * area + row * side + column;
        std::size_t largest = corner;
        for (const std::size_t other : {corner + 1, corner + side, corner + side + 1}) {
          if (before_[other] > before_[largest]) largest = other;
        }
        chosen_[next] = static_cast<std::uint32_t>(largest);
        after_[next] = std::max(before_[largest], T(0));
      }
    }
  }
  return after_;
}

template <typename T>
void Convolution<T>::backward(std::span<const T> parameters, std::span<const T> maps, std::span<const T> errors,
                              std::span<T> gradient, std::span<T> map_errors) const {
  const std::size_t side = shape_.side;
  const std::size_t area = side * side;
  const std::size_t pooled = area / 4;
  std::fill(map_errors.begin(), map_errors.end(), T(0));
  std::vector<T> own(area);  // d loss / d before the ReLU, of one channel: 0 but at what was chosen
  for (std::size_t out = 0; out < shape_.outputs; ++out) {
    std::fill(own.begin(), own.end(), T(0));
    for (std::size_t i = out * pooled; i < (out + 1) * pooled; ++i) {
      if (after_[i] <= T(0)) continue;
      own[chosen_[i] - out * area] = errors[i];
      gradient[shape_.filter_count() + out] += errors[i];
    }
    for (std::size_t in = 0; in < shape_.inputs; ++in) {
      const std::size_t filter = (out * shape_.inputs + in) * 9;
      const T* const from = maps.data() + in * area;
      each_run(side, [&](std::size_t weight, std::size_t to, std::size_t input, std::size_t count) {
        T sum = 0;
        for (std::size_t i = 0; i < count; ++i) sum += own[to + i] * from[input + i];
        gradient[filter + weight] += sum;
        if (map_errors.empty()) return;
        T* const back = map_errors.data() + in * area + input;
        for (std::size_t i = 0; i < count; ++i) back[i] += own[to + i] * parameters[filter + weight];
      });
    }
  }
}

template class Convolution<float>;
template class Convolution<double>;

}  // namespace fluvial::digits
