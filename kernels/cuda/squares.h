// Sums of squares and products in the CPU's order: lane i of 16 adds the terms i, i + 16, ... one after the other. So
// 16 threads of one block add, while the others fetch what comes next.
//
// Long sums of squares are faster, with the same bits. While a sum stays between two powers of two, adding to it rounds
// each term to whole units of its last place. That is addition of integers, in any order, except that a term which ends
// in half a unit goes up or down by the sum's lowest bit. So each block finds what its piece of the vector adds to an
// even and to an odd sum, in the units of the sum that it expects; and pieces in a row that expect the same units make
// a group. One block then goes over the groups. It takes a group's pieces, or a piece's terms, one by one only where
// the sum was another, or where it passes a power of two. Internal.
#pragma once

#include <cmath>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/warp.h"
#include "kernels/device_vector.h"
#include "kernels/ops/norm.h"

namespace fluvial::kernels::FLUVIAL_GPU {

inline constexpr unsigned kSquareThreads = 512;
inline constexpr unsigned kSquareLanes = std::tuple_size_v<SquareLanes>;
inline constexpr std::uint32_t kSquareTile = 2048;  // a multiple of the lanes

// The sum of this thread's lane, where it has one: `sum` and term.at(i) for its part of n. All kSquareThreads call it.
template <typename Term>
__device__ double add_in_lanes(double sum, std::uint64_t n, const Term& term) {
  __shared__ double tiles[2][kSquareTile];
  const auto fetch = [&](std::uint64_t first, double* to, unsigned thread, unsigned threads) {
    for (std::uint32_t i = thread; i < kSquareTile && first + i < n; i += threads) to[i] = term.at(first + i);
  };
  fetch(0, tiles[0], threadIdx.x, kSquareThreads);
  __syncthreads();
  unsigned which = 0;
  for (std::uint64_t first = 0; first < n; first += kSquareTile) {
    if (threadIdx.x < kSquareLanes) {
      const std::uint64_t left = n - first;
      const std::uint32_t length = left < kSquareTile ? static_cast<std::uint32_t>(left) : kSquareTile;
      for (std::uint32_t i = threadIdx.x; i < length; i += kSquareLanes) sum += tiles[which][i];
    } else if (threadIdx.x >= kWarp) {
      fetch(first + kSquareTile, tiles[1 - which], threadIdx.x - kWarp, kSquareThreads - kWarp);
    }
    which = 1 - which;
    __syncthreads();
  }
  return sum;
}

// The lanes' sum, for all threads.
__device__ inline double total_of_lanes(double sum) {
  __shared__ double lanes[kSquareLanes];
  if (threadIdx.x < kSquareLanes) lanes[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) ops::add_lanes(lanes, kSquareLanes);
  __syncthreads();
  const double total = lanes[0];
  __syncthreads();
  return total;
}

// The square of source.at(i), a float.
template <typename Source>
struct SquareOf {
  Source source;
  __device__ double at(std::uint64_t index) const {
    const double wide = static_cast<double>(source.at(index));
    return wide * wide;
  }
};

struct VectorAt {
  const float* x;
  __device__ float at(std::uint64_t index) const { return x[index]; }
};

// lanes += the squares of source.at(0) to source.at(n - 1). One block.
template <typename Source>
__global__ void __launch_bounds__(kSquareThreads) add_squares_of(Source source, std::uint64_t n, double* lanes) {
  const double before = threadIdx.x < kSquareLanes ? lanes[threadIdx.x] : 0;
  const double sum = add_in_lanes(before, n, SquareOf<Source>{source});
  if (threadIdx.x < kSquareLanes) lanes[threadIdx.x] = sum;
}

inline constexpr unsigned kPieceThreads = 256;
inline constexpr unsigned kPieceParts = kPieceThreads / kSquareLanes;                   // threads of a lane
inline constexpr std::uint32_t kPartRows = kSquaresPiece / kSquareLanes / kPieceParts;  // terms of a thread
inline constexpr std::uint64_t kUnitsEnd = std::uint64_t{1} << 53;  // of a sum's last place, to the next power of two

// Where the sums of pieces and of groups are, a lane's at [16 i + lane]. Starts of pieces count from their group's
// until sum_squares_in_units().
struct SquaresMemory {
  std::uint32_t pieces;
  SquaresPiece* of_pieces;
  SquaresPiece* of_groups;

