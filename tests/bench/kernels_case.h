// The cases that kernels_bench times, and the memory and threads they run on.
//
// A new row is one more Case in the list that a *_cases.cc returns. Its make() is called once for each combination of
// size, target and thread count, outside of what is timed, and gives two functions: one runs the kernel once over all
// values and returns the seconds it took, the other does so for the copy that the kernel is compared with.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "kernels/codec.h"

namespace fluvial::bench {

using kernels::cpu::Target;

// Named blocks that last from case to case: large memory is mapped and touched once. A block's content stays until
// another case writes to it.
class Memory {
 public:
  Memory() = default;
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  ~Memory();

  // The first `size_bytes` of block `name`, page aligned. A block that must grow is mapped afresh, zero-filled;
  // `touched` brings its pages in at once.
  MutableByteSpan block(const std::string& name, std::size_t size_bytes, bool touched = true);
  template <typename T>
  std::span<T> of(const std::string& name, std::size_t count) {
    const MutableByteSpan bytes = block(name, count * sizeof(T));
    return {reinterpret_cast<T*>(bytes.data()), count};  // NOLINT: page aligned
  }
  // The first `count` of an endless list of normally distributed values, deviation 1. Never written to.
  std::span<const float> normals(std::size_t count);

 private:
  struct Block {
    void* data = nullptr;
    std::size_t size_bytes = 0;
  };
  std::map<std::string, Block> blocks_;
  std::size_t normal_count_ = 0;
};

// Threads that wait for work; the caller is one of them.
class Crew {
 public:
  explicit Crew(std::size_t threads);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  ~Crew();

  // Calls part(0) to part(parts - 1), each once; a free thread takes the next.
  void run(std::size_t parts, const std::function<void(std::size_t)>& part);

 private:
  struct Shared;
  std::unique_ptr<Shared> shared_;
};

struct Setup {
  std::size_t values = 0;
  Target target = Target::kBaseline;
  std::size_t threads = 1;
  Memory& memory;
  Crew& crew;
};

struct Timed {
  std::function<double()> kernel_s;  // runs the kernel once
  std::function<double()> copy_s;    // runs the copy that it is compared with, on as many values
  double bytes_moved = 0;            // what one run has to read and write
};

struct Case {
  std::string kernel;              // reduce, accumulate, encode, ...
  std::string codec;               // as in the design: "int8"; "powersgd:rank=4" where options differ from the default
  std::string rounding;            // nearest, stochastic or empty
  std::string backend = "cpu";     // or cuda
  std::string device_target = {};  // cuda: what stands as the target; it then runs once, not for each CPU target
  bool in_default_run = true;      // otherwise with --all, or when named by --codec
  std::function<Result<Timed>(const Setup&)> make;
};

// A CPU kernel's work: phases one after the other, in each first `serial` on one thread and then the parts on all.
struct Phase {
  std::function<void()> serial;  // may be empty
  std::size_t parts = 0;
  std::function<void(std::size_t)> part;
  std::function<std::size_t()> count = {};  // when set: how many parts, asked after `serial`
};
void run_phases(const std::vector<Phase>& phases, Crew& crew);
// Timed by the clock, against a memcpy of the normal values by one thread.
Timed on_cpu(const Setup& setup, std::vector<Phase> phases, double bytes_moved);

// All chunks that CPU cases cut their vectors into.
kernels::ChunkLayout chunks_of(std::size_t values);

std::vector<Case> vector_cases();
std::vector<Case> codec_cases();

}  // namespace fluvial::bench
