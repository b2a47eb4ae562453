#include "simulator/roles/node_work.h"

#include <utility>

namespace fluvial::simulator {
namespace {

constexpr Duration kCall = std::chrono::microseconds(100);

}  // namespace

Duration NodeWork::cost_of_merge() const { return kCall + cast_.time_for_values(cast_.scenario().compute.merge_ns); }

Duration NodeWork::cost_of_finalise() const {
  return 4 * kCall + cast_.time_for_values(cast_.scenario().compute.finalise_ns);
}

std::uint64_t NodeWork::stage(transfer::StagedArrival arrival) {
  cast_.tamper().staged(&arrival);
  staged_.emplace(++last_id_, std::make_shared<const transfer::StagedArrival>(std::move(arrival)));
  return last_id_;
}

NodeWork::Staged NodeWork::drop(std::uint64_t id) {
  auto node = staged_.extract(id);
  return node.empty() ? nullptr : std::move(node.mapped());
}

void NodeWork::take(std::uint64_t id, Taken done) {
  lane_.push(cost_of_merge(), [this, id, done = std::move(done)] {
    if (cast_.world().crash_here(host_, "take")) return;
    const auto found = staged_.find(id);
    if (found == staged_.end()) return;  // dropped meanwhile
    const Staged arrival = found->second;
    const Result<round::ContributorSet> added = node_.add(*arrival, serial_);
    if (cast_.world().crash_here(host_, "taken")) return;
    done(*arrival, added);
  });
}

void NodeWork::reset(transfer::SumShape shape) {
  lane_.push(kCall, [this, shape] { node_.reset(shape); });
}

FlatSum NodeWork::flat(int scale_bits) const { return {node_.accumulator().sum(), node_.integers(), scale_bits}; }

}  // namespace fluvial::simulator
