#include "edge/reduce/schedule.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <string>
#include <utility>

namespace fluvial::edge {
namespace {

struct Range {
  std::size_t first = 0;
  std::size_t count = 0;
};
// Part `index` of `parts`, as even as possible.
Range part_of(Range whole, std::size_t index, std::size_t parts) {
  const std::size_t begin = whole.count * index / parts;
  const std::size_t end = whole.count * (index + 1) / parts;
  return {whole.first + begin, end - begin};
}

Place worker(std::size_t rank) { return {Place::Kind::kWorker, rank}; }
Place partial(std::size_t rank) { return {Place::Kind::kPartial, rank}; }
constexpr Place kResult{Place::Kind::kResult, 0};

class Builder {
 public:
  Builder(std::size_t ranks, std::size_t values) : ranks_(ranks), whole_{0, values}, held_(ranks) {
    for (std::size_t rank = 0; rank < ranks; ++rank) held_[rank] = worker(rank);
  }

  void direct() {
    std::vector<Place> all;
    for (std::size_t rank = 0; rank < ranks_; ++rank) all.push_back(worker(rank));
    add(kResult, std::move(all), whole_);
    end_step();
  }

  void ring() {
    for (std::size_t step = 1; step < ranks_; ++step) {
      for (std::size_t slice = 0; slice < ranks_; ++slice) {
        const Place before = step == 1 ? worker(slice) : kResult;
        add(kResult, {before, worker((slice + step) % ranks_)}, part_of(whole_, slice, ranks_));
      }
      end_step();
    }
  }

  void tree() {
    for (std::size_t distance = 1; distance < ranks_; distance *= 2) {
      const bool last = distance * 2 >= ranks_;
      for (std::size_t rank = 0; rank + distance < ranks_; rank += 2 * distance) {
        join(rank, rank + distance, last ? kResult : partial(rank), whole_);
      }
      end_step();
    }
  }

  void halving_doubling() {
    const std::size_t base = std::bit_floor(ranks_);
    for (std::size_t rank = 0; rank + base < ranks_; ++rank) join(rank, rank + base, partial(rank), whole_);
    if (base < ranks_) end_step();
    // Ranks that agree in the bits from `distance` on share a range; half of them keep each half of it.
    std::vector<Range> ranges(base, whole_);
    for (std::size_t distance = base / 2; distance > 0; distance /= 2) {
      std::vector<Place> next(base);
      for (std::size_t rank = 0; rank < base; ++rank) {
        const Range half = part_of(ranges[rank], (rank & distance) != 0 ? 1 : 0, 2);
        next[rank] = distance == 1 ? kResult : partial(rank);
        add(next[rank], {held_[rank], held_[rank ^ distance]}, half);
        ranges[rank] = half;
      }
      std::copy(next.begin(), next.end(), held_.begin());
      end_step();
    }
  }

  void two_level() {
    std::size_t group = 1;
    while (group * group < ranks_) ++group;
    if (group == ranks_) return direct();  // of two: one group would be all
    std::vector<Place> sums;
    for (std::size_t first = 0; first < ranks_; first += group) {
      std::vector<Place> members;
      for (std::size_t rank = first; rank < std::min(first + group, ranks_); ++rank) members.push_back(worker(rank));
      if (members.size() == 1) {
        sums.push_back(members.front());
        continue;
      }
      sums.push_back(partial(first));
      add(partial(first), std::move(members), whole_);
    }
    end_step();
    add(kResult, std::move(sums), whole_);
    end_step();
  }

  std::vector<Step> finish() && { return std::move(steps_); }

 private:
  void join(std::size_t rank, std::size_t other, Place into, Range range) {
    add(into, {held_[rank], held_[other]}, range);
    held_[rank] = into;
  }
  void add(Place into, std::vector<Place> of, Range range) {
    if (range.count > 0) step_.push_back({into, std::move(of), range.first, range.count});
  }
  void end_step() {
    if (!step_.empty()) steps_.push_back(std::exchange(step_, {}));
  }

  std::size_t ranks_;
  Range whole_;
  std::vector<Place> held_;  // where the sum is that a rank has so far
  Step step_;
  std::vector<Step> steps_;
};

}  // namespace

std::string_view algorithm_name(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect: return "direct";
    case Algorithm::kRing: return "ring";
    case Algorithm::kHalvingDoubling: return "halving_doubling";
    case Algorithm::kTree: return "tree";
    case Algorithm::kTwoLevel: return "two_level";
  }
  return "unknown";
}

Result<Algorithm> parse_algorithm(std::string_view name) {
  std::string names;
  for (const Algorithm algorithm : kAlgorithms) {
    if (name == algorithm_name(algorithm)) return algorithm;
    names += names.empty() ? "" : ", ";
    names += algorithm_name(algorithm);
  }
  return Error{Code::kInvalidArgument, fmt::format("'{}' is no reduction; there are {}", name, names)};
}

std::vector<Step> make_schedule(Algorithm algorithm, std::size_t ranks, std::size_t values) {
  FLUVIAL_CHECK(ranks >= 1 && ranks <= kRanksMax, "1 to 64 ranks");
  Builder builder(ranks, values);
  if (ranks == 1) algorithm = Algorithm::kDirect;
  switch (algorithm) {
    case Algorithm::kDirect: builder.direct(); break;
    case Algorithm::kRing: builder.ring(); break;
    case Algorithm::kHalvingDoubling: builder.halving_doubling(); break;
    case Algorithm::kTree: builder.tree(); break;
    case Algorithm::kTwoLevel: builder.two_level(); break;
  }
  return std::move(builder).finish();
}

}  // namespace fluvial::edge
