// device_group.h: over a library that stands in for NCCL, over peer copies, and what is said when NCCL does not work.
#include <dlfcn.h>

#include <cmath>
#include <cstdlib>
#include <optional>

#include "kernels/device_group.h"
#include "kernels/device_memory.h"
#include "kernels/nccl.h"
#include "kernels/reduce.h"
#include "kernels/test_values.h"
#include "tests/gpu/check.h"

namespace fluvial::gpu_test {
namespace {

using kernels::DeviceGroup;
using kernels::DeviceKind;

constexpr const char* kMissingLibrary = "libfluvial_no_such_library.so";

// The device of the test and those after it, as far as the machine has them.
std::vector<Device> devices_of(const Context& context, int count) {
  std::vector<Device> devices;
  for (int i = 0; i < count; ++i) {
    Device device = context.device;
    device.index += i;
    if (device.kind == DeviceKind::kEmulated) device.index %= 4;
    if (!check_device(device).ok()) return {};
    devices.push_back(device);
  }
  return devices;
}

bool is_emulated(const Context& context) { return context.device.kind == DeviceKind::kEmulated; }

// A group, and a stream and a vector on each of its devices.
class Members {
 public:
  Members(std::vector<Device> devices, const std::string& library, std::size_t size)
      : group(require(DeviceGroup::make(devices, library))) {
    streams.reserve(devices.size());
    for (std::size_t i = 0; i < devices.size(); ++i) {
      streams.push_back(require(Stream::make(devices[i])));
      values.push_back(kernels::test_values::normals(size, 10 * size + i));
      vectors.emplace_back(devices[i], std::span<const float>(values.back()), streams.back());
      from.push_back(vectors.back().span());
    }
  }
  std::vector<float> sum() const {
    std::vector<float> sum(values[0].size());
    const std::vector<std::span<const float>> inputs(values.begin(), values.end());
    require(kernels::reduce_sum(inputs, kernels::SumIn::kFp32, sum));
    return sum;
  }
  // NCCL itself may add in another order.
  void check_sum(const OnDevice<float>& out, const std::string& what,
                 const std::source_location& where = std::source_location::current()) const {
    const std::vector<float> got = out.values(), expected = sum();
    const bool any_order = group.devices()[0].kind == DeviceKind::kCuda && group.transport().starts_with("nccl");
    if (!any_order) {
      check_same(std::span(got), std::span(expected), what + " over " + group.transport(), where);
      return;
    }
    for (std::size_t i = 0; i < got.size(); ++i) {
      const float room = 1e-5F * (1 + std::fabs(expected[i]));
      if (!check(std::fabs(got[i] - expected[i]) <= room, what + ": another sum", where)) return;
    }
  }

