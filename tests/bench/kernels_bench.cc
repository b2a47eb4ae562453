// The kernels against memcpy: kernels_bench --help says what it measures, docs/benchmarks.md how to read it.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <fstream>

#include "tests/bench/kernels_case.h"
#include "tests/bench/kernels_options.h"
#include "tests/bench/kernels_report.h"

namespace fluvial::bench {
namespace {

constexpr std::size_t kRepeatsMin = 5;
constexpr std::size_t kRepeatsMax = 101;

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

// Copy, kernel, copy, kernel, ..., copy: each run of the kernel is compared with the mean of the copies around it,
// because the machine's speed drifts.
Figures measure(const Timed& timed, const Options& options, std::size_t values) {
  const auto start = std::chrono::steady_clock::now();
  timed.copy_s();
  timed.kernel_s();  // brings memory and caches to where they stay
  std::vector<double> seconds, ratios;
  double before_s = timed.copy_s();
  const auto more = [&] {
    const std::size_t done = seconds.size();
    if (options.repeats != 0) return done < options.repeats;
    const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
    return done < kRepeatsMin || (done < kRepeatsMax && spent.count() < options.seconds);
  };
  while (more()) {
    seconds.push_back(timed.kernel_s());
    const double after_s = timed.copy_s();
    ratios.push_back((before_s + after_s) / 2 / seconds.back());
    before_s = after_s;
  }
  const double seconds_median = median(seconds);
  return {.seconds_median = seconds_median,
          .values_per_s = static_cast<double>(values) / seconds_median,
          .gb_per_s = timed.bytes_moved / seconds_median / 1e9,
          .ratio_to_copy = median(ratios)};
}

void list_cases(const std::vector<Case>& cases) {
  for (const Case& one : cases) {
    std::printf("%-24s %-18s %-10s %-4s%s\n", one.kernel.c_str(), one.codec.c_str(), one.rounding.c_str(),
                one.backend.c_str(), one.in_default_run ? "" : "  (with --all or --codec)");
  }
}

std::vector<Figures> measure_all(const std::vector<Case>& cases, const Options& options, std::FILE* out) {
  Memory memory;
  std::vector<Figures> rows;
  std::fputs(text_header().c_str(), out);
  for (const Combination& combination : combinations(options)) {
    Crew crew(combination.threads);
    std::fprintf(stderr, "-- %zu values, %s, %zu thread%s\n", combination.values,
                 std::string(kernels::cpu::target_name(combination.target)).c_str(), combination.threads,
                 combination.threads == 1 ? "" : "s");
    for (const Case& one : cases) {
      if (!one.device_target.empty() &&
          (combination.threads != 1 || combination.target != kernels::cpu::best_target())) {
        continue;
      }
      const auto timed = one.make({.values = combination.values,
                                   .target = combination.target,
                                   .threads = combination.threads,
                                   .memory = memory,
                                   .crew = crew});
      if (!timed.ok()) {
        std::fprintf(stderr, "-- %s %s: %s\n", one.kernel.c_str(), one.codec.c_str(), timed.error().message.c_str());
        continue;
      }
      Figures row = measure(*timed, options, combination.values);
      row.kernel = one.kernel, row.codec = one.codec, row.backend = one.backend, row.rounding = one.rounding;
      row.target = one.device_target.empty() ? kernels::cpu::target_name(combination.target) : one.device_target;
      row.threads = combination.threads, row.values = combination.values;
      std::fputs(text_row(row, needed(row, rows)).c_str(), out);
      std::fflush(out);
      rows.push_back(std::move(row));
    }
  }
  return rows;
}

int run(int argc, char** argv) {
  const Result<Options> options = parse_options(argc, argv);
  if (!options.ok()) {
    std::fprintf(stderr, "kernels_bench: %s\n", options.error().message.c_str());
    return 2;
  }
  if (options->help) return std::fputs(usage(), stdout), 0;
  std::vector<Case> cases = vector_cases();
  for (Case& one : codec_cases()) cases.push_back(std::move(one));
  std::erase_if(cases, [&](const Case& one) { return !selected(*options, one); });
  if (cases.empty()) {
    std::fprintf(stderr, "kernels_bench: no such row; --list names them\n");
    return 2;
  }
  if (options->list) return list_cases(cases), 0;
  const std::vector<Figures> rows = measure_all(cases, *options, options->markdown ? stderr : stdout);
  if (options->markdown) std::fputs(markdown_of(rows).c_str(), stdout);
  if (!options->json.empty()) {
    std::ofstream file(options->json);
    if (!(file << json_of(rows)).flush()) {
      std::fprintf(stderr, "kernels_bench: cannot write %s\n", options->json.c_str());
      return 1;
    }
  }
  return 0;
}

}  // namespace
}  // namespace fluvial::bench

int main(int argc, char** argv) { return fluvial::bench::run(argc, argv); }
