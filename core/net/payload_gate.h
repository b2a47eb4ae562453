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
//  (the
//     session's own monitor): memory is not held by a trickle.
//  5. One payload larger than the bound passes when no other is there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

namespace fluvial::net {

// Thread safe.
class PayloadGate : public std::enable_shared_from_this<PayloadGate> {
 public:
  struct Limits {
    std::size_t bytes_max = 32u << 20;
    std::size_t bytes_per_member_max = 16u << 20;
  };
  explicit PayloadGate(Limits limits) : limits_(limits) {}

  // Called, once and from any thread, when what was refused is worth another try.
  using Again = std::function<void()>;

  // A payload on its way in; gives everything back when it is dropped.
  class Ticket {
   public:
    Ticket(std::shared_ptr<PayloadGate> gate, std::uint64_t member, std::size_t announced)
        : gate_(std::move(gate)), member_(member), announced_(announced) {}
    ~Ticket();
    Ticket(const Ticket&) = delete;
    Ticket& operator=(const Ticket&) = delete;
    bool try_take(std::size_t bytes, Again again);  // `bytes` more of those announced
    bool try_take_rest();                           // all that are missing; what was refused is not told of again

   private:
    friend class PayloadGate;
    const std::shared_ptr<PayloadGate> gate_;
    const std::uint64_t member_;
    const std::size_t announced_;
    std::size_t taken_ = 0;  // with the gate's mutex
    bool is_ahead_ = false;  // likewise: it has been given its rest
    std::size_t missing() const { return announced_ - taken_; }
  };

  std::shared_ptr<Ticket> try_begin(std::uint64_t member, std::size_t announced, Again again);
  std::size_t bytes_used() const;
  bool someone_waits() const;

 private:
  bool grant(Ticket& ticket, std::size_t bytes);
  bool can_all_finish() const;
  void count(Ticket& ticket, std::size_t taken);
  void give_back(Ticket& ticket);

  const Limits limits_;
  mutable std::mutex mutex_;
  std::size_t used_ = 0;
  std::size_t ahead_ = 0;                           // of those that have been given their rest
  std::map<std::uint64_t, std::size_t> announced_;  // by member
  std::set<Ticket*> unfinished_;                    // those that have taken something, and not all
  std::vector<Again> waiting_;
};

}  // namespace fluvial::net
