// The coordinate-wise rules: pieces of all updates are turned into sort keys and sorted side by side by a network.
#include "kernels/robust.h"

#include <algorithm>
#include <array>

#include "core/base/format.h"
#include "kernels/cpu/robust_loops.h"
#include "kernels/fixed.h"
#include "kernels/ops/robust.h"
#include "kernels/pieces.h"
#include "kernels/robust_parts.h"

namespace fluvial::kernels {
namespace {

constexpr std::size_t kRobustPiece = 256;

// A piece of every update as rows of keys, kRobustPiece apart.
struct Rows {
  std::int32_t* key = nullptr;
  std::size_t count = 0;
  std::int32_t* row(std::size_t k) const { return key + k * kRobustPiece; }
};

// Batcher's merge exchange for any count (Knuth, TAOCP 3, 5.2.2, Algorithm M): every column of the rows is sorted.
void sort_rows(const Rows& rows, std::size_t size, const cpu::RobustLoops& loops) {
  std::size_t top = 1;
  while (2 * top < rows.count) top *= 2;
  for (std::size_t p = rows.count < 2 ? 0 : top; p > 0; p /= 2) {
    std::size_t r = 0;
    std::size_t d = p;
    for (std::size_t q = top;; q /= 2) {
      for (std::size_t i = 0; i + d < rows.count; ++i) {
        if ((i & p) == r) loops.exchange(rows.row(i), rows.row(i + d), size);
      }
      if (q == p) break;
      d = q - p;
      r = p;
    }
  }
}

Status check_rule(Updates updates, std::span<const std::byte> workspace, std::span<const float> out, bool weighted) {
  FLUVIAL_TRY(check_updates(updates, out.size()));
  FLUVIAL_CHECK(workspace.size() >= robust_workspace_bytes(updates.size(), weighted), "a workspace as large as asked");
  FLUVIAL_CHECK(reinterpret_cast<std::uintptr_t>(workspace.data()) % 8 == 0, "a workspace aligned to 8 bytes");
  return {};
}

// For each piece: keys of all updates, then `finish(rows, at, size)`.
template <typename Finish>
Status for_pieces(Updates updates, std::size_t value_count, MutableByteSpan workspace, const cpu::RobustLoops& loops,
                  Finish finish) {
  const Rows rows{.key = reinterpret_cast<std::int32_t*>(workspace.data()), .count = updates.size()};
  for (std::size_t at = 0; at < value_count; at += kRobustPiece) {
    const std::size_t size = std::min(kRobustPiece, value_count - at);
    for (std::size_t k = 0; k < updates.size(); ++k) {
      if (loops.keys(updates[k].data() + at, size, rows.row(k)) == 0) continue;
      return Error{Code::kDataLoss,
                   format_text("update {}: {}", k, not_finite(updates[k].subspan(at, size), at).message)};
    }
    finish(rows, at, size);
  }
  return {};
}

Result<std::uint64_t> sum_of_weights(std::span<const std::uint32_t> weights, std::size_t update_count) {
  if (weights.size() != update_count) {
    return Error{Code::kInvalidArgument, format_text("{} updates with {} weights", update_count, weights.size())};
  }
  std::uint64_t sum = 0;
  for (const std::uint32_t weight : weights) {
    if (weight == 0 || weight >= kWeightEnd) {
      return Error{Code::kInvalidArgument, format_text("weight {}, expected 1 to {}", weight, kWeightEnd - 1)};
    }
    sum += weight;
  }
  return sum;
}

// One coordinate of the rows with whose it is, sorted.
struct Column {
  std::span<std::uint64_t> entries;  // the key, made unsigned, above the index of its update

