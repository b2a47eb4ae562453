#include "kernels/cuda/emulated/streams.h"

#include <algorithm>
#include <deque>
#include <mutex>
#include <vector>

#include "core/base/rng.h"

namespace fluvial::kernels::emulated {

class Queue {
 public:
  explicit Queue(int device) : device_(device) {}

  int device() const { return device_; }
  std::uint64_t put_count() const { return done_ + waiting_.size(); }
  void put(std::function<void()> work) { waiting_.push_back(std::move(work)); }
  // Other queues wait only for work that was put into this queue before they began to wait: so this ends.
  void run_to(std::uint64_t count) {
    while (done_ < count) {
      const std::function<void()> work = std::move(waiting_.front());
      waiting_.pop_front();
      work();
      ++done_;
    }
  }

 private:
  int device_;
  std::deque<std::function<void()>> waiting_;
  std::uint64_t done_ = 0;
};

namespace {

struct State {
  std::recursive_mutex mutex;  // work waits for other queues
  std::vector<std::weak_ptr<Queue>> queues;
  EmulatedWork when = EmulatedWork::kAtOnce;
  Rng rng{1};
};

State& state() {
  static State state;
  return state;
}

}  // namespace

void set_when(EmulatedWork when) { state().when = when; }
bool runs_at_once() { return state().when == EmulatedWork::kAtOnce; }

std::shared_ptr<Queue> make_queue(int device_index) {
  auto queue = std::make_shared<Queue>(device_index);
  const std::lock_guard lock(state().mutex);
  std::erase_if(state().queues, [](const auto& gone) { return gone.expired(); });
  state().queues.push_back(queue);
  return queue;
}

int device_of(const Queue& queue) { return queue.device(); }

void put(Queue& queue, std::function<void()> work) {
  if (runs_at_once()) return work();
  const std::lock_guard lock(state().mutex);
  queue.put(std::move(work));
  if (state().when == EmulatedWork::kMixed && state().rng.next() % 2 == 0) queue.run_to(queue.put_count());
}

Point end_of(const std::shared_ptr<Queue>& queue) {
  const std::lock_guard lock(state().mutex);
  return {queue, queue->put_count()};
}

void put_wait(Queue& queue, Point point) {
  put(queue, [point = std::move(point)] { finish(point); });
}

void finish(const Point& point) {
  if (point.queue == nullptr) return;
  const std::lock_guard lock(state().mutex);
  point.queue->run_to(point.count);
}

void finish_all() {
  const std::lock_guard lock(state().mutex);
  for (const auto& known : std::vector(state().queues)) {
    if (const auto queue = known.lock()) queue->run_to(queue->put_count());
  }
}

}  // namespace fluvial::kernels::emulated
