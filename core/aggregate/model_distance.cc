#include "core/aggregate/model_distance.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <numeric>
#include <vector>

namespace fluvial::aggregate {
namespace {

constexpr std::uint64_t kPieceValues = 1 << 20;  // for one thread
constexpr std::size_t kBlockValues = 1024;       // stays in the first cache
constexpr std::size_t kLanes = 8;

struct Piece {
  std::uint64_t offset_bytes;
  std::uint64_t values;
};

std::vector<Piece> pieces_of(const round::Schema& schema) {
  std::vector<Piece> pieces;
  for (std::size_t t = 0; t < schema.tensors().size(); ++t) {
    if (!round::is_averaged(schema.tensors()[t].dtype)) continue;
    const std::uint64_t count = schema.tensor_values(t);
    for (std::uint64_t first = 0; first < count; first += kPieceValues) {
      pieces.push_back({schema.tensor_offset_bytes(t) + first * sizeof(float), std::min(kPieceValues, count - first)});
    }
  }
  return pieces;
}

// Bytes of a model need not be aligned as floats, so a block is copied. The rest of the last one is zero in both.
double squares_of(ByteSpan a, ByteSpan b) {
  std::array<double, kLanes> sums = {};
  for (std::size_t at = 0; at < a.size(); at += kBlockValues * sizeof(float)) {
    std::array<float, kBlockValues> x = {};
    std::array<float, kBlockValues> y = {};
    const std::size_t size = std::min(sizeof x, a.size() - at);
    std::memcpy(x.data(), a.data() + at, size);
    std::memcpy(y.data(), b.data() + at, size);
    for (std::size_t i = 0; i < kBlockValues; i += kLanes) {
      for (std::size_t lane = 0; lane < kLanes; ++lane) {
        const double apart = static_cast<double>(x[i + lane]) - static_cast<double>(y[i + lane]);
        sums[lane] += apart * apart;
      }
    }
  }
  return std::accumulate(sums.begin(), sums.end(), 0.0);
}

}  // namespace

double model_distance(Parallel& parallel, const round::Schema& schema, ByteSpan a, ByteSpan b) {
  FLUVIAL_CHECK(a.size() == schema.model_bytes() && b.size() == a.size(), "models of the schema's size");
  const std::vector<Piece> pieces = pieces_of(schema);
  std::vector<double> squares(pieces.size());
  const Status done = parallel.for_each(pieces.size(), [&](std::size_t i) -> Status {
    const auto of = [&](ByteSpan model) {
      return model.subspan(pieces[i].offset_bytes, pieces[i].values * sizeof(float));
    };
    squares[i] = squares_of(of(a), of(b));
    return {};
  });
  FLUVIAL_CHECK(done.ok(), "nothing here fails");
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
}

}  // namespace fluvial::aggregate
