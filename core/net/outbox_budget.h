// The memory that sessions hold for peers who do not read, all sessions of a listener together. What counts is what a
// session alone keeps: messages, not the payloads that send() shares between many sessions.
//
// Beyond the bound a session ends: of those whose oldest message has waited for kPatience the one that keeps most. So
// a burst to everybody ends nobody, and neither does a slow line while there is room. Nobody waits for the budget: a
// session that stopped reading until its peer takes its answers would never go on with a peer that waits likewise.
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "core/base/clock.h"

namespace fluvial::net {

// Thread safe.
class OutboxBudget : public std::enable_shared_from_this<OutboxBudget> {
 public:
  static constexpr Duration kPatience = std::chrono::seconds(5);

  // The clock outlives the budget; none: the machine's.
  explicit OutboxBudget(std::size_t bytes_max, const Clock* clock = nullptr)
      : bytes_max_(bytes_max), clock_(clock != nullptr ? *clock : machines_) {}

  // Called once and from any thread, with what is kept: the session is to end.
  using End = std::function<void(std::size_t bytes)>;

  // Of one session; closed when it is dropped.
  class Account {
   public:
    Account(std::shared_ptr<OutboxBudget> budget, End end) : budget_(std::move(budget)), end_(std::move(end)) {}
    ~Account();
    Account(const Account&) = delete;
    Account& operator=(const Account&) = delete;
    void add(std::size_t bytes);    // another message waits
    void taken(std::size_t bytes);  // the oldest ones are out
    void close();                   // gives everything back; what is added later does not count

   private:
    friend class OutboxBudget;
    struct Waiting {
      TimePoint since;
      std::size_t bytes = 0;
    };
    const std::shared_ptr<OutboxBudget> budget_;
    // With the budget's mutex.
    End end_;
    std::size_t bytes_ = 0;
    std::deque<Waiting> waiting_;  // the oldest first; those of one moment together
    bool has_ended_ = false;
  };

  std::shared_ptr<Account> open(End end);
  std::size_t bytes_used() const;
  std::size_t bytes_max() const { return bytes_max_; }

 private:
  std::vector<std::function<void()>> end_some(TimePoint now);
  void end(Account& account);

  const std::size_t bytes_max_;
  const SystemClock machines_;
  const Clock& clock_;
  mutable std::mutex mutex_;
  std::size_t used_ = 0;
  TimePoint next_look_;
  std::set<Account*> accounts_;
};

}  // namespace fluvial::net