  static SquaresMemory of(DeviceSpan<std::byte> workspace, std::uint64_t n) {
    const auto pieces = static_cast<std::uint32_t>((n + kSquaresPiece - 1) / kSquaresPiece);
    auto* const first = reinterpret_cast<SquaresPiece*>(workspace.data());
    return {.pieces = pieces, .of_pieces = first, .of_groups = first + std::size_t{pieces} * kSquareLanes};
  }
  __host__ __device__ std::uint32_t groups() const {
    return (pieces + static_cast<std::uint32_t>(kSquaresGroup) - 1) / static_cast<std::uint32_t>(kSquaresGroup);
  }
};

// Calls run(term) for a thread's terms of a piece, in the order of its lane.
template <typename Term, typename Run>
__device__ inline void for_part(const Term& term, std::uint64_t n, std::uint32_t piece, Run run) {
  constexpr std::uint32_t kAhead = 8;  // loads under way
  const std::uint64_t first = static_cast<std::uint64_t>(piece) * kSquaresPiece +
                              kPartRows * kSquareLanes * (threadIdx.x / kSquareLanes) + threadIdx.x % kSquareLanes;
  if (first + (kPartRows - 1) * kSquareLanes < n) {
    for (std::uint32_t row = 0; row < kPartRows; row += kAhead) {
      double ahead[kAhead];
      FLUVIAL_UNROLL
      for (std::uint32_t i = 0; i < kAhead; ++i) ahead[i] = term.at(first + (row + i) * kSquareLanes);
      FLUVIAL_UNROLL
      for (std::uint32_t i = 0; i < kAhead; ++i) run(ahead[i]);
    }
    return;
  }
  for (std::uint32_t row = 0; row < kPartRows && first + row * kSquareLanes < n; ++row) {
    run(term.at(first + row * kSquareLanes));
  }
}

// Roughly what each piece adds to each lane, stored as its start for now.
template <typename Term>
__global__ void __launch_bounds__(kPieceThreads) sum_squares_about(Term term, std::uint64_t n, SquaresMemory memory) {
  __shared__ double parts[kPieceThreads];
  for (std::uint32_t piece = blockIdx.x; piece < memory.pieces; piece += gridDim.x) {
    double sum = 0;
    for_part(term, n, piece, [&](double value) { sum += value; });
    parts[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x < kSquareLanes) {
      for (unsigned part = 1; part < kPieceParts; ++part) sum += parts[part * kSquareLanes + threadIdx.x];
      memory.of_pieces[piece * kSquareLanes + threadIdx.x].start = sum;
    }
    __syncthreads();
  }
}

inline constexpr std::uint32_t kGroupPart = kSquaresGroup / kPieceParts;  // pieces of a thread

// A block for each group: roughly what it adds to each lane, and what its pieces before each add.
template <int kOnly = 0>
__global__ void __launch_bounds__(kPieceThreads) start_in_groups(SquaresMemory memory) {
  __shared__ double parts[kPieceThreads];
  const std::uint32_t lane = threadIdx.x % kSquareLanes;
  const std::uint32_t part = threadIdx.x / kSquareLanes;
  const std::uint32_t first = blockIdx.x * static_cast<std::uint32_t>(kSquaresGroup) + part * kGroupPart;
  double own[kGroupPart];
  FLUVIAL_UNROLL
  for (std::uint32_t i = 0; i < kGroupPart; ++i) {
    own[i] = first + i < memory.pieces ? memory.of_pieces[(first + i) * kSquareLanes + lane].start : 0;
  }
  double sum = 0;
  for (const double piece : own) sum += piece;
  parts[threadIdx.x] = sum;
  __syncthreads();
  double before = 0;
  for (std::uint32_t i = 0; i < part; ++i) before += parts[i * kSquareLanes + lane];
  if (part == kPieceParts - 1) memory.of_groups[blockIdx.x * kSquareLanes + lane].start = before + sum;
  FLUVIAL_UNROLL
  for (std::uint32_t i = 0; i < kGroupPart; ++i) {
    if (first + i < memory.pieces) memory.of_pieces[(first + i) * kSquareLanes + lane].start = before;
    before += own[i];
  }
}

// One block: roughly the sum at which each group begins.
template <int kOnly = 0>
__global__ void __launch_bounds__(kSquareThreads) start_groups(const double* lanes, SquaresMemory memory) {
  constexpr std::uint32_t kRuns = kSquareThreads / kSquareLanes;
  __shared__ double runs[kSquareThreads];
  const std::uint32_t lane = threadIdx.x % kSquareLanes;
  const std::uint32_t run = threadIdx.x / kSquareLanes;
  const std::uint32_t groups = memory.groups();
  const std::uint32_t each = (groups + kRuns - 1) / kRuns;
  const std::uint32_t begin = run * each < groups ? run * each : groups;
  const std::uint32_t end = begin + each < groups ? begin + each : groups;
  double sum = 0;
  for (std::uint32_t group = begin; group < end; ++group) sum += memory.of_groups[group * kSquareLanes + lane].start;
  runs[threadIdx.x] = sum;
  __syncthreads();
  double before = lanes[lane];
  for (std::uint32_t i = 0; i < run; ++i) before += runs[i * kSquareLanes + lane];
  for (std::uint32_t group = begin; group < end; ++group) {
    double& start = memory.of_groups[group * kSquareLanes + lane].start;
    const double here = start;
    start = before;
    before += here;
  }
}

__device__ inline std::uint64_t exponent_of(double value) { return __builtin_bit_cast(std::uint64_t, value) >> 52; }

// What terms add to even and odd sums, in units; kUnitsEnd and more if that is unknown.
struct UnitSums {
  std::uint64_t of[2];

