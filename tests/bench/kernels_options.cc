#include "tests/bench/kernels_options.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "core/base/format.h"

namespace fluvial::bench {
namespace {

constexpr std::size_t kUsualValues = 25'000'000;

std::vector<std::string> split(std::string_view text) {
  std::vector<std::string> parts;
  while (true) {
    const std::size_t comma = text.find(',');
    parts.emplace_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

template <typename Number>
Result<Number> number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value > 0) return value;
  return Error{Code::kInvalidArgument, format_text("\"{}\": expected a number above 0", text)};
}

// "25M", "64k" or a number.
Result<std::size_t> count(std::string_view text) {
  std::size_t unit = 1;
  if (text.ends_with('M')) unit = 1'000'000;
  if (text.ends_with('k')) unit = 1'000;
  if (unit != 1) text.remove_suffix(1);
  FLUVIAL_ASSIGN(const std::size_t value, number<std::size_t>(text));
  if (value > 1'000'000'000 / unit) return Error{Code::kInvalidArgument, "expected at most 1000M values"};
  return value * unit;
}

Result<std::vector<std::size_t>> counts(std::string_view text) {
  std::vector<std::size_t> list;
  for (const std::string& part : split(text)) {
    FLUVIAL_ASSIGN(const std::size_t value, count(part));
    list.push_back(value);
  }
  return list;
}

Result<std::vector<Target>> targets(std::string_view text) {
  const std::vector<Target> here = kernels::cpu::supported_targets();
  if (text == "all") return std::vector<Target>(here.rbegin(), here.rend());
  std::vector<Target> list;
  for (const std::string& part : split(text)) {
    const auto found = std::ranges::find(here, part, kernels::cpu::target_name);
    if (found == here.end()) {
      return Error{Code::kInvalidArgument,
                   format_text("target \"{}\": expected all or one that this machine runs, such as {}", part,
                               kernels::cpu::target_name(here.back()))};
    }
    list.push_back(*found);
  }
  return list;
}

// A flag without a value; false when `name` is none.
bool set_switch(std::string_view name, Options* options) {
  if (name == "--all") return options->all = true;
  if (name == "--list") return options->list = options->all = true;
  if (name == "--markdown") return options->markdown = true;
  if (name == "--help" || name == "-h") return options->help = true;
  return false;
}

Status set_value(std::string_view name, std::string_view value, Options* options) {
  const auto take = [](auto result, auto* out) -> Status {
    if (!result.ok()) return result.error();
    *out = std::move(result).value();
    return {};
  };
  if (name == "--values") return take(counts(value), &options->values);
  if (name == "--threads") return take(counts(value), &options->threads);
  if (name == "--target") return take(targets(value), &options->targets);
  if (name == "--repeats") return take(count(value), &options->repeats);
  if (name == "--seconds") return take(number<double>(value), &options->seconds);
  if (name == "--kernel") return options->kernels = split(value), Status();
  if (name == "--codec") return options->codecs = split(value), Status();
  if (name == "--backend") return options->backends = split(value), Status();
  if (name == "--json") return options->json = value, Status();
  return Error{Code::kInvalidArgument, format_text("unknown argument {}; --help lists them", name)};
}

bool one_of(const std::vector<std::string>& list, std::string_view text) {
  return std::ranges::find(list, text) != list.end();
}

}  // namespace

const char* usage() {
  return R"(usage: kernels_bench [arguments]        (./dev bench kernels [arguments] builds it first)

Times each kernel, alternating with a memcpy of as many fp32 values by one thread. ratio_to_copy is the kernel's values
per second over that memcpy's: the median over the repetitions. The column "needs" is what docs/benchmarks.md asks for.

Without arguments: every row at 1M, 25M and 100M values with the widest target on one thread, and at 25M values with
AVX2 and on two threads. With --kernel or --codec: those rows, at 25M values, widest target, one thread. Lists are
separated by commas.

  --kernel LIST    reduce, screen, encode, encode_residual, decode, accumulate, decode_accumulate, optimize
  --codec LIST     int8, topk, ...; powersgd:rank=4 names that row alone
  --values LIST    1M, 25M, 4096, 64k, ...
  --target LIST    avx512, avx2, baseline, or all
  --threads LIST   1, 2
  --backend LIST   cpu, cuda
  --repeats N      exactly N repetitions; otherwise 5 to 101, as many as --seconds allows
  --seconds S      time for one row (0.6)
  --all            also rows that the default run leaves out: screening of encoded chunks, residuals in place
  --json FILE      the rows as a JSON list
  --markdown       at the end, the table for docs/benchmarks.md on stdout (everything else goes to stderr)
  --list           names the rows and ends

One codec in seconds:  ./dev build --preset release kernels_bench
                       build/release/bench/kernels_bench --codec int8 --kernel encode,encode_residual --target all
Others may be compiling on the machine: repeat, and compare ratios, never seconds.
)";
}

Result<Options> parse_options(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string_view argument = argv[i];
    if (set_switch(argument, &options)) continue;
    const std::size_t equals = argument.find('=');
    if (equals != std::string_view::npos) {
      FLUVIAL_TRY(set_value(argument.substr(0, equals), argument.substr(equals + 1), &options));
    } else {
      const std::string_view value = i + 1 < argc ? argv[i + 1] : "";
      FLUVIAL_TRY(set_value(argument, value, &options));
      if (value.empty()) return Error{Code::kInvalidArgument, format_text("{} needs a value", argument)};
      ++i;
    }
  }
  return options;
}

std::vector<Combination> combinations(const Options& options) {
  const Target best = kernels::cpu::best_target();
  std::vector<Combination> all;
  const auto add = [&all](const Combination& one) {
    if (std::ranges::find(all, one) == all.end()) all.push_back(one);
  };
  const bool chosen = !options.kernels.empty() || !options.codecs.empty() || !options.values.empty() ||
                      !options.targets.empty() || !options.threads.empty();
  if (!chosen) {
    for (const std::size_t values : {std::size_t{1'000'000}, kUsualValues, std::size_t{100'000'000}}) {
      add({.values = values, .target = best, .threads = 1});
    }
    if (best != Target::kBaseline) add({.values = kUsualValues, .target = Target::kAvx2, .threads = 1});
    add({.values = kUsualValues, .target = best, .threads = 2});
    return all;
  }
  const auto or_usual = [](const auto& list, const auto& usual) {
    return list.empty() ? std::remove_cvref_t<decltype(list)>{usual} : list;
  };
  for (const std::size_t values : or_usual(options.values, kUsualValues)) {
    for (const Target target : or_usual(options.targets, best)) {
      for (const std::size_t threads : or_usual(options.threads, std::size_t{1})) {
        add({.values = values, .target = target, .threads = threads});
      }
    }
  }
  return all;
}

bool selected(const Options& options, const Case& one) {
  if (!options.kernels.empty() && !one_of(options.kernels, one.kernel)) return false;
  if (!options.backends.empty() && !one_of(options.backends, one.backend)) return false;
  const std::string name = one.codec.substr(0, one.codec.find(':'));
  if (!options.codecs.empty() && !one_of(options.codecs, one.codec) && !one_of(options.codecs, name)) return false;
  return one.in_default_run || options.all || !options.codecs.empty();
}

}  // namespace fluvial::bench
