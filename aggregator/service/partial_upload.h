// The region's sum on its way up: packed and sent a chunk at a time, on the sum's lane, and how long that takes. On the
// node's strand.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <utility>

#include "aggregator/logic/region_machine.h"
#include "aggregator/service/region_observer.h"
#include "core/round/pace.h"
#include "core/tree/parent_side.h"
#include "core/tree/uplink.h"

namespace fluvial::aggregator {

class PartialUpload {
 public:
  // `changed`: is_sending() has.
  PartialUpload(tree::Runtime& runtime, tree::ParentSide& side, RegionObserver& observer, std::function<void()> changed)
      : runtime_(runtime), side_(side), observer_(observer), changed_(std::move(changed)) {}

  void attach(tree::Uplink& uplink) { uplink_ = &uplink; }
  void round_said(std::shared_ptr<const wire::Opening> opening);  // by the parent, with what it has of a partial
  // Queued. It ends when stop() or another send() overtakes it; the parent's next opening asks for it again.
  void send(const SendPartial& partial);
  void stop() { ++generation_; }
  void parent_down();
  void answered(std::uint64_t sequence, bool taken);  // by the parent
  bool is_sending() const { return sending_; }        // somebody's contributions
  void round_begins() { pace_.lost(); }
  void round_closed();
  // What is left of the parent's deadline here: the rest is the partial's, to get there and be merged.
  Duration tier_deadline(Duration left) const { return pace_.tier_deadline(left); }

 private:
  void set_sending(RunId run, RoundId round, bool sending);
  net::Awaitable<void> run(SendPartial partial, std::uint64_t generation);
  net::Awaitable<Status> stream(SendPartial partial, std::uint64_t generation, std::shared_ptr<net::Session> session);
  TimePoint now() const { return runtime_.clock.now(); }

  tree::Runtime& runtime_;
  tree::ParentSide& side_;
  RegionObserver& observer_;
  std::function<void()> changed_;
  tree::Uplink* uplink_ = nullptr;
  round::UpwardPace pace_;
  std::shared_ptr<const wire::Opening> opening_;
  std::optional<round::Received> received_;  // of a partial that was cut off: by the parent
  std::uint64_t generation_ = 0;             // a partial on its way ends when this moves on
  bool sending_ = false;
};

}  // namespace fluvial::aggregator
