// device_memory.h: this program, started again, lends memory to the one that tests.
#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <optional>

#include "core/base/rng.h"
#include "kernels/cuda/emulated/memory.h"
#include "kernels/device_memory.h"
#include "kernels/device_vector.h"
#include "tests/gpu/check.h"
#include "tests/gpu/lender.h"

namespace fluvial::gpu_test {
namespace {

using kernels::ImportedMemory;
using kernels::MemoryHandle;
using kernels::emulated::HandleParts;

Stream make_stream(const Device& device) { return require(Stream::make(device)); }

bool is_shared(const Context& context) { return context.device.kind != kernels::DeviceKind::kCpu; }

void check_refused(const Context& context, const MemoryHandle& handle, const std::string& what,
                   const std::source_location& where = std::source_location::current()) {
  const Result<ImportedMemory> opened = ImportedMemory::open(context.device, handle);
  if (!check(!opened.ok(), what + " was opened", where)) return;
  check(opened.error().code == Code::kInvalidArgument, what + ": " + opened.error().to_string(), where);
}

void the_cpu_shares_nothing(const Context&) {
  const DeviceBuffer buffer = require(DeviceBuffer::make(Device::cpu(), 16));
  const auto exported = kernels::export_memory(buffer);
  check(!exported.ok() && exported.error().code == Code::kFailedPrecondition, "memory of the CPU was exported");
  check(!kernels::device_uuid(Device::cpu()).ok(), "the CPU has a UUID");
  check(!ImportedMemory::open(Device::cpu(), {}).ok(), "the CPU opened a handle");
}

void uuids(const Context& context) {
  if (!is_shared(context)) return;
  const kernels::DeviceUuid uuid = require(kernels::device_uuid(context.device));
  check(uuid != kernels::DeviceUuid{}, "a UUID");
  check(uuid == require(kernels::device_uuid(context.device)), "always the same");
  Device next = context.device;
  ++next.index;
  if (check_device(next).ok()) check(uuid != require(kernels::device_uuid(next)), "another device's is another");
}

// Kernels read it in place, from its beginning and from the middle.
void another_process_memory(const Context& context) {
  if (!is_shared(context)) return;
  Stream stream = make_stream(context.device);
  for (const std::size_t count : {5U, 4'096U, 1'000'003U}) {
    Lender lender(context.device, count);
    const std::vector<float> expected = lent_values(count);
    const OnDevice<float> out(context.device, count, stream);
    {
      const ImportedMemory memory = require(ImportedMemory::open(context.device, lender.handle()));
      check(memory.span().size() >= count * sizeof(float), "its size");
      const DeviceSpan<const float> values(reinterpret_cast<const float*>(memory.span().data()), count);
      require(kernels::device_reduce(std::array{values}, out.span(), stream));
      check_same(std::span<const float>(out.values()), std::span(expected), "what the other process wrote");
      const std::size_t skip = 4;
      const DeviceSpan<float> part = out.span().first(count - skip);
      require(kernels::device_reduce(std::array{values.subspan(skip)}, part, stream));
      const std::vector<float> got = out.values();
      check_same(std::span(got).first(count - skip), std::span(expected).subspan(skip), "from the middle of it");
      const ImportedMemory again = require(ImportedMemory::open(context.device, lender.handle()));
      check(again.span().size() == memory.span().size(), "opened twice");
    }
    require(ImportedMemory::open(context.device, lender.handle()));
    lender.close();
    check_refused(context, lender.handle(), "memory of a process that has ended");
  }
}

// What is open stays until it is closed: neither a kernel that is reading it nor one that comes later meets its end.
void memory_of_a_killed_process(const Context& context) {
  if (!is_shared(context)) return;
  constexpr std::size_t kCount = 1'000'003;
  Stream stream = make_stream(context.device);
  Lender lender(context.device, kCount);
  const std::vector<float> expected = lent_values(kCount);
  const OnDevice<float> during(context.device, kCount, stream), after(context.device, kCount, stream);
  {
    const ImportedMemory memory = require(ImportedMemory::open(context.device, lender.handle()));
    const DeviceSpan<const float> values(reinterpret_cast<const float*>(memory.span().data()), kCount);
    require(kernels::device_reduce(std::array{values}, during.span(), stream));
    lender.kill();
    require(stream.synchronize());
    require(kernels::device_reduce(std::array{values}, after.span(), stream));
    check_same(std::span<const float>(during.values()), std::span(expected), "read while its process was killed");
    check_same(std::span<const float>(after.values()), std::span(expected), "read after its process was killed");
  }
  check_refused(context, lender.handle(), "memory of a process that was killed");
}

// And the device works on: an error of the driver does not stay behind.
void wrong_handles(const Context& context) {
  if (!is_shared(context)) return;
  MemoryHandle garbage;
  check_refused(context, garbage, "zeros");
  Rng rng(5);
  for (std::byte& byte : garbage.bytes) byte = static_cast<std::byte>(rng.next());
  check_refused(context, garbage, "garbage");
  Stream stream = make_stream(context.device);
  const std::vector<float> values = lent_values(100);
  const OnDevice<float> there(context.device, std::span(values), stream), out(context.device, 100, stream);
  require(kernels::device_reduce(std::array{DeviceSpan<const float>(there.span())}, out.span(), stream));
  check_same(std::span<const float>(out.values()), std::span(values), "after handles that were refused");
}

// The emulator's own handles, field by field.
void forged_handles(const Context& context) {
  if (context.device.kind != kernels::DeviceKind::kEmulated) return;
  const auto forged = [&](const MemoryHandle& handle, const std::string& what, auto change) {
    auto parts = std::bit_cast<HandleParts>(handle);
    change(parts);
    check_refused(context, std::bit_cast<MemoryHandle>(parts), what);
  };
  std::optional<DeviceBuffer> buffer = require(DeviceBuffer::make(context.device, 40'000));
  const MemoryHandle handle = require(kernels::export_memory(*buffer));
  {
    const ImportedMemory own = require(ImportedMemory::open(context.device, handle));
    check(own.span().size() == 40'000, "its size");
  }
  std::array<int, 2> pipe{};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) std::abort();
  const int plain = ::open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  forged(handle, "another magic", [](HandleParts& parts) { ++parts.magic; });
  forged(handle, "another device", [](HandleParts& parts) { ++parts.device_index; });
  forged(handle, "no process", [](HandleParts& parts) { parts.process = -1; });
  forged(handle, "a pipe", [&](HandleParts& parts) { parts.descriptor = pipe[0]; });
  forged(handle, "a file that is no memory", [&](HandleParts& parts) { parts.descriptor = plain; });
  forged(handle, "a descriptor that is not there", [](HandleParts& parts) { parts.descriptor = 1 << 20; });
  forged(handle, "a longer file", [](HandleParts& parts) { parts.file_bytes *= 2; });
  forged(handle, "more than the file", [](HandleParts& parts) { parts.bytes = parts.file_bytes; });
  forged(handle, "beyond the file", [](HandleParts& parts) { parts.first_byte = parts.file_bytes + 16; });
  forged(handle, "a size that wraps", [](HandleParts& parts) { parts.bytes = ~std::uint64_t{0}; });
  forged(handle, "nothing", [](HandleParts& parts) { parts.bytes = 0; });
  ::close(pipe[0]);
  ::close(pipe[1]);
  ::close(plain);
  buffer.reset();
  check_refused(context, handle, "memory that was freed");
  const DeviceBuffer next = require(DeviceBuffer::make(context.device, 40'000));  // its descriptor has the same number
  check_refused(context, handle, "memory that was freed, its descriptor taken by another");
}

}  // namespace

void add_memory_tests(std::vector<Test>& tests) {
  tests.push_back({"the CPU shares no memory", the_cpu_shares_nothing});
  tests.push_back({"UUIDs", uuids});
  tests.push_back({"memory of another process", another_process_memory});
  tests.push_back({"memory of a killed process", memory_of_a_killed_process});
  tests.push_back({"wrong handles", wrong_handles});
  tests.push_back({"forged handles", forged_handles});
}

}  // namespace fluvial::gpu_test
