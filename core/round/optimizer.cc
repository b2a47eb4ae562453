#include "core/round/optimizer.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "core/base/format.h"
#include "core/base/glob.h"
#include "core/base/printable.h"
#include "core/round/plan_keys.h"

namespace fluvial::round {
namespace {

constexpr std::size_t kTextBytesMax = 512;
constexpr std::size_t kShownBytesMax = 200;  // of a text that is refused
constexpr std::uint64_t kWarmupRoundsMax = 1'000'000'000;
constexpr std::uint64_t kScaleToMax = std::uint64_t{1} << 53;
constexpr std::size_t kPatternsMax = 32;

// One number of an optimizer: its name in the text and where it may lie.
struct Option {
  std::string_view name;
  double ServerOptimizer::* number;
  double low, high;
  bool below_high = false;                           // high itself is too much
  std::uint64_t ServerOptimizer::* count = nullptr;  // in the number's place: a whole one
  double fallback = 0;                               // of an optimizer that has it

  Option operator()(double value) const { return {name, number, low, high, below_high, count, value}; }
  bool is_count() const { return count != nullptr; }
  double of(const ServerOptimizer& optimizer) const {
    return is_count() ? static_cast<double>(optimizer.*count) : optimizer.*number;
  }
  void set_fallback(ServerOptimizer& optimizer) const {
    if (is_count()) {
      optimizer.*count = static_cast<std::uint64_t>(fallback);
    } else {
      optimizer.*number = fallback;
    }
  }
};
constexpr Option kLr{"lr", &ServerOptimizer::lr, 1e-12, 1e6};
constexpr Option kMomentum{"momentum", &ServerOptimizer::momentum, 0, 1, true};
constexpr Option kBeta1{"beta1", &ServerOptimizer::beta1, 0, 1, true};
constexpr Option kBeta2{"beta2", &ServerOptimizer::beta2, 0, 1, true};
constexpr Option kTau{"tau", &ServerOptimizer::tau, 1e-12, 1e3};
constexpr Option kDecay{"weight_decay", &ServerOptimizer::weight_decay, 0, 1};
constexpr Option kTrust{"trust", &ServerOptimizer::trust, 1e-9, 1e6};
constexpr Option kEvery{"every", nullptr, 1, 1e6, false, &ServerOptimizer::every};
constexpr Option kC{"c", &ServerOptimizer::c, 0, 1};
constexpr Option kOptions[] = {kLr, kMomentum, kBeta1, kBeta2, kTau, kDecay, kTrust, kEvery, kC};

struct Entry {
  std::string_view name;
  std::string_view step;        // for the documentation
  std::vector<Option> options;  // in the order of the canonical text
};
template <typename... Options>
Entry row(std::string_view name, std::string_view step, const Options&... options) {
  return {name, step, {options...}};
}

// In the order of Optimizer.
const std::vector<Entry>& entries() {
  static const std::vector<Entry> list = {
      row("fedavg", "model - lr D", kLr(1)),
      row("fedavgm", "m = momentum m + D; model - lr m", kLr(1), kMomentum(0.9)),
      row("fedadagrad", "v = v + D²; m = beta1 m + (1 - beta1) D; model - lr m / (√v + tau)", kLr(0.01), kBeta1(0.9),
          kTau(1e-3)),
      row("fedadam", "the same with v = beta2 v + (1 - beta2) D²", kLr(0.01), kBeta1(0.9), kBeta2(0.99), kTau(1e-3)),
      row("fedyogi", "the same with v = v - (1 - beta2) D² sign(v - D²)", kLr(0.01), kBeta1(0.9), kBeta2(0.99),
          kTau(1e-3)),
      row("nesterov", "b = momentum b + D; model - lr (D + momentum b): DiLoCo's outer optimizer", kLr(0.7),
          kMomentum(0.9)),
      row("delayed_nesterov",
          "B = B + D; every N-th commit m = momentum m + B / N; model - lr (D / N + (1 - c N + c) momentum m); B = 0; "
          "the others model - lr (D / N + c momentum m). N is `every`",
          kLr(0.7), kMomentum(0.9), kEvery(4), kC(0)),
      row("lars", R"(each tensor at the rate lr trust \|w\| / (\|D\| + weight_decay \|w\|), with momentum)", kLr(1),
          kMomentum(0.9), kDecay(0), kTrust(1e-3)),
      row("lamb", R"(Adam with bias correction, each tensor at the rate lr trust \|w\| / \|step\|)", kLr(0.01),
          kBeta1(0.9), kBeta2(0.999), kTau(1e-6), kDecay(0), kTrust(1)),
      row("mean", "D itself is the next model: a mean over the sites of what their workers hand over as updates"),
      row("signsgd", "model - lr sign(D), sign(0) = 0; with `sign:mode=vote` the majority of the votes", kLr(0.01)),
      row("onebit_adam",
          "m = beta1 m + (1 - beta1) D; v = beta2 v + (1 - beta2) D²; model - lr m / (√v + tau). With codec "
          "`onebit_adam` "
          "alone, which says beta1, and after how many rounds v stays and m travels",
          kLr(0.01), kBeta2(0.999), kTau(1e-3)),
  };
  return list;
}

const Entry& entry_of(Optimizer kind) { return entries()[static_cast<std::size_t>(kind)]; }

std::string range_of(const Option& option) {
  return format_text(option.below_high ? "{} to below {}" : "{} to {}", option.low, option.high);
}

template <typename Number>
bool parse_number(std::string_view text, Number* value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value);
  return error == std::errc() && end == text.data() + text.size();
}

// "lr=NUMBER, every=COUNT, warmup=ROUNDS or scale_to=WEIGHT"
std::string choices_of(Optimizer kind) {
  if (kind == Optimizer::kMean) return "no options: the next model is the mean itself";
  std::string text;
  for (const Option& option : entry_of(kind).options) {
    text += format_text("{}={}, ", option.name, option.is_count() ? "COUNT" : "NUMBER");
  }
  return text + "warmup=ROUNDS or scale_to=WEIGHT";
}

Status set_option(std::string_view text, ServerOptimizer* optimizer) {
  const std::size_t equals = text.find('=');
  const std::string_view key = text.substr(0, equals);
  const std::string_view value = equals == std::string_view::npos ? std::string_view() : text.substr(equals + 1);
  const auto expected = [&](std::string_view what) {
    return Error{Code::kInvalidArgument,
                 format_text("option \"{}\": expected {}", printable(text, kShownBytesMax), what)};
  };
  const auto set_count = [&](std::uint64_t& count) -> Status {
    if (!parse_number(value, &count)) return expected(format_text("{} to be a whole number", key));
    return {};
  };
  if ((key == "warmup" || key == "scale_to") && optimizer->kind != Optimizer::kMean) {
    return set_count(key == "warmup" ? optimizer->warmup_rounds : optimizer->scale_to);
  }
  for (const Option& option : entry_of(optimizer->kind).options) {
    if (option.name != key || equals == std::string_view::npos) continue;
    if (option.is_count()) return set_count(optimizer->*option.count);
    if (!parse_number(value, &(optimizer->*option.number))) return expected(format_text("{} to be a number", key));
    return {};
  }
  return expected(choices_of(optimizer->kind));
}

bool has_statistics(const ServerOptimizer& optimizer) {
  return optimizer.kind != Optimizer::kMean && optimizer.kind != Optimizer::kOnebitAdam &&
         optimizer.averaged != kNoStatistics;
}

std::vector<std::string_view> patterns_of(std::string_view list) {
  std::vector<std::string_view> patterns;
  for (std::size_t from = 0; from <= list.size();) {
    const std::size_t comma = std::min(list.find(',', from), list.size());
    std::string_view pattern = list.substr(from, comma - from);
    pattern.remove_prefix(std::min(pattern.find_first_not_of(' '), pattern.size()));
    pattern.remove_suffix(pattern.size() - (pattern.find_last_not_of(' ') + 1));
    patterns.push_back(pattern);
    from = comma + 1;
  }
  return patterns;
}

// "!PATTERNS": every tensor but those that fit.
bool names_others(std::string_view averaged) { return averaged.starts_with('!'); }
std::string_view list_of(std::string_view averaged) { return averaged.substr(names_others(averaged) ? 1 : 0); }

Status check_averaged(const ServerOptimizer& optimizer) {
  const auto expected = [&](std::string_view what) {
    return Error{Code::kInvalidArgument, format_text("optimizer.averaged = '{}': expected {}",
                                                     printable(optimizer.averaged, kShownBytesMax), what)};
  };
  const std::vector<std::string_view> patterns = patterns_of(list_of(optimizer.averaged));
  const bool is_empty = std::ranges::find(patterns, std::string_view()) != patterns.end();
  if (is_empty || optimizer.averaged.size() > kTextBytesMax || patterns.size() > kPatternsMax ||
      printable(optimizer.averaged, kTextBytesMax) != optimizer.averaged) {
    return expected(
        format_text("1 to {} patterns of tensors' names, separated by commas, in at most {} characters, behind a '!' "
                    "for every other tensor; or none",
                    kPatternsMax, kTextBytesMax));
  }
  const bool is_usual = optimizer.averaged == kStatistics || optimizer.averaged == kNoStatistics;
  if (is_usual || has_statistics(optimizer)) return {};
  return expected(
      format_text("no patterns with optimizer {}, which {}", optimizer_name(optimizer.kind),
                  optimizer.kind == Optimizer::kMean ? "averages every tensor" : "steps every tensor at the sites"));
}

}  // namespace