  DeviceGroup group;
  std::vector<Stream> streams;
  std::vector<std::vector<float>> values;
  std::vector<OnDevice<float>> vectors;
  std::vector<DeviceSpan<const float>> from;
};

void one_device_loads_nothing(const Context& context) {
  Members one(devices_of(context, 1), FLUVIAL_FAKE_NCCL_PATH, 1'003);
  check(one.group.transport() == "one device", one.group.transport());
  check(::dlopen(FLUVIAL_FAKE_NCCL_PATH, RTLD_NOW | RTLD_NOLOAD) == nullptr, "a library was loaded for one device");
  const OnDevice<float> out(context.device, 1'003, one.streams[0]);
  require(one.group.reduce(one.from, out.span(), one.streams));
  one.check_sum(out, "one device");
  require(one.group.reduce(one.from, one.vectors[0].span(), one.streams));
  one.check_sum(one.vectors[0], "one device, in place");
}

void sums_over(const Context& context, const std::string& library) {
  for (const int count : {2, 3, 4}) {
    for (const std::size_t size : {1U, 5U, 10'007U, 2'500'003U}) {
      const std::vector<Device> devices = devices_of(context, count);
      if (devices.empty()) return;
      Members members(devices, library, size);
      const OnDevice<float> out(devices[0], size, members.streams[0]);
      require(members.group.reduce(members.from, out.span(), members.streams));
      members.check_sum(out, "a sum");
      require(members.group.reduce(members.from, members.vectors[0].span(), members.streams));
      members.check_sum(members.vectors[0], "a sum in place");
    }
  }
}

// A second sum is put behind the first before that is done, from vectors that change in between.
void sums_follow_each_other(const Context& context, const std::string& library) {
  constexpr std::size_t kSize = 1'500'000;
  const std::vector<Device> devices = devices_of(context, 3);
  if (devices.empty()) return;
  Members members(devices, library, kSize);
  const OnDevice<float> first(devices[0], kSize, members.streams[0]), second(devices[0], kSize, members.streams[0]);
  const PinnedBuffer pinned = require(PinnedBuffer::make(devices[0], kSize * sizeof(float)));
  const auto next = pinned.as<float>();
  for (std::size_t i = 0; i < kSize; ++i) next[i] = static_cast<float>(i);
  require(members.group.reduce(members.from, first.span(), members.streams));
  for (std::size_t i = 0; i < devices.size(); ++i) {
    const std::span<const float> values = next;
    require(kernels::copy_to_device(values, members.vectors[i].span(), members.streams[i]));
  }
  require(members.group.reduce(members.from, second.span(), members.streams));
  members.check_sum(first, "the first sum");
  for (auto& values : members.values) values.assign(next.begin(), next.end());
  members.check_sum(second, "the second sum");
}

void sums(const Context& context) {
  for (const std::string library : {kernels::kNcclLibrary, FLUVIAL_FAKE_NCCL_PATH, kMissingLibrary}) {
    if (library == FLUVIAL_FAKE_NCCL_PATH && !is_emulated(context)) continue;
    sums_over(context, library);
    sums_follow_each_other(context, library);
  }
}

void transports(const Context& context) {
  const std::vector<Device> two = devices_of(context, 2);
  if (two.empty()) return;
  const auto transport = [&](const std::string& library) {
    return require(DeviceGroup::make(two, library)).transport();
  };
  const std::string missing = std::string("peer copies (") + kMissingLibrary;
  check(transport(kMissingLibrary).starts_with(missing), transport(kMissingLibrary));
  check(transport("libm.so.6") == "peer copies (libm.so.6: it has no ncclGetVersion)", transport("libm.so.6"));
  if (!is_emulated(context)) return;
  check(transport(FLUVIAL_FAKE_NCCL_PATH) == "nccl 2.28.9", transport(FLUVIAL_FAKE_NCCL_PATH));
  check(transport(kernels::kNcclLibrary) == "peer copies (libnccl.so.2: not for these devices)",
        transport(kernels::kNcclLibrary));
}

// Makes a function of the library fail while it lives.
class Failing {
 public:
  explicit Failing(const char* function) { ::setenv("FLUVIAL_FAKE_NCCL", function, 1); }
  Failing(const Failing&) = delete;
  ~Failing() { ::unsetenv("FLUVIAL_FAKE_NCCL"); }
};

int ask_library(const char* name) {
  void* const library = ::dlopen(FLUVIAL_FAKE_NCCL_PATH, RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<int (*)()>(::dlsym(library, name))();
}

void failures_of_the_library(const Context& context) {
  if (!is_emulated(context)) return;
  const std::vector<Device> devices = devices_of(context, 3);
  constexpr std::size_t kSize = 1'000;
  for (const char* const function : {"ncclGetVersion", "ncclCommInitAll", "asynchronous", "ncclCommGetAsyncError",
                                     "ncclGroupStart", "ncclReduce", "ncclGroupEnd", "a sum"}) {
    const Failing failing(function);
    Members members(devices, FLUVIAL_FAKE_NCCL_PATH, kSize);
    check(members.group.transport().starts_with("peer copies (/"), members.group.transport());
    const OnDevice<float> out(devices[0], kSize, members.streams[0]);
    require(members.group.reduce(members.from, out.span(), members.streams));
    members.check_sum(out, function);
  }
  for (const std::string function :
       {"asynchronous", "ncclCommGetAsyncError", "ncclGroupStart", "ncclReduce", "ncclGroupEnd"}) {
    Members members(devices, FLUVIAL_FAKE_NCCL_PATH, kSize);
    const OnDevice<float> out(devices[0], kSize, members.streams[0]);
    std::optional<Failing> failing(function.c_str());
    const Status status = members.group.reduce(members.from, out.span(), members.streams);
    failing.reset();
    if (!check(!status.ok(), function + " failed unseen")) continue;
    check(status.error().code == Code::kInternal, status.error().to_string());
    const std::string named = function == "asynchronous" ? "earlier call" : function;
    check(status.error().message.find(named) != std::string::npos, status.error().message);
    const Status again = members.group.reduce(members.from, out.span(), members.streams);
    check(!again.ok() && again.error() == status.error(), "what failed stays so");
    check(ask_library("fake_nccl_depth") == 0, function + ": a group was left open");
    check(ask_library("fake_nccl_live") == 0, function + ": a device may wait for another for ever");
  }
  check(ask_library("fake_nccl_live") == 0, "communicators were left behind");
}

void wrong_groups(const Context& context) {
  const auto refused = [](std::vector<Device> devices) {
    const Result<DeviceGroup> group = DeviceGroup::make(std::move(devices));
    check(!group.ok() && group.error().code == Code::kInvalidArgument, "a group that is none was made");
  };
  refused({});
  refused({context.device, context.device});
  if (context.device.kind != DeviceKind::kCpu) refused({context.device, Device::cpu()});
}

// What is called is there, in the library that is installed on this machine, if one is.
void the_installed_library(const Context& context) {
  if (context.device.kind == DeviceKind::kCpu) return;
  if (::dlopen(kernels::kNcclLibrary, RTLD_NOW | RTLD_LOCAL) == nullptr) return;
  const kernels::NcclFunctions nccl = require(kernels::load_nccl(kernels::kNcclLibrary));
  int version = 0;
  check(nccl.get_version(&version) == kernels::NcclFunctions::kSuccess && version >= 20'000, "its version");
  if (context.device.kind != DeviceKind::kCuda) return;
  // Alone in a group, which DeviceGroup would not ask it for: so it is tried on a machine with one GPU, too.
  const auto alone = require(kernels::make_nccl(kernels::kNcclLibrary, {&context.device, 1}));
  Members one({context.device}, kernels::kNcclLibrary, 10'007);
  const OnDevice<float> out(context.device, 10'007, one.streams[0]);
  require(alone->reduce(one.from, out.span(), one.streams));
  one.check_sum(out, alone->name());
}

}  // namespace

void add_group_tests(std::vector<Test>& tests) {
  tests.push_back({"a group of one device", one_device_loads_nothing});
  tests.push_back({"sums of a group", sums});
  tests.push_back({"transports of a group", transports});
  tests.push_back({"NCCL that fails", failures_of_the_library});
  tests.push_back({"groups that are none", wrong_groups});
  tests.push_back({"NCCL as it is installed", the_installed_library});
}

}  // namespace fluvial::gpu_test
