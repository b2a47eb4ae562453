// What may have become of the updates of rounds that closed without a site (bench_audit.h). Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace fluvial::cli {

// It went into the residual as it was trained; or encoded, with what it had been lent; or there never was one.
enum class Fate : std::uint8_t { kFolded, kSent, kLost };
using History = std::vector<Fate>;  // of each such round

struct MissedRound {
  bool lends = false;    // something: encoded, an update differs from what it is as it was trained
  bool certain = false;  // an update was made
};

// All that are possible: the likelier ones, which lose few updates, first, and side by side those that lose the same
// ones. Empty: they are more than `most`.
std::vector<History> histories_of(std::span<const MissedRound> missed, std::size_t most);
bool same_losses(const History& a, const History& b);  // of as many rounds

}  // namespace fluvial::cli
