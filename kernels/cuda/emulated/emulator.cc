#include "kernels/cuda/emulated/emulator.h"

#include <ucontext.h>

#include <array>
#include <csetjmp>
#include <memory>
#include <mutex>
#include <vector>

namespace fluvial::kernels::emulated {

Index3 thread_index, block_index, block_dim, grid_dim;

namespace {

constexpr std::size_t kStackBytes = std::size_t{64} * 1024;

enum class State : std::uint8_t { kReady, kAtBarrier, kAtWarp, kDone };

struct Fiber {
  std::unique_ptr<std::byte[]> stack;
  ucontext_t start;
  std::jmp_buf resume;
  bool is_started = false;
  State state = State::kDone;
  unsigned generation = 0;  // of its warp operations
};

struct Warp {
  unsigned arrived = 0;
  std::array<std::array<std::uint64_t, kWarpLanes>, 2> words{};
};

// The one grid that runs. A fiber lives on after its thread ended and takes the next block's.
class Machine {
 public:
  void run(unsigned grid, unsigned block, void (*body)(void*), void* state);
  void barrier();
  const std::uint64_t* exchange(std::uint64_t mine);
  void set_order(Order order) { order_ = order; }

 private:
  static void entry();
  void live();
  void run_block();
  bool run_ready(unsigned thread);
  void start(Fiber& fiber);
  void leave(State state);
  void release(State waiting, unsigned first, unsigned count);
  bool release_whole();

  std::mutex mutex_;
  std::vector<Fiber> fibers_;
  std::vector<Warp> warps_;
  ucontext_t scheduler_;
  std::jmp_buf scheduler_resume_;
  unsigned current_ = 0;
  unsigned at_barrier_ = 0;
  void (*body_)(void*) = nullptr;
  void* body_state_ = nullptr;
  Order order_ = Order::kAscending;
};

Machine& machine() {
  static Machine machine;
  return machine;
}

void Machine::entry() { machine().live(); }

void Machine::live() {
  for (;;) {
    body_(body_state_);
    leave(State::kDone);
  }
}

// Saves this fiber and goes back to the scheduler. The first switch into a fiber is swapcontext's; after that setjmp
// and longjmp do, without its system calls.
void Machine::leave(State state) {
  fibers_[current_].state = state;
  if (_setjmp(fibers_[current_].resume) == 0) _longjmp(scheduler_resume_, 1);
}

void Machine::start(Fiber& fiber) {
  fiber.is_started = true;
  fiber.stack = std::make_unique<std::byte[]>(kStackBytes);
  getcontext(&fiber.start);
  fiber.start.uc_stack.ss_sp = fiber.stack.get();
  fiber.start.uc_stack.ss_size = kStackBytes;
  fiber.start.uc_link = nullptr;
  makecontext(&fiber.start, entry, 0);
  swapcontext(&scheduler_, &fiber.start);
}

bool Machine::run_ready(unsigned thread) {
  Fiber& fiber = fibers_[thread];
  if (fiber.state != State::kReady) return false;
  current_ = thread;
  thread_index.x = thread;
  if (_setjmp(scheduler_resume_) != 0) return true;
  if (fiber.is_started) _longjmp(fiber.resume, 1);
  start(fiber);
  return true;
}

void Machine::release(State waiting, unsigned first, unsigned count) {
  for (unsigned thread = first; thread < first + count; ++thread) {
    FLUVIAL_CHECK(fibers_[thread].state == waiting, "threads of a kernel wait at different places");
    fibers_[thread].state = State::kReady;
  }
}

// Releases the threads whose barrier or warp operation all have reached. Returns whether there were any.
bool Machine::release_whole() {
  bool any = false;
  if (at_barrier_ == block_dim.x) {
    at_barrier_ = 0;
    release(State::kAtBarrier, 0, block_dim.x);
    any = true;
  }
  for (unsigned warp = 0; warp < block_dim.x / kWarpLanes; ++warp) {
    if (warps_[warp].arrived != kWarpLanes) continue;
    warps_[warp].arrived = 0;
    release(State::kAtWarp, warp * kWarpLanes, kWarpLanes);
    any = true;
  }
  return any;
}

void Machine::run_block() {
  const unsigned count = block_dim.x;
  for (unsigned thread = 0; thread < count; ++thread) fibers_[thread].state = State::kReady;
  do {
    for (unsigned i = 0; i < count; ++i) run_ready(order_ == Order::kAscending ? i : count - 1 - i);
  } while (release_whole());
  for (unsigned thread = 0; thread < count; ++thread) {
    FLUVIAL_CHECK(fibers_[thread].state == State::kDone, "threads of a kernel wait for others that have ended");
  }
}

void Machine::run(unsigned grid, unsigned block, void (*body)(void*), void* state) {
  FLUVIAL_CHECK(block % kWarpLanes == 0 && block > 0 && block <= kBlockThreadsMax && grid > 0,
                "a launch that a device would refuse or that no kernel here is written for");
  const std::lock_guard lock(mutex_);
  if (fibers_.empty()) fibers_ = std::vector<Fiber>(kBlockThreadsMax);
  if (warps_.empty()) warps_.resize(kBlockThreadsMax / kWarpLanes);
  body_ = body;
  body_state_ = state;
  block_dim = {block, 1, 1};
  grid_dim = {grid, 1, 1};
  for (unsigned i = 0; i < grid; ++i) {
    block_index.x = order_ == Order::kAscending ? i : grid - 1 - i;
    run_block();
  }
  body_ = nullptr;
}

void Machine::barrier() {
  ++at_barrier_;
  leave(State::kAtBarrier);
}

const std::uint64_t* Machine::exchange(std::uint64_t mine) {
  Warp& warp = warps_[current_ / kWarpLanes];
  Fiber& fiber = fibers_[current_];
  auto& words = warp.words[fiber.generation++ % 2];
  words[current_ % kWarpLanes] = mine;
  ++warp.arrived;
  leave(State::kAtWarp);
  return words.data();
}

}  // namespace

bool is_supported() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return false;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return false;
#else
  return true;
#endif
#else
  return true;
#endif
}

void set_order(Order order) { machine().set_order(order); }

void run_blocks(unsigned grid, unsigned block, void (*body)(void*), void* state) {
  machine().run(grid, block, body, state);
}

void block_barrier() { machine().barrier(); }
const std::uint64_t* warp_exchange(std::uint64_t mine) { return machine().exchange(mine); }
unsigned lane() { return thread_index.x % kWarpLanes; }

}  // namespace fluvial::kernels::emulated
