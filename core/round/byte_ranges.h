// Parts of a model's bytes: what a worker answers for, or has in place already.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "core/round/schema.h"

namespace fluvial::round {

struct ByteRange {
  std::uint64_t first_byte = 0;
  std::uint64_t bytes = 0;
  std::uint64_t end() const { return first_byte + bytes; }
  bool operator==(const ByteRange&) const = default;
};

// kInvalidArgument unless it lies within the model and begins and ends between two values of a tensor.
Status check_range(const Schema& schema, ByteRange range);

// A set of bytes. Ranges that touch are one.
class ByteRanges {
 public:
  ByteRanges() = default;
  static ByteRanges whole(std::uint64_t bytes);

  // kInvalidArgument naming the first byte that is in already; then nothing is added. No range may reach beyond 2^64.
  Status add(ByteRange range);
  void join(const ByteRanges& other);  // overlaps or not
  void keep(const ByteRanges& other);  // what is in both
  bool covers(ByteRange range) const;
  bool covers(const ByteRanges& other) const;
  const std::vector<ByteRange>& ranges() const { return ranges_; }  // in order, none empty, none touching another
  bool empty() const { return ranges_.empty(); }
  bool operator==(const ByteRanges&) const = default;

 private:
  std::vector<ByteRange> ranges_;
};

// kInvalidArgument naming the first byte of `bytes` that none of the sets has, or that two have.
Status check_tiles(std::span<const ByteRanges> sets, std::uint64_t bytes);

}  // namespace fluvial::round
