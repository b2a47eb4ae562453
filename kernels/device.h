// Devices that kernels run on, and the memory, streams and events there. No CUDA type is seen here: without a CUDA
// device, a driver, or CUDA in the build the same binary starts, and everything runs on the CPU.
//
// A stream runs its work in order, and mostly after the call returned: until the stream (or an event after the call)
// was synchronised, memory that a call names must live, and its results must not be read. On the CPU every call runs at
// once and a stream is only a name. Objects may move between threads; each is used by one thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include "core/base/result.h"

namespace fluvial::kernels {

// True when the CUDA backend was compiled in.
bool cuda_built();

// How many CUDA devices the driver shows. kUnavailable, with the reason, when there is no driver or no device, or when
// this was built without CUDA.
Result<int> cuda_device_count();

struct CudaDevice {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  std::size_t memory_bytes = 0;
  bool is_exclusive = false;  // set to serve one process alone (nvidia-smi -c), or none
};

// kInvalidArgument when there is no such device; kUnavailable as above.
Result<CudaDevice> cuda_device(int device_index);

enum class DeviceKind : std::uint8_t {
  kCpu,
  kCuda,
  kEmulated,  // the CUDA kernels on the CPU, thread by thread: for tests, where they linked it (cuda/emulated)
};

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;
  static constexpr Device cpu() { return {}; }
  static constexpr Device cuda(int index = 0) { return {DeviceKind::kCuda, index}; }
  bool operator==(const Device&) const = default;
};

// "cpu", "cuda" (the first), "cuda:1", "emulated", "emulated:1". kInvalidArgument says what was expected; check_device
// says whether there is such a device.
Result<Device> parse_device(std::string_view text);
std::string to_string(const Device& device);
// kUnavailable or kInvalidArgument, with the reason, when nothing can run there.
Status check_device(const Device& device);

// Memory on a device: a span that the host cannot read by accident.
template <typename T>
class DeviceSpan {
 public:
  constexpr DeviceSpan() = default;
  constexpr DeviceSpan(T* data, std::size_t size) : data_(data), size_(size) {}
  template <typename U>
    requires std::is_convertible_v<U (*)[], T (*)[]>
  constexpr DeviceSpan(const DeviceSpan<U>& other)  // NOLINT(google-explicit-constructor): as std::span
      : data_(other.data()), size_(other.size()) {}

  constexpr T* data() const { return data_; }
  constexpr std::size_t size() const { return size_; }
  constexpr std::size_t size_bytes() const { return size_ * sizeof(T); }
  constexpr bool empty() const { return size_ == 0; }
  constexpr DeviceSpan first(std::size_t count) const { return subspan(0, count); }
  constexpr DeviceSpan subspan(std::size_t offset) const { return subspan(offset, size_ - offset); }
  constexpr DeviceSpan subspan(std::size_t offset, std::size_t count) const {
    FLUVIAL_CHECK(offset <= size_ && count <= size_ - offset, "a part beyond the end of device memory");
    return {data_ + offset, count};
  }

 private:
  T* data_ = nullptr;
  std::size_t size_ = 0;
};

class Backend;  // internal: device_backend.h

// Owns one resource of a backend (a stream, an event, memory) and releases it. Move-only. Internal.
class BackendHandle {
 public:
  using Release = void (*)(Backend& backend, void* handle);
  BackendHandle() = default;
  BackendHandle(Backend* backend, void* handle, Release release)
      : backend_(backend), handle_(handle), release_(release) {}
  BackendHandle(BackendHandle&& other) noexcept { *this = std::move(other); }
  BackendHandle& operator=(BackendHandle&& other) noexcept {
    std::swap(backend_, other.backend_);
    std::swap(handle_, other.handle_);
    std::swap(release_, other.release_);
    return *this;
  }
  ~BackendHandle() {
    if (handle_ != nullptr) release_(*backend_, handle_);
  }
  Backend& backend() const { return *backend_; }
  void* get() const { return handle_; }

 private:
  Backend* backend_ = nullptr;
  void* handle_ = nullptr;
  Release release_ = nullptr;
};

class Stream {
 public:
  static Result<Stream> make(const Device& device);
  const Device& device() const { return device_; }
  // Waits until all work in the stream is done. kInternal when some of it failed.
  Status synchronize();

  Backend& backend() const { return handle_.backend(); }  // internal, as is
  void* get() const { return handle_.get(); }

 private:
  Device device_;
  BackendHandle handle_;
};

// A point in a stream.
class Event {
 public:
  static Result<Event> make(const Device& device);
  Status record(Stream& stream);  // here, now
  Status wait();                  // the caller waits until the point was reached; at once when never recorded
  Status hold(Stream& stream);    // the stream waits for it, the caller does not

 private:
  BackendHandle handle_;
};

// Memory on a device, aligned to 256 bytes, not initialised. Never empty inside, so that 0 bytes are no special case.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  static Result<DeviceBuffer> make(const Device& device, std::size_t bytes);  // kResourceExhausted when there is none
  std::size_t size() const { return size_; }
  DeviceSpan<std::byte> span() const { return {static_cast<std::byte*>(handle_.get()), size_}; }
  template <typename T>
  DeviceSpan<T> as() const {
    return {static_cast<T*>(handle_.get()), size_ / sizeof(T)};
  }

  Backend& backend() const { return handle_.backend(); }  // internal

 private:
  BackendHandle handle_;
  std::size_t size_ = 0;
};

// Host memory that the device reads and writes by itself, so that copies to and from it overlap other work; aligned to
// 256 bytes, filled with zeros.
class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  static Result<PinnedBuffer> make(const Device& device, std::size_t bytes);
  std::size_t size() const { return size_; }
  std::span<std::byte> span() const { return {static_cast<std::byte*>(handle_.get()), size_}; }
  template <typename T>
  std::span<T> as() const {
    return {static_cast<T*>(handle_.get()), size_ / sizeof(T)};
  }

 private:
  BackendHandle handle_;
  std::size_t size_ = 0;
};

// Copies of bytes, in the stream; sizes must be equal (checked). From and to host memory that is not pinned they work,
// but are slower and may wait.
Status copy_bytes(void* to, const void* from, std::size_t bytes, Stream& stream);
Status fill_zero(DeviceSpan<std::byte> to, Stream& stream);

template <typename T>
Status copy_to_device(std::span<const T> from, DeviceSpan<T> to, Stream& stream) {
  FLUVIAL_CHECK(from.size() == to.size(), "a copy to a device between different sizes");
  return copy_bytes(to.data(), from.data(), to.size_bytes(), stream);
}
template <typename T>
Status copy_to_host(DeviceSpan<const T> from, std::span<T> to, Stream& stream) {
  FLUVIAL_CHECK(from.size() == to.size(), "a copy from a device between different sizes");
  return copy_bytes(to.data(), from.data(), to.size_bytes(), stream);
}
template <typename T>
Status copy_on_device(DeviceSpan<const T> from, DeviceSpan<T> to, Stream& stream) {
  FLUVIAL_CHECK(from.size() == to.size(), "a copy on a device between different sizes");
  return copy_bytes(to.data(), from.data(), to.size_bytes(), stream);
}

}  // namespace fluvial::kernels
