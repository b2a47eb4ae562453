// gpu_test --device cpu|emulated|cuda[:N] [--sizes small] [--order descending] [--work late] [--part 1/8]
// [--only TEXT]: what a device computes is what the CPU computes. Exit status: 0 right, 1 wrong, 77 when there is no
// such device here.
#include <charconv>
#include <chrono>
#include <cstdio>
#include <map>
#include <optional>

#include "kernels/cuda/emulated/device.h"
#include "tests/gpu/check.h"
#include "tests/gpu/lender.h"

namespace fluvial::gpu_test {
namespace {

constexpr int kSkipped = 77;
constexpr int kEmulatedDevices = 4;
using kernels::EmulatedWork;
const std::map<std::string_view, EmulatedWork> kWork = {
    {"at-once", EmulatedWork::kAtOnce}, {"late", EmulatedWork::kLate}, {"mixed", EmulatedWork::kMixed}};
constexpr int kMessagesMax = 40;
int failure_count = 0;

// Each `of`-th test, from the `number`-th on: most of a test's time is the CPU's, and several processes share one GPU.
struct Part {
  std::size_t number = 1;
  std::size_t of = 1;
};

std::optional<Part> parse_part(std::string_view text) {
  Part part;
  const char* const end = text.data() + text.size();
  const auto number = std::from_chars(text.data(), end, part.number);
  if (number.ec != std::errc() || number.ptr == end || *number.ptr != '/') return std::nullopt;
  const auto of = std::from_chars(number.ptr + 1, end, part.of);
  if (of.ec != std::errc() || of.ptr != end || part.number < 1 || part.number > part.of) return std::nullopt;
  return part;
}

// `only`: tests whose name has that text.
int run(const Context& context, const Part& part, std::string_view only) {
  std::vector<Test> tests;
  add_vector_tests(tests);
  add_codec_tests(tests);
  add_state_tests(tests);
  add_powersgd_tests(tests);
  add_robust_tests(tests);
  add_pipeline_tests(tests);
  add_memory_tests(tests);
  add_group_tests(tests);
  add_site_tests(tests);
  add_hostile_tests(tests);  // last: below a tool that looks at each access they take the longest
  std::erase_if(tests, [&](const Test& test) { return test.name.find(only) == std::string::npos; });
  if (tests.empty()) {
    std::cerr << "no test has a name with \"" << only << "\" in it\n";
    return 2;
  }
  std::size_t run_count = 0;
  for (std::size_t i = part.number - 1; i < tests.size(); i += part.of) {
    const Test& test = tests[i];
    ++run_count;
    const int before = failures();
    const auto begin = std::chrono::steady_clock::now();
    test.run(context);
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
    std::printf("%s %6.2f s  %s\n", failures() == before ? "ok    " : "FAILED", took.count(), test.name.c_str());
    std::fflush(stdout);
  }
  std::cout << to_string(context.device) << ": " << run_count << " tests, " << failures() << " failures\n";
  return failures() == 0 ? 0 : 1;
}

int usage() {
  std::cerr << "usage: gpu_test [--device cpu|emulated[:N]|cuda[:N]] [--sizes small|large] "
               "[--order ascending|descending] [--work at-once|late|mixed] [--part NUMBER/OF] [--only TEXT]\n";
  return 2;
}

}  // namespace

void fail(const std::string& what, const std::source_location& where) {
  if (++failure_count <= kMessagesMax) {
    std::cout << where.file_name() << ":" << where.line() << ": " << what << "\n";
  }
}

int failures() { return failure_count; }

int main(std::span<char* const> arguments) {
  Device device = Device::cuda();
  std::string_view sizes;  // small but on a GPU; small there too under a tool that slows it down
  std::size_t lent_values = 0;
  Part part;
  std::string_view only;
  for (std::size_t i = 0; i + 1 < arguments.size(); i += 2) {
    const std::string_view key = arguments[i];
    const std::string_view value = arguments[i + 1];
    if (key == "--device") {
      const Result<Device> parsed = kernels::parse_device(value);
      if (!parsed.ok()) return usage();
      device = *parsed;
    } else if (key == "--sizes" && (value == "small" || value == "large")) {
      sizes = value;
    } else if (key == "--order" && (value == "ascending" || value == "descending")) {
      kernels::emulate_in_descending_order(value == "descending");
    } else if (key == "--work" && kWork.contains(value)) {
      kernels::emulate_work(kWork.find(value)->second);
    } else if (const auto some = parse_part(value); key == "--part" && some) {
      part = *some;
    } else if (key == "--only") {
      only = value;
    } else if (key == "--lend") {
      lent_values = std::stoul(std::string(value));
    } else {
      return usage();
    }
  }
  if (arguments.size() % 2 != 0) return usage();
  if (device.kind == kernels::DeviceKind::kEmulated && !kernels::use_emulated_device(kEmulatedDevices)) {
    std::cout << "skipped: the emulator's fibers do not go with this sanitizer\n";
    return kSkipped;
  }
  if (const Status there = kernels::check_device(device); !there.ok()) {
    std::cout << "skipped: " << there.error().message << "\n";
    return kSkipped;
  }
  if (lent_values != 0) return lend(device, lent_values);
  const bool is_gpu = device.kind == kernels::DeviceKind::kCuda;
  return run({.device = device, .is_small = sizes.empty() ? !is_gpu : sizes == "small"}, part, only);
}

}  // namespace fluvial::gpu_test

int main(int argc, char** argv) {
  return fluvial::gpu_test::main(std::span<char* const>(argv + 1, static_cast<std::size_t>(argc - 1)));
}
