// The memory that payloads on their way in may take, all sessions of a listener together and each member for itself: a
// session that finds it used up stops reading, and its peer is held back by TCP.
//
//  1. A member begins a payload when it fits into the member's own bound with what else it has begun, by the length
//     that it announces; a member's first passes always. Announcing costs the others nothing.
//  2. Of all members' bound a payload takes what it has received, piece by piece. A piece is granted when it fits, and
//     when all that have begun could still be finished one after another (the banker's rule): payloads that wait for
//     each other's memory for ever are not let in.
//  3. Of which half has come may take the rest ahead, to be read into one place, while all that is taken stays within
//     half of the bound and nobody waits. Who sends no more then holds no more than twice what it sent; and the others
//     are let in as if it never gave anything back, so what is left is enough for them, one after another.
//  4. While somebody waits, a payload must come as fast as would bring all of it in a minute, or its session is cut
//     (the session's own monitor): memory is not held by a trickle.
//  5. Members whose payloads were slow while others waited have a slower lane (payload_lanes.h): the two slower lanes
//     together take three quarters of the bound, the slowest one half. What a slower lane holds is never counted on in
//     a faster one, and nobody of a slower lane hurries those of a faster one.
//  6. One payload larger than the bound of its lane passes when no other is there.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "core/base/clock.h"
#include "core/net/payload_lanes.h"

namespace fluvial::net {

// Thread safe.
class PayloadGate : public std::enable_shared_from_this<PayloadGate> {
 public:
  struct Limits {
    std::size_t bytes_max = 32u << 20;
    std::size_t bytes_per_member_max = 16u << 20;
  };
  // The clock outlives the gate; none: the machine's.
  explicit PayloadGate(Limits limits, const Clock* clock = nullptr)
      : limits_(limits), clock_(clock != nullptr ? *clock : machines_), looked_(clock_.now()) {}

  // Called, once and from any thread, when what was refused is worth another try.
  using Again = std::function<void()>;

  // A payload on its way in; gives everything back when it is dropped.
  class Ticket {
   public:
    Ticket(std::shared_ptr<PayloadGate> gate, std::uint64_t member, std::size_t announced, std::size_t lane)
        : gate_(std::move(gate)), member_(member), announced_(announced), lane_(lane) {}
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    bool try_take(std::size_t bytes, Again again);  // `bytes` more of those announced
    bool try_take_rest();                           // all that are missing; what was refused is not told of again
    void arrived();                                 // all of it has come: the peer is done with it
    bool is_in_the_way() const;                     // of somebody who waits for memory

   private:
    friend class PayloadGate;
    const std::shared_ptr<PayloadGate> gate_;
    const std::uint64_t member_;
    const std::size_t announced_;
    const std::size_t lane_;
    // With the gate's mutex, as what follows.
    std::size_t taken_ = 0;
    bool is_ahead_ = false;  // it has been given its rest
    bool has_ended_ = false;
    std::optional<Duration> turn_;  // its peer's, since then (by waited_)
    Duration in_the_way_{};         // in turns before
    std::size_t missing() const { return announced_ - taken_; }
    void end_turn();
    void end();
  };

  std::shared_ptr<Ticket> try_begin(std::uint64_t member, std::size_t announced, Again again);
  std::size_t bytes_used() const;
  bool someone_waits() const;

 private:
  using ByLane = std::array<std::size_t, PayloadLanes::kLanes>;

  bool grant(Ticket& ticket, std::size_t bytes);
  std::size_t left_for(std::size_t lane, const ByLane& held) const;
  bool can_all_finish(std::size_t lane) const;
  void count(Ticket& ticket, std::size_t taken);
  void give_back(Ticket& ticket);
  void pass_time();
  std::vector<Again> take_waiting();

  const Limits limits_;
  const SystemClock machines_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  PayloadLanes lanes_;
  ByLane used_{};
  ByLane ahead_{};                                  // of those that have been given their rest
  std::map<std::uint64_t, std::size_t> announced_;  // by member
  std::set<Ticket*> unfinished_;                    // those that have taken something, and not all
  std::vector<Again> waiting_;
  std::size_t fastest_waiting_ = PayloadLanes::kLanes;   // the lane of those who wait for memory; all lanes: nobody
  std::array<Duration, PayloadLanes::kLanes> waited_{};  // how long somebody of this lane, or a faster one, has
  TimePoint looked_;                                     // when waited_ was brought up to date
};

}  // namespace fluvial::net
