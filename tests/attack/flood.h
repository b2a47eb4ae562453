// Threads that do the same again and again until they are told to stop.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/base/clock.h"
#include "tests/attack/attacker.h"

namespace fluvial::attack {

class Flood {
 public:
  // Each turn of each thread; `count` is the turn's number in its thread, from 0 on. Turns end within kPatience. At
  // most `turns_max` of them in each thread.
  using Turn = std::function<void(std::uint64_t count)>;
  Flood(unsigned threads, Turn turn, std::uint64_t turns_max = 1'000'000);
  // One thread, a turn each time that `every` has passed: an attack that goes on is a matter of its pace.
  Flood(Duration every, Turn turn);
  ~Flood();  // as stop()
  Flood(const Flood&) = delete;
  Flood& operator=(const Flood&) = delete;
  std::uint64_t stop();  // the turns that were done

 private:
  std::mutex mutex_;
  std::condition_variable stopped_;
  std::atomic<bool> stopping_{false};  // changes under the mutex
  std::atomic<std::uint64_t> turns_{0};
  std::vector<std::thread> threads_;
};

// A session's worth of KeyUpdates, each asking for another; how many were written before the other side ended it.
std::uint64_t update_keys(std::uint16_t port, const Tls& tls, std::uint64_t most);
// Connections that say nothing. At most `held` are open: the oldest makes room for a new one.
class IdleConnections {
 public:
  IdleConnections(std::uint16_t port, std::string from, std::size_t held)
      : port_(port), from_(std::move(from)), held_(held) {}
  Status add(std::size_t count);

 private:
  const std::uint16_t port_;
  const std::string from_;
  const std::size_t held_;
  std::list<Connection> open_;
};

}  // namespace fluvial::attack
