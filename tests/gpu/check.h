// The few words that these tests need, so that they build where there is a CUDA toolkit and nothing else.
#pragma once

#include <cstring>
#include <functional>
#include <iostream>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/device.h"

namespace fluvial::gpu_test {

using kernels::Device;
using kernels::DeviceBuffer;
using kernels::DeviceSpan;
using kernels::PinnedBuffer;
using kernels::Stream;

// What every test is given.
struct Context {
  Device device;
  bool is_small = true;  // the emulator is slow
};

struct Test {
  std::string name;
  std::function<void(const Context&)> run;
};

void add_vector_tests(std::vector<Test>& tests);
void add_codec_tests(std::vector<Test>& tests);
void add_hostile_tests(std::vector<Test>& tests);
void add_state_tests(std::vector<Test>& tests);
void add_powersgd_tests(std::vector<Test>& tests);
void add_robust_tests(std::vector<Test>& tests);
void add_pipeline_tests(std::vector<Test>& tests);
void add_memory_tests(std::vector<Test>& tests);
void add_group_tests(std::vector<Test>& tests);
void add_site_tests(std::vector<Test>& tests);

// Counts, and says where; a test goes on after a failure, but says no more than a few of its kind.
void fail(const std::string& what, const std::source_location& where);
int failures();

inline bool check(bool condition, const std::string& what,
                  const std::source_location& where = std::source_location::current()) {
  if (!condition) fail(what, where);
  return condition;
}

// Stops the program: without it the test makes no sense.
inline void require(const Status& status, const std::source_location& where = std::source_location::current()) {
  if (status.ok()) return;
  fail(status.error().to_string(), where);
  std::exit(1);
}
template <typename T>
T require(Result<T> result, const std::source_location& where = std::source_location::current()) {
  if (!result.ok()) require(Status(result.error()), where);
  return std::move(result).value();
}

// Bit for bit; names the first that differs.
template <typename T>
bool check_same(std::span<const T> got, std::span<const T> expected, const std::string& what,
                const std::source_location& where = std::source_location::current()) {
  if (!check(got.size() == expected.size(), what + ": another length", where)) return false;
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::memcmp(&got[i], &expected[i], sizeof(T)) == 0) continue;
    if constexpr (sizeof(T) == 1) {
      fail(what + ": differs at " + std::to_string(i) + ": " + std::to_string(static_cast<int>(got[i])) +
               ", expected " + std::to_string(static_cast<int>(expected[i])),
           where);
    } else {
      fail(what + ": differs at " + std::to_string(i) + ": " + std::to_string(got[i]) + ", expected " +
               std::to_string(expected[i]),
           where);
    }
    return false;
  }
  return true;
}

// A vector of the host on the device, `skew` elements after an aligned address.
template <typename T>
class OnDevice {
 public:
  OnDevice(const Device& device, std::size_t size, Stream& stream, std::size_t skew = 0)
      : buffer_(require(DeviceBuffer::make(device, (size + skew) * sizeof(T)))),
        span_(buffer_.as<T>().subspan(skew, size)),
        stream_(&stream) {}
  OnDevice(const Device& device, std::span<const T> values, Stream& stream, std::size_t skew = 0)
      : OnDevice(device, values.size(), stream, skew) {
    require(kernels::copy_to_device(values, span_, stream));
    require(stream.synchronize());
  }
  DeviceSpan<T> span() const { return span_; }
  const DeviceBuffer& buffer() const { return buffer_; }
  std::vector<T> values() const { return first(span_.size()); }
  std::vector<T> first(std::size_t count) const {
    std::vector<T> values(count);
    require(kernels::copy_to_host(DeviceSpan<const T>(span_.first(count)), std::span(values), *stream_));
    require(stream_->synchronize());
    return values;
  }

 private:
  DeviceBuffer buffer_;
  DeviceSpan<T> span_;
  Stream* stream_;
};

}  // namespace fluvial::gpu_test
