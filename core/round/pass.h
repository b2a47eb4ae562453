// A round with several passes (docs/design/phases.md): each gathers and reduces a vector, and all but the last hand its
// mean back down. The last one is what a contribution is; the commit is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/round/contribution.h"

namespace fluvial::round {

// That a codec may have. Messages, sums and stores would take any number, but a site tells what it has encoded apart as
// its first pass and its last (edge/logic, Pending), and no codec has more.
inline constexpr std::uint32_t kPassesMost = 2;

inline constexpr std::uint64_t kVectorHeaderBytesMax = 64;  // of a vector, before its values

// "pass 1" of index 0: messages, protocols and files have the index, and people count from 1.
std::string pass_name(std::uint64_t index);

// A vector that is fetched by its digest, as a model is: the mean of a pass, or a codec's state.
struct VectorRef {
  Digest digest{};  // SHA-256 of its bytes
  std::uint64_t bytes = 0;
  bool operator==(const VectorRef&) const = default;
};

// The open pass of a round that has several or begins with a codec's state, and what it begins with.
struct Pass {
  std::uint32_t index = 0;
  std::uint32_t count = 0;              // of the round: 1 to kPassesMost
  std::uint64_t value_count = 0;        // of what travels in it
  std::optional<VectorRef> mean = {};   // of the pass before; none in the first
  std::optional<VectorRef> state = {};  // the codec's, alike at all sites; none: as it is before a run's first round
  bool is_last() const { return index + 1 == count; }
  MadeFrom made_from() const { return {index, mean ? mean->digest : Digest{}}; }  // of an update that fits
  bool operator==(const Pass&) const = default;
};

// As it comes from a parent. kInvalidArgument: no such pass, or without the mean that it begins with.
Status check_pass(const Pass& pass);

// A pass that is over, and is not the last.
struct PassRecord {
  ContributorSet contributors;
  VectorRef mean;
  bool operator==(const PassRecord&) const = default;
};

}  // namespace fluvial::round
