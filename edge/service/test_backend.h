// The emulated devices, and somebody who is told when they are at work: for tests of devices that take their time.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>

#include "kernels/device_backend.h"

namespace fluvial::edge {

// Stands in for the emulator from set_emulated_backend() on.
class WatchedBackend final : public kernels::Backend {
 public:
  explicit WatchedBackend(kernels::Backend& emulator) : emulator_(emulator) {}

  // Called before each copy, by whichever thread it is that copies.
  void watch(std::function<void()> before_copy) {
    const std::lock_guard lock(mutex_);
    before_copy_ = std::move(before_copy);
  }

  Status copy(void* to, const void* from, std::size_t bytes, void* stream) override {
    if (const std::function<void()> before = watcher()) before();
    return emulator_.copy(to, from, bytes, stream);
  }

  Status synchronize(void* stream) override { return emulator_.synchronize(stream); }
  Status wait(void* event) override { return emulator_.wait(event); }
  Status check(int device) override { return emulator_.check(device); }
  Result<void*> make_stream(int device) override { return emulator_.make_stream(device); }
  void free_stream(void* stream) override { emulator_.free_stream(stream); }
  void* native_stream(void* stream) override { return emulator_.native_stream(stream); }
  void reach(int device, int other) override { emulator_.reach(device, other); }
  Result<void*> make_event(int device) override { return emulator_.make_event(device); }
  void free_event(void* event) override { emulator_.free_event(event); }
  Status record(void* event, void* stream) override { return emulator_.record(event, stream); }
  Status hold(void* stream, void* event) override { return emulator_.hold(stream, event); }
  Result<void*> allocate(int device, std::size_t bytes) override { return emulator_.allocate(device, bytes); }
  void free(void* memory) override { emulator_.free(memory); }
  Result<void*> allocate_pinned(int device, std::size_t bytes) override {
    return emulator_.allocate_pinned(device, bytes);
  }
  void free_pinned(void* memory) override { emulator_.free_pinned(memory); }
  Status zero(void* to, std::size_t bytes, void* stream) override { return emulator_.zero(to, bytes, stream); }
  Result<kernels::DeviceUuid> uuid(int device) override { return emulator_.uuid(device); }
  Result<kernels::MemoryHandle> export_memory(void* memory) override { return emulator_.export_memory(memory); }
  Result<kernels::OpenedMemory> open_memory(int device, const kernels::MemoryHandle& handle) override {
    return emulator_.open_memory(device, handle);
  }
  void close_memory(void* handle) override { emulator_.close_memory(handle); }
  Result<std::unique_ptr<kernels::DeviceCodec>> make_codec(const kernels::CodecSpec& spec) override {
    return emulator_.make_codec(spec);
  }
  kernels::DeviceVectorOps& vector_ops() override { return emulator_.vector_ops(); }
  kernels::DeviceLowrankOps* lowrank_ops() override { return emulator_.lowrank_ops(); }

 private:
  std::function<void()> watcher() {
    const std::lock_guard lock(mutex_);
    return before_copy_;
  }

  kernels::Backend& emulator_;
  std::mutex mutex_;
  std::function<void()> before_copy_;
};

}  // namespace fluvial::edge