  // Without a half there is nothing to decide: the addition of 2^52 has rounded.
  __device__ void add(double units) {
    const double up = units + 0x1p52;
    const double rest = units - (up - 0x1p52);
    if (!(units < 0x1p52) || std::fabs(rest) == 0.5) {
      add_by_parity(units);
      return;
    }
    const std::uint64_t whole = __builtin_bit_cast(std::uint64_t, up) - __builtin_bit_cast(std::uint64_t, 0x1p52);
    of[0] += whole;
    of[1] += whole;
  }
  __device__ void add_by_parity(double units) {
    const bool is_few = units < static_cast<double>(kUnitsEnd);  // not of NaN
    const std::uint64_t whole = is_few ? static_cast<std::uint64_t>(units) : kUnitsEnd;
    const double rest = is_few ? units - static_cast<double>(whole) : 0;
    for (std::uint64_t odd = 0; odd < 2; ++odd) {
      const std::uint64_t below = of[odd] + whole;
      of[odd] = below + (rest > 0.5 || (rest == 0.5 && (odd + below) % 2 != 0) ? 1 : 0);
    }
  }
  __device__ void add_after(const UnitSums& next) {
    for (std::uint64_t odd = 0; odd < 2; ++odd) of[odd] += (odd + of[odd]) % 2 != 0 ? next.of[1] : next.of[0];
  }
};

// What each piece adds to each lane, given roughly where it starts.
template <typename Term>
__global__ void __launch_bounds__(kPieceThreads)
    sum_squares_in_units(Term term, std::uint64_t n, SquaresMemory memory) {
  __shared__ UnitSums parts[kPieceThreads];
  for (std::uint32_t piece = blockIdx.x; piece < memory.pieces; piece += gridDim.x) {
    const std::uint32_t lane = threadIdx.x % kSquareLanes;
    SquaresPiece& found = memory.of_pieces[piece * kSquareLanes + lane];
    const double start = memory.of_groups[piece / kSquaresGroup * kSquareLanes + lane].start + found.start;
    const std::uint64_t exponent = exponent_of(start);
    UnitSums sums{{0, 0}};
    if (exponent > 52 && exponent < 2047) {  // 2^(1075 - exponent), the inverse of a unit, is a normal number
      const double inverse = __builtin_bit_cast(double, (2098 - exponent) << 52);
      for_part(term, n, piece, [&](double value) { sums.add(value * inverse); });
    } else {  // terms that do not change such a sum: zeros; for a sum that is not finite, finite terms
      const bool is_finite = exponent % 2048 != 2047;
      for_part(term, n, piece, [&](double value) {
        if (is_finite ? value != 0 : !std::isfinite(value)) sums.of[0] = sums.of[1] = kUnitsEnd;
      });
    }
    parts[threadIdx.x] = sums;
    __syncthreads();
    if (threadIdx.x < kSquareLanes) {
      for (unsigned part = 1; part < kPieceParts; ++part) sums.add_after(parts[part * kSquareLanes + threadIdx.x]);
      found = {{sums.of[0], sums.of[1]}, start};
    }
    __syncthreads();
  }
}

// A block for each group: what its pieces add together, where all expect a sum in the same units.
template <int kOnly = 0>
__global__ void __launch_bounds__(kPieceThreads) join_pieces(SquaresMemory memory) {
  __shared__ UnitSums parts[kPieceThreads];
  const std::uint32_t lane = threadIdx.x % kSquareLanes;
  const std::uint32_t first = blockIdx.x * static_cast<std::uint32_t>(kSquaresGroup);
  const std::uint32_t begin = first + threadIdx.x / kSquareLanes * kGroupPart;
  const double start = memory.of_pieces[first * kSquareLanes + lane].start;
  UnitSums sums{{0, 0}};
  FLUVIAL_UNROLL
  for (std::uint32_t i = 0; i < kGroupPart; ++i) {
    if (begin + i >= memory.pieces) continue;
    const SquaresPiece piece = memory.of_pieces[(begin + i) * kSquareLanes + lane];
    const bool is_known = exponent_of(piece.start) == exponent_of(start) && piece.add[0] < kUnitsEnd &&
                          piece.add[1] < kUnitsEnd;  // so that sums of a group's are below 2^64
    sums.add_after(is_known ? UnitSums{{piece.add[0], piece.add[1]}} : UnitSums{{kUnitsEnd, kUnitsEnd}});
  }
  parts[threadIdx.x] = sums;
  __syncthreads();
  if (threadIdx.x >= kSquareLanes) return;
  for (unsigned part = 1; part < kPieceParts; ++part) sums.add_after(parts[part * kSquareLanes + threadIdx.x]);
  memory.of_groups[blockIdx.x * kSquareLanes + lane] = {{sums.of[0], sums.of[1]}, start};
}

// Adds a piece or a group to a lane's sum; returns false and adds nothing if that takes more than integers.
__device__ inline bool add_piece(const SquaresPiece& piece, double* sum) {
  constexpr std::uint64_t kMantissa = kUnitsEnd / 2 - 1;
  const auto bits = __builtin_bit_cast(std::uint64_t, *sum);
  if (bits >> 52 != exponent_of(piece.start)) return false;
  const std::uint64_t units = kUnitsEnd / 2 + (bits & kMantissa) + (bits % 2 != 0 ? piece.add[1] : piece.add[0]);
  if (units >= kUnitsEnd) return false;
  *sum = __builtin_bit_cast(double, (bits & ~kMantissa) | (units & kMantissa));
  return true;
}

// A warp's work: pieces (or groups) from `piece` to `end`, until one does not fit all lanes, which is returned.
__device__ inline std::uint32_t add_while(const SquaresPiece* of_lanes, std::uint32_t piece, std::uint32_t end,
                                          double* sum) {
  constexpr std::uint32_t kAhead = 8;
  const bool is_lane = lane_id() < kSquareLanes;
  for (;;) {
    SquaresPiece ahead[kAhead] = {};
    FLUVIAL_UNROLL
    for (std::uint32_t i = 0; i < kAhead; ++i) {
      if (is_lane && piece + i < end) ahead[i] = of_lanes[(piece + i) * kSquareLanes + lane_id()];
    }
    FLUVIAL_UNROLL
    for (std::uint32_t i = 0; i < kAhead; ++i) {
      if (piece + i >= end) return end;
      double next = *sum;
      const bool fits = !is_lane || add_piece(ahead[i], &next);
      if (__any_sync(kFullMask, !fits)) return piece + i;
      *sum = next;
    }
    piece += kAhead;
  }
}

// A warp's work: from `piece` on, by groups where they fit, to a piece that does not, or to the end.
__device__ inline std::uint32_t add_groups_while(const SquaresMemory& memory, std::uint32_t piece, double* sum) {
  constexpr auto kGroup = static_cast<std::uint32_t>(kSquaresGroup);
  for (;;) {
    if (piece % kGroup == 0) piece = kGroup * add_while(memory.of_groups, piece / kGroup, memory.groups(), sum);
    if (piece >= memory.pieces) return memory.pieces;
    const std::uint32_t next = (piece / kGroup + 1) * kGroup;
    const std::uint32_t end = next < memory.pieces ? next : memory.pieces;
    piece = add_while(memory.of_pieces, piece, end, sum);
    if (piece < end) return piece;
  }
}

template <typename Term>
struct TermsFrom {
  const Term& term;
  std::uint64_t first;
  __device__ double at(std::uint64_t index) const { return term.at(first + index); }
};

// One block.
template <typename Term>
__global__ void __launch_bounds__(kSquareThreads)
    add_pieces_of(Term term, std::uint64_t n, SquaresMemory memory, double* lanes) {
  __shared__ std::uint32_t shared;
  double sum = threadIdx.x < kSquareLanes ? lanes[threadIdx.x] : 0;
  for (std::uint32_t piece = 0; piece < memory.pieces; ++piece) {
    if (warp_id() == 0) {
      const std::uint32_t reached = add_groups_while(memory, piece, &sum);
      if (lane_id() == 0) shared = reached;
    }
    __syncthreads();
    piece = shared;
    if (piece == memory.pieces) break;
    const std::uint64_t first = static_cast<std::uint64_t>(piece) * kSquaresPiece;
    const std::uint64_t left = n - first;
    sum = add_in_lanes(sum, left < kSquaresPiece ? left : kSquaresPiece, TermsFrom<Term>{term, first});
  }
  if (threadIdx.x < kSquareLanes) lanes[threadIdx.x] = sum;
}

// The workspace is device_squares_workspace_bytes(n).
template <typename Source>
Status launch_squares(const Source& source, std::uint64_t n, DeviceSpan<double> lanes, DeviceSpan<std::byte> workspace,
                      Stream& stream) {
  if (n < kSquaresInPieces) {
    return launch(add_squares_of<Source>, 1U, kSquareThreads, stream, source, n, lanes.data());
  }
  const SquareOf<Source> term{source};
  const SquaresMemory memory = SquaresMemory::of(workspace, n);
  const unsigned blocks = blocks_for(memory.pieces, stream);
  FLUVIAL_TRY(launch(sum_squares_about<SquareOf<Source>>, blocks, kPieceThreads, stream, term, n, memory));
  FLUVIAL_TRY(launch(start_in_groups<>, memory.groups(), kPieceThreads, stream, memory));
  FLUVIAL_TRY(launch(start_groups<>, 1U, kSquareThreads, stream, lanes.data(), memory));
  FLUVIAL_TRY(launch(sum_squares_in_units<SquareOf<Source>>, blocks, kPieceThreads, stream, term, n, memory));
  FLUVIAL_TRY(launch(join_pieces<>, memory.groups(), kPieceThreads, stream, memory));
  return launch(add_pieces_of<SquareOf<Source>>, 1U, kSquareThreads, stream, term, n, memory, lanes.data());
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
