#include "tests/attack/flood.h"

namespace fluvial::attack {

Flood::Flood(unsigned threads, Turn turn, std::uint64_t turns_max) {
  for (unsigned i = 0; i < threads; ++i) {
    threads_.emplace_back([this, turn, turns_max] {
      for (std::uint64_t count = 0; count < turns_max && !stopping_; ++count) {
        turn(count);
        ++turns_;
      }
    });
  }
}

Flood::Flood(Duration every, Turn turn) {
  threads_.emplace_back([this, every, turn] {
    std::unique_lock lock(mutex_);
    for (std::uint64_t count = 0; !stopping_; ++count) {
      lock.unlock();
      turn(count);
      ++turns_;
      lock.lock();
      stopped_.wait_for(lock, every, [this] { return stopping_.load(); });
    }
  });
}

Flood::~Flood() { stop(); }

std::uint64_t Flood::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  stopped_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  return turns_;
}

std::uint64_t update_keys(std::uint16_t port, const Tls& tls, std::uint64_t most) {
  Result<Connection> connection = Connection::open(port, tls);
  std::uint64_t count = 0;
  while (connection.ok() && count < most && connection->update_key().ok()) ++count;
  return count;
}

Status IdleConnections::add(std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    FLUVIAL_ASSIGN(Connection connection, Connection::open(port_, from_));
    open_.push_back(std::move(connection));
    if (open_.size() > held_) open_.pop_front();
  }
  return {};
}

}  // namespace fluvial::attack
