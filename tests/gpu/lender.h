// This program, started again, lends memory of a device to the one that tests.
#pragma once

#include <sys/types.h>

#include <vector>

#include "kernels/device_memory.h"

namespace fluvial::gpu_test {

// What it holds.
std::vector<float> lent_values(std::size_t count);

// A process that lends values until it is closed.
class Lender {
 public:
  Lender(const kernels::Device& device, std::size_t count);
  Lender(const Lender&) = delete;
  Lender& operator=(const Lender&) = delete;
  ~Lender() { close(); }
  const kernels::MemoryHandle& handle() const { return handle_; }
  void close();
  void kill();  // it has no time to give anything back

 private:
  pid_t process_ = 0;
  int end_ = -1;
  kernels::MemoryHandle handle_;
};

// That process: writes a handle to its output, ends with its input.
int lend(const kernels::Device& device, std::size_t value_count);

}  // namespace fluvial::gpu_test
