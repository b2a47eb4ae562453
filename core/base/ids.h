// Strong ids: a SiteId is no RoundId, though both are integers. Ordered, hashable, printable by value().
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace fluvial {

template <typename Tag, typename Rep = std::uint64_t>
class Id {
 public:
  using rep = Rep;
  constexpr Id() = default;
  constexpr explicit Id(Rep value) : value_(value) {}
  constexpr Rep value() const { return value_; }
  constexpr Id next() const { return Id(value_ + 1); }
  constexpr auto operator<=>(const Id&) const = default;

 private:
  Rep value_ = 0;
};

using NodeId =
    Id<struct NodeTag, std::uint32_t>;  // a member of the federation: given at enrolment, never reused; 0 = none
using SiteId = NodeId;                  // the NodeId of a site
using RunId = Id<struct RunTag>;        // 1, 2, ... within a federation
using RoundId = Id<struct RoundTag>;    // 1, 2, ... within a run; round r commits model version r
using AttemptId = Id<struct AttemptTag, std::uint32_t>;  // 1, 2, ... within a round
using Epoch = Id<struct EpochTag>;                       // of a lease; grows over the federation's life
using Incarnation = Id<struct IncarnationTag>;           // of a site's agent: how often its state folder was opened
using ModelVersion = Id<struct ModelVersionTag>;         // 0 = the initial model of a run

enum class Role { kCoordinator, kAggregator, kSite, kOperator };  // the last: a person, at the admin API alone

constexpr std::string_view role_name(Role role) {
  switch (role) {
    case Role::kCoordinator: return "coordinator";
    case Role::kAggregator: return "aggregator";
    case Role::kSite: return "site";
    case Role::kOperator: return "operator";
  }
  return "unknown";
}

}  // namespace fluvial

template <typename Tag, typename Rep>
struct std::hash<fluvial::Id<Tag, Rep>> {
  std::size_t operator()(const fluvial::Id<Tag, Rep>& id) const noexcept { return std::hash<Rep>{}(id.value()); }
};
