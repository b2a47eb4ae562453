// The network's state of each session, found by its number without a search. Numbers grow by one and are never reused,
// so a dead session costs the eight bytes of its place.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/base/ids.h"

namespace fluvial::simulator {

using SessionId = Id<struct SessionTag>;  // of both ends; never reused. 0: none

// First in, first out, without an allocation while it is empty and with few when it is not.
template <typename T>
class Fifo {
 public:
  bool empty() const { return head_ == items_.size(); }
  std::size_t size() const { return items_.size() - head_; }
  T& front() { return items_[head_]; }
  T& back() { return items_.back(); }
  T& before_back() { return items_[items_.size() - 2]; }
  void push(T item) { items_.push_back(std::move(item)); }
  T pop() {
    T item = std::move(items_[head_++]);
    if (head_ == items_.size()) clear();
    if (head_ >= 64 && head_ * 2 >= items_.size()) {
      items_.erase(items_.begin(), items_.begin() + static_cast<std::ptrdiff_t>(head_));
      head_ = 0;
    }
    return item;
  }
  void clear() {
    items_.clear();
    head_ = 0;
  }

 private:
  std::vector<T> items_;
  std::size_t head_ = 0;
};

template <typename Session>
class SessionTable {
 public:
  std::pair<SessionId, Session*> add() {
    places_.push_back(std::make_unique<Session>());
    ++live_;
    return {SessionId(places_.size()), places_.back().get()};
  }
  Session* find(SessionId id) const {
    return id.value() - 1 < places_.size() ? places_[id.value() - 1].get() : nullptr;  // 0 wraps, and is beyond
  }
  void erase(SessionId id) {
    FLUVIAL_CHECK(find(id) != nullptr, "a session is forgotten twice");
    places_[id.value() - 1].reset();
    --live_;
  }
  std::size_t size() const { return live_; }
  // In the order of their numbers.
  template <typename Visit>
  void for_each(Visit&& visit) {
    for (std::size_t i = 0; i < places_.size(); ++i) {
      if (places_[i] != nullptr) visit(SessionId(i + 1), *places_[i]);
    }
  }

 private:
  std::vector<std::unique_ptr<Session>> places_;
  std::size_t live_ = 0;
};

}  // namespace fluvial::simulator
