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
// exchange(i, j) puts the lesser of rows i and j into row i.
template <typename Exchange>
void sort_network(std::size_t count, Exchange exchange) {
  std::size_t top = 1;
  while (2 * top < count) top *= 2;
  for (std::size_t p = count < 2 ? 0 : top; p > 0; p /= 2) {
    std::size_t r = 0;
    std::size_t d = p;
    for (std::size_t q = top;; q /= 2) {
      for (std::size_t i = 0; i + d < count; ++i) {
        if ((i & p) == r) exchange(i, i + d);
      }
      if (q == p) break;
      d = q - p;
      r = p;
    }
  }
}

void sort_rows(const Rows& rows, std::size_t size, const cpu::RobustLoops& loops) {
  sort_network(rows.count, [&](std::size_t i, std::size_t j) { loops.exchange(rows.row(i), rows.row(j), size); });
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

// The rows with their weights, sorted: behind the keys in the workspace.
struct Entries {
  std::int64_t* entry = nullptr;
  std::int64_t* row(std::size_t k) const { return entry + k * kRobustPiece; }
};

Entries sorted_entries(const Rows& rows, std::size_t size, std::span<const std::uint32_t> weights,
                       MutableByteSpan workspace, const cpu::RobustLoops& loops) {
  const Entries all{reinterpret_cast<std::int64_t*>(workspace.data() + robust_workspace_bytes(rows.count, false))};
  for (std::size_t k = 0; k < rows.count; ++k) loops.entries(rows.row(k), size, weights[k], all.row(k));
  sort_network(rows.count, [&](std::size_t i, std::size_t j) { loops.exchange_entries(all.row(i), all.row(j), size); });
  return all;
}

}  // namespace

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

Status check_drop(std::string_view what, std::uint64_t all, std::uint64_t drop) {
  if (drop < all / 2 + all % 2) return {};
  return Error{Code::kInvalidArgument, format_text("{} {} without {} on each side: none is left", all, what, drop)};
}

std::size_t robust_workspace_bytes(std::size_t update_count, bool weighted) {
  return update_count * (kRobustPiece * sizeof(std::int32_t) + (weighted ? kRobustPiece * sizeof(std::int64_t) : 0));
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
  FLUVIAL_TRY(check_drop("updates", n, drop));
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
  const cpu::RobustLoops& loops = cpu::robust_loops(target);
  return for_pieces(updates, out.size(), workspace, loops, [&](const Rows& rows, std::size_t at, std::size_t size) {
    const Entries sorted = sorted_entries(rows, size, weights, workspace, loops);
    std::array<std::int64_t, kRobustPiece> reached{};
    std::array<double, kRobustPiece> low, high;
    for (std::size_t k = 0; k < rows.count; ++k) {
      loops.reach_half(sorted.row(k), size, static_cast<std::int64_t>(total), reached.data(), low.data(), high.data());
    }
    for (std::size_t i = 0; i < size; ++i) out[at + i] = static_cast<float>((low[i] + high[i]) * 0.5);
  });
}

Status weighted_trimmed_mean(Updates updates, std::span<const std::uint32_t> weights, std::uint64_t drop,
                             MutableByteSpan workspace, std::span<float> out, cpu::Target target) {
  FLUVIAL_TRY(check_rule(updates, workspace, out, true));
  FLUVIAL_ASSIGN(const std::uint64_t total, sum_of_weights(weights, updates.size()));
  FLUVIAL_TRY(check_drop("of weight", total, drop));
  const cpu::RobustLoops& loops = cpu::robust_loops(target);
  const auto from = static_cast<std::int64_t>(drop);
  const auto to = static_cast<std::int64_t>(total - drop);
  return for_pieces(updates, out.size(), workspace, loops, [&](const Rows& rows, std::size_t at, std::size_t size) {
    const Entries sorted = sorted_entries(rows, size, weights, workspace, loops);
    std::array<std::int64_t, kRobustPiece> reached{};
    std::array<double, kRobustPiece> sum{};
    for (std::size_t k = 0; k < rows.count; ++k) {
      loops.add_between(sorted.row(k), size, from, to, reached.data(), sum.data());
    }
    for (std::size_t i = 0; i < size; ++i) out[at + i] = static_cast<float>(sum[i] / static_cast<double>(to - from));
  });
}

Status bulyan_combine(Updates chosen, std::size_t f, MutableByteSpan workspace, std::span<float> out,
                      cpu::Target target) {
  FLUVIAL_TRY(check_rule(chosen, workspace, out, false));
  const std::size_t n = chosen.size();
  FLUVIAL_TRY(check_drop("updates", n, f));
  const cpu::RobustLoops& loops = cpu::robust_loops(target);
  return for_pieces(chosen, out.size(), workspace, loops, [&](const Rows& rows, std::size_t at, std::size_t size) {
    sort_rows(rows, size, loops);
    for (std::size_t i = 0; i < size; ++i) {
      out[at + i] = ops::mean_around_median(rows.key + i, kRobustPiece, n, f);
    }
  });
}

}  // namespace fluvial::kernels