std::string_view optimizer_name(Optimizer optimizer) { return entry_of(optimizer).name; }

ServerOptimizer ServerOptimizer::of(Optimizer kind) {
  ServerOptimizer optimizer{.kind = kind};
  for (const Option& option : entry_of(kind).options) option.set_fallback(optimizer);
  return optimizer;
}

double learning_rate(const ServerOptimizer& optimizer, std::uint64_t round, std::uint64_t total_weight) {
  double rate = optimizer.lr;
  if (optimizer.scale_to != 0) rate *= static_cast<double>(total_weight) / static_cast<double>(optimizer.scale_to);
  if (round < optimizer.warmup_rounds) {
    rate *= static_cast<double>(round) / static_cast<double>(optimizer.warmup_rounds);
  }
  return rate;
}

bool is_statistic(const ServerOptimizer& optimizer, std::string_view tensor) {
  if (!has_statistics(optimizer)) return false;
  const bool fits = std::ranges::any_of(patterns_of(list_of(optimizer.averaged)),
                                        [&](std::string_view pattern) { return fits_glob(pattern, tensor); });
  return fits != names_others(optimizer.averaged);
}

Result<ServerOptimizer> parse_server_optimizer(std::string_view text) {
  const std::size_t colon = text.find(':');
  const auto entry = std::ranges::find(entries(), text.substr(0, colon), &Entry::name);
  const auto expected = [&](std::string_view what) {
    return Error{Code::kInvalidArgument,
                 format_text("server optimizer \"{}\": {}", printable(text, kShownBytesMax), what)};
  };
  if (text.size() > kTextBytesMax) return expected(format_text("expected at most {} characters", kTextBytesMax));
  if (entry == entries().end()) {
    std::string names;
    for (const Entry& each : entries()) names += format_text("{}{}", names.empty() ? "" : ", ", each.name);
    return expected("expected one of " + names + ", and its options as in fedavgm:lr=1,momentum=0.9");
  }
  auto optimizer = ServerOptimizer::of(static_cast<Optimizer>(entry - entries().begin()));
  for (std::size_t at = colon; at != std::string_view::npos;) {
    const std::size_t comma = text.find(',', at + 1);
    const std::size_t end = comma == std::string_view::npos ? text.size() : comma;
    const Status set = set_option(text.substr(at + 1, end - at - 1), &optimizer);
    if (!set.ok()) return expected(set.error().message);
    at = comma;
  }
  const Status checked = check_server_optimizer(optimizer);
  if (!checked.ok()) return expected(checked.error().message);
  return optimizer;
}

