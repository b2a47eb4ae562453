#include "tests/bench/kernels_case.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <numbers>
#include <thread>

#include "core/base/check.h"
#include "core/base/rng.h"

namespace fluvial::bench {
namespace {

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Box and Muller, "A Note on the Generation of Random Normal Deviates", 1958.
void fill_with_normals(std::span<float> out) {
  Rng rng(1);
  for (std::size_t i = 0; i < out.size(); i += 2) {
    const std::uint64_t draw = rng.next();
    const float u = (static_cast<float>(draw >> 41) + 0.5F) * 0x1p-23F;  // inside (0, 1)
    const float angle = static_cast<float>(draw & 0xffffff) * (2 * std::numbers::pi_v<float> * 0x1p-24F);
    const float radius = std::sqrt(-2 * std::log(u));
    out[i] = radius * std::cos(angle);
    if (i + 1 < out.size()) out[i + 1] = radius * std::sin(angle);
  }
}

}  // namespace

Memory::~Memory() {
  for (const auto& [name, block] : blocks_) ::munmap(block.data, block.size_bytes);
}

MutableByteSpan Memory::block(const std::string& name, std::size_t size_bytes, bool touched) {
  Block& block = blocks_[name];
  if (block.size_bytes < size_bytes) {
    if (block.data != nullptr) ::munmap(block.data, block.size_bytes);
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | (touched ? MAP_POPULATE : 0);
    block.data = ::mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    FLUVIAL_CHECK(block.data != MAP_FAILED, "no memory for a buffer of the benchmark");  // NOLINT: POSIX
    block.size_bytes = size_bytes;
  }
  return {static_cast<std::byte*>(block.data), size_bytes};
}

std::span<const float> Memory::normals(std::size_t count) {
  const std::span<float> values = of<float>("normals", count);
  if (normal_count_ < count) {
    fill_with_normals(values);
    normal_count_ = count;
  }
  return values;
}

// One run is announced by `turn`, which the helpers wait for; `busy` counts those that have not finished it.
struct Crew::Shared {
  std::atomic<std::uint64_t> turn = 0;
  std::atomic<std::size_t> busy = 0;
  bool ending = false;
  std::size_t parts = 0;
  std::atomic<std::size_t> next = 0;
  const std::function<void(std::size_t)>* part = nullptr;
  std::vector<std::thread> helpers;

  void work() {
    for (std::size_t i = next.fetch_add(1); i < parts; i = next.fetch_add(1)) (*part)(i);
  }
  void serve() {
    for (std::uint64_t seen = 0;; ++seen) {
      turn.wait(seen);
      if (ending) return;
      work();
      if (busy.fetch_sub(1) == 1) busy.notify_one();
    }
  }
};

Crew::Crew(std::size_t threads) : shared_(std::make_unique<Shared>()) {
  shared_->helpers.resize(std::max<std::size_t>(threads, 1) - 1);
  for (std::thread& helper : shared_->helpers) helper = std::thread([shared = shared_.get()] { shared->serve(); });
}

Crew::~Crew() {
  shared_->ending = true;
  shared_->turn.fetch_add(1);
  shared_->turn.notify_all();
  for (std::thread& helper : shared_->helpers) helper.join();
}

void Crew::run(std::size_t parts, const std::function<void(std::size_t)>& part) {
  shared_->parts = parts;
  shared_->part = &part;
  shared_->next.store(0);
  shared_->busy.store(shared_->helpers.size());
  shared_->turn.fetch_add(1);
  shared_->turn.notify_all();
  shared_->work();
  for (std::size_t left = shared_->busy.load(); left != 0; left = shared_->busy.load()) shared_->busy.wait(left);
}

void run_phases(const std::vector<Phase>& phases, Crew& crew) {
  for (const Phase& phase : phases) {
    if (phase.serial) phase.serial();
    const std::size_t parts = phase.count ? phase.count() : phase.parts;
    if (parts > 0) crew.run(parts, phase.part);
  }
}

Timed on_cpu(const Setup& setup, std::vector<Phase> phases, double bytes_moved) {
  const std::span<const float> from = setup.memory.normals(setup.values);
  const std::span<float> to = setup.memory.of<float>("copy", setup.values);
  Crew& crew = setup.crew;
  return {.kernel_s = [&crew, phases = std::move(phases)] { return seconds_of([&] { run_phases(phases, crew); }); },
          .copy_s = [from, to] { return seconds_of([&] { std::memcpy(to.data(), from.data(), from.size_bytes()); }); },
          .bytes_moved = bytes_moved};
}

kernels::ChunkLayout chunks_of(std::size_t values) { return {.value_count = values}; }

}  // namespace fluvial::bench
