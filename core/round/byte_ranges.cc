#include "core/round/byte_ranges.h"

#include <algorithm>
#include <string>

#include "core/base/format.h"

namespace fluvial::round {
namespace {

bool is_between_values(const Schema& schema, std::uint64_t byte) {
  std::size_t low = 0;  // the last tensor that begins at `byte` or before it
  for (std::size_t high = schema.tensors().size(); low + 1 < high;) {
    const std::size_t middle = (low + high) / 2;
    (schema.tensor_offset_bytes(middle) <= byte ? low : high) = middle;
  }
  if (byte == schema.model_bytes() || schema.tensors().empty()) return true;
  return (byte - schema.tensor_offset_bytes(low)) % dtype_bytes(schema.tensors()[low].dtype) == 0;
}

// Sorted ranges become disjoint ones that do not touch.
std::vector<ByteRange> merged(std::vector<ByteRange> sorted) {
  std::vector<ByteRange> out;
  for (const ByteRange& range : sorted) {
    if (range.bytes == 0) continue;
    if (out.empty() || range.first_byte > out.back().end()) {
      out.push_back(range);
    } else if (range.end() > out.back().end()) {
      out.back().bytes = range.end() - out.back().first_byte;
    }
  }
  return out;
}

bool begins_before(const ByteRange& a, const ByteRange& b) { return a.first_byte < b.first_byte; }

}  // namespace

Status check_range(const Schema& schema, ByteRange range) {
  const std::uint64_t all = schema.model_bytes();
  if (range.first_byte > all || range.bytes > all - range.first_byte) {
    return Error{Code::kInvalidArgument, format_text("a range of {} bytes from byte {} reaches beyond the model's {}",
                                                     range.bytes, range.first_byte, all)};
  }
  for (const std::uint64_t edge : {range.first_byte, range.end()}) {
    if (!is_between_values(schema, edge)) {
      return Error{Code::kInvalidArgument, format_text("a range of {} bytes from byte {} cuts a value at byte {}",
                                                       range.bytes, range.first_byte, edge)};
    }
  }
  return {};
}

ByteRanges ByteRanges::whole(std::uint64_t bytes) {
  ByteRanges all;
  if (bytes > 0) all.ranges_.push_back({0, bytes});
  return all;
}

Status ByteRanges::add(ByteRange range) {
  FLUVIAL_CHECK(range.end() >= range.first_byte, "a range beyond 2^64");
  if (range.bytes == 0) return {};
  auto next = std::ranges::upper_bound(ranges_, range.first_byte, {}, &ByteRange::first_byte);
  const bool has_before = next != ranges_.begin();
  if (has_before && std::prev(next)->end() > range.first_byte) {
    return Error{Code::kInvalidArgument, format_text("byte {} is given twice", range.first_byte)};
  }
  if (next != ranges_.end() && range.end() > next->first_byte) {
    return Error{Code::kInvalidArgument, format_text("byte {} is given twice", next->first_byte)};
  }
  const bool touches_next = next != ranges_.end() && range.end() == next->first_byte;
  if (has_before && std::prev(next)->end() == range.first_byte) {
    std::prev(next)->bytes += range.bytes + (touches_next ? next->bytes : 0);
    if (touches_next) ranges_.erase(next);
  } else if (touches_next) {
    *next = {range.first_byte, range.bytes + next->bytes};
  } else {
    ranges_.insert(next, range);
  }
  return {};
}

void ByteRanges::join(const ByteRanges& other) {
  std::vector<ByteRange> both;
  std::ranges::merge(ranges_, other.ranges_, std::back_inserter(both), begins_before);
  ranges_ = merged(std::move(both));
}

void ByteRanges::keep(const ByteRanges& other) {
  std::vector<ByteRange> both;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const std::uint64_t first = std::max(a->first_byte, b->first_byte);
    const std::uint64_t end = std::min(a->end(), b->end());
    if (first < end) both.push_back({first, end - first});
    a->end() < b->end() ? static_cast<void>(++a) : static_cast<void>(++b);
  }
  ranges_ = std::move(both);
}

bool ByteRanges::covers(ByteRange range) const {
  if (range.bytes == 0) return true;
  const auto next = std::ranges::upper_bound(ranges_, range.first_byte, {}, &ByteRange::first_byte);
  return next != ranges_.begin() && std::prev(next)->end() >= range.end();
}

bool ByteRanges::covers(const ByteRanges& other) const {
  return std::ranges::all_of(other.ranges_, [this](const ByteRange& range) { return covers(range); });
}

Status check_tiles(std::span<const ByteRanges> sets, std::uint64_t bytes) {
  std::vector<ByteRange> all;
  for (const ByteRanges& set : sets) all.insert(all.end(), set.ranges().begin(), set.ranges().end());
  std::ranges::sort(all, begins_before);
  std::uint64_t at = 0;
  for (const ByteRange& range : all) {
    if (range.first_byte > at) break;
    if (range.first_byte < at) {
      return Error{Code::kInvalidArgument, format_text("byte {} of the model is given twice", range.first_byte)};
    }
    at = range.end();
  }
  if (at < bytes) return Error{Code::kInvalidArgument, format_text("byte {} of the model is given by none", at)};
  return {};
}

}  // namespace fluvial::round