std::string to_string(const ServerOptimizer& optimizer) {
  const Entry& entry = entry_of(optimizer.kind);
  std::string text(entry.name);
  char separator = ':';
  for (const Option& option : entry.options) {
    text += format_text("{}{}=", separator, option.name);
    text +=
        option.is_count() ? format_text("{}", optimizer.*option.count) : format_text("{}", optimizer.*option.number);
    separator = ',';
  }
  if (optimizer.warmup_rounds != 0) text += format_text(",warmup={}", optimizer.warmup_rounds);
  if (optimizer.scale_to != 0) text += format_text(",scale_to={}", optimizer.scale_to);
  return text;
}

Status check_server_optimizer(const ServerOptimizer& optimizer) {
  for (const Option& option : kOptions) {
    const double value = option.of(optimizer);
    if (value >= option.low && (option.below_high ? value < option.high : value <= option.high)) continue;  // not NaN
    const std::string_view key = option.name == "lr" ? "learning_rate" : option.name;
    return Error{Code::kInvalidArgument, format_text("optimizer.{} = {}: expected {}", key, value, range_of(option))};
  }
  if (const double most = 1 / static_cast<double>(optimizer.every); optimizer.c > most) {
    return Error{Code::kInvalidArgument,
                 format_text("optimizer.c = {}: expected at most {}, which is 1 / every", optimizer.c, most)};
  }
  const bool rated = optimizer.lr != 1 || optimizer.warmup_rounds != 0 || optimizer.scale_to != 0;
  if (optimizer.kind == Optimizer::kMean && rated) {
    return Error{Code::kInvalidArgument,
                 format_text("optimizer.learning_rate = {}: expected none with optimizer mean, whose next model is the "
                             "mean itself",
                             optimizer.lr)};
  }
  if (optimizer.warmup_rounds > kWarmupRoundsMax || optimizer.scale_to > kScaleToMax) {
    return Error{
        Code::kInvalidArgument,
        format_text("optimizer.name = warmup {} and scale_to {}: expected at most {} rounds and a weight of {}",
                    optimizer.warmup_rounds, optimizer.scale_to, kWarmupRoundsMax, kScaleToMax)};
  }
  return check_averaged(optimizer);
}

bool has_momentum(Optimizer kind) {
  return std::ranges::find(entry_of(kind).options, kMomentum.name, &Option::name) != entry_of(kind).options.end();
}

std::string optimizers_markdown() {
  std::string text = "| name | step | options and their defaults |\n|---|---|---|\n";
  for (const Entry& entry : entries()) {
    std::string options;
    for (const Option& option : entry.options) {
      options += format_text("{}{} {}", options.empty() ? "" : ", ", option.name, option.fallback);
    }
    text += format_text("| `{}` | {} | {} |\n", entry.name, entry.step, options.empty() ? "none" : options);
  }
  text += "\n| option | where it may lie |\n|---|---|\n";
  for (const Option& option : kOptions) text += format_text("| `{}` | {} |\n", option.name, range_of(option));
  return text;
}

}  // namespace fluvial::round