  void load(const Rows& rows, std::size_t i) {
    for (std::size_t k = 0; k < rows.count; ++k) {
      const auto key = static_cast<std::uint32_t>(rows.row(k)[i]) ^ 0x80000000U;
      entries[k] = std::uint64_t{key} << 32 | k;
    }
    std::sort(entries.begin(), entries.end());
  }
  double value(std::size_t rank) const {
    const auto key = static_cast<std::uint32_t>(entries[rank] >> 32) ^ 0x80000000U;
    return static_cast<double>(ops::key_value(static_cast<std::int32_t>(key)));
  }
  std::size_t update(std::size_t rank) const { return static_cast<std::size_t>(entries[rank] & 0xffffffffU); }
};

Column column_in(MutableByteSpan workspace, std::size_t update_count) {
  auto* entries = reinterpret_cast<std::uint64_t*>(workspace.data() + robust_workspace_bytes(update_count, false));
  return {.entries = {entries, update_count}};
}

}  // namespace

std::size_t robust_workspace_bytes(std::size_t update_count, bool weighted) {
  return update_count * (kRobustPiece * sizeof(std::int32_t) + (weighted ? sizeof(std::uint64_t) : 0));
}

Status coordinate_median(Updates updates, MutableByteSpan workspace, std::span<float> out, cpu::Target target) {
  FLUVIAL_TRY(check_rule(updates, workspace, out, false));
  const cpu::RobustLoops& loops = cpu::robust_loops(target);
  const std::size_t n = updates.size();
  return for_pieces(updates, out.size(), workspace, loops, [&](const Rows& rows, std::size_t at, std::size_t size) {
    sort_rows(rows, size, loops);
    loops.middle(rows.row((n - 1) / 2), rows.row(n / 2), size, out.data() + at);
  });
}

Status trimmed_mean(Updates updates, std::size_t drop, MutableByteSpan workspace, std::span<float> out,
                    cpu::Target target) {
  FLUVIAL_TRY(check_rule(updates, workspace, out, false));
  const std::size_t n = updates.size();
  if (drop >= (n + 1) / 2) {
    return Error{Code::kInvalidArgument, format_text("{} updates without {} on each side: none is left", n, drop)};
  }
  const cpu::RobustLoops& loops = cpu::robust_loops(target);
  return for_pieces(updates, out.size(), workspace, loops, [&](const Rows& rows, std::size_t at, std::size_t size) {
    sort_rows(rows, size, loops);
    std::array<double, kRobustPiece> sum{};
    for (std::size_t k = drop; k < n - drop; ++k) loops.add_keys(rows.row(k), size, sum.data());
    const auto kept = static_cast<double>(n - 2 * drop);
    for (std::size_t i = 0; i < size; ++i) out[at + i] = static_cast<float>(sum[i] / kept);
  });
}

Status weighted_median(Updates updates, std::span<const std::uint32_t> weights, MutableByteSpan workspace,
                       std::span<float> out, cpu::Target target) {
  FLUVIAL_TRY(check_rule(updates, workspace, out, true));
  FLUVIAL_ASSIGN(const std::uint64_t total, sum_of_weights(weights, updates.size()));
  Column column = column_in(workspace, updates.size());
  return for_pieces(updates, out.size(), workspace, cpu::robust_loops(target),
                    [&](const Rows& rows, std::size_t at, std::size_t size) {
                      for (std::size_t i = 0; i < size; ++i) {
                        column.load(rows, i);
                        std::size_t rank = 0;
                        std::uint64_t reached = weights[column.update(0)];
                        while (2 * reached < total) reached += weights[column.update(++rank)];
                        const std::size_t next = 2 * reached == total ? rank + 1 : rank;
                        out[at + i] = static_cast<float>((column.value(rank) + column.value(next)) * 0.5);
                      }
                    });
}

Status weighted_trimmed_mean(Updates updates, std::span<const std::uint32_t> weights, std::uint64_t drop,
                             MutableByteSpan workspace, std::span<float> out, cpu::Target target) {
  FLUVIAL_TRY(check_rule(updates, workspace, out, true));
  FLUVIAL_ASSIGN(const std::uint64_t total, sum_of_weights(weights, updates.size()));
  if (drop >= (total + 1) / 2) {
    return Error{Code::kInvalidArgument,
                 format_text("a weight of {} without {} on each side: none is left", total, drop)};
  }
  Column column = column_in(workspace, updates.size());
  return for_pieces(updates, out.size(), workspace, cpu::robust_loops(target),
                    [&](const Rows& rows, std::size_t at, std::size_t size) {
                      for (std::size_t i = 0; i < size; ++i) {
                        column.load(rows, i);
                        double sum = 0;
                        std::uint64_t before = 0;
                        for (std::size_t rank = 0; rank < updates.size(); ++rank) {
                          const std::uint64_t after = before + weights[column.update(rank)];
                          const std::uint64_t from = std::max(before, drop);
                          const std::uint64_t to = std::min(after, total - drop);
                          if (from < to) sum += static_cast<double>(to - from) * column.value(rank);  // exact product
                          before = after;
                        }
                        out[at + i] = static_cast<float>(sum / static_cast<double>(total - 2 * drop));
                      }
                    });
}

Status bulyan_combine(Updates chosen, std::size_t f, MutableByteSpan workspace, std::span<float> out,
                      cpu::Target target) {
  FLUVIAL_TRY(check_rule(chosen, workspace, out, false));
  const std::size_t n = chosen.size();
  if (f >= (n + 1) / 2) {
    return Error{Code::kInvalidArgument, format_text("{} updates without {}: none is left", n, 2 * f)};
  }
  const cpu::RobustLoops& loops = cpu::robust_loops(target);
  return for_pieces(chosen, out.size(), workspace, loops, [&](const Rows& rows, std::size_t at, std::size_t size) {
    sort_rows(rows, size, loops);
    for (std::size_t i = 0; i < size; ++i) {
      const auto value = [&](std::size_t rank) { return static_cast<double>(ops::key_value(rows.row(rank)[i])); };
      const double median = (value((n - 1) / 2) + value(n / 2)) * 0.5;
      std::size_t first = 0;
      std::size_t last = n - 1;
      for (std::size_t k = 0; k < 2 * f; ++k) {
        if (median - value(first) > value(last) - median) {
          ++first;
        } else {
          --last;
        }
      }
      double sum = 0;
      for (std::size_t rank = first; rank <= last; ++rank) sum += value(rank);
      out[at + i] = static_cast<float>(sum / static_cast<double>(n - 2 * f));
    }
  });
}

}  // namespace fluvial::kernels
