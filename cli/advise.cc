#include "cli/advise.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <memory>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "cli/format.h"
#include "cli/json.h"
#include "cli/local_run.h"
#include "cli/table.h"
#include "core/aggregate/down.h"
#include "core/aggregate/plan_codec.h"
#include "core/aggregate/plan_forms.h"
#include "core/aggregate/server_optimizer.h"
#include "core/aggregate/shapes.h"
#include "core/config/plan_file.h"
#include "core/config/settings.h"
#include "core/store/model_source.h"
#include "kernels/codec.h"

namespace fluvial::cli {
namespace {

// What `fluvial simulate --calibrate` found (docs/benchmarks.md), on one core.
constexpr double kSiteSecondsAValue = 10.5e-9;  // make, encode, write
constexpr double kRootSecondsAByte = 1.1e-9;    // of what arrives
constexpr double kRootSecondsAValue = 1.3e-9;   // the round's end
// What the model in another form adds, by `fluvial bench bound --down delta:int8 --json` on one core: at the root its
// encoding (1.4 ns) and the digest of what it decodes to (4 bytes at 2.1 GB/s), at a site its decoding.
constexpr double kRootFormSecondsAValue = 3.3e-9;
constexpr double kSiteFormSecondsAValue = 0.6e-9;
constexpr double kRoundTrips = 3;      // open, upload, commit
constexpr double kPassRoundTrips = 2;  // upload, mean
constexpr double kEnough = 0.8;        // of a round spent training: more steps gain little speed
constexpr double kNear = 0.9;          // of the greatest share

// From the mildest on; the first three cost no accuracy in docs/operations/codecs.md.
constexpr std::array kCandidates = {"fp32", "bf16", "int8", "int4", "topk:ratio=0.05", "topk:ratio=0.01"};
constexpr std::size_t kMild = 3;
constexpr const char* kSmallDown = "delta:int8";  // beside the plan's own `down`
constexpr std::array<std::uint64_t, 10> kSteps = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000};
constexpr std::array<std::uint64_t, 5> kShownSteps = {1, 5, 20, 100, 500};
constexpr std::uint64_t kManySteps = 100;  // with more local steps, models drift apart on uneven data

// Behind a warm-up, where there is one.
Result<double> encoded_bytes_a_value(kernels::CodecSpec spec) {
  const bool selects = spec.kind == kernels::CodecKind::kTopk || spec.kind == kernels::CodecKind::kDgc;
  if (selects) return spec.ratio * (4 + 1.02);  // a value and its index
  if (spec.kind == kernels::CodecKind::kOnebitAdam) spec.kind = kernels::CodecKind::kSign;
  FLUVIAL_ASSIGN(const auto made, kernels::make_codec(spec));
  constexpr std::size_t kChunk = 1 << 20;
  return static_cast<double>(made->encoded_bytes_max(kChunk)) / kChunk;
}

// Ways up and down, and the bytes a value that each takes.
struct Forms {
  std::string codec;
  std::string down;
  double up_bytes = 4;
  double down_bytes = 4;  // with what the codec hands down beside the model
  double round_trips = kRoundTrips;
};

// Of a codec with several passes: what it sends in all of them, the means that come down between them, and the state
// that the next round begins with.
Status add_passes(const AdviceQuestion& question, const kernels::CodecSpec& spec, Forms& forms) {
  if (!question.schema) {
    return Error{Code::kInvalidArgument,
                 "codec \"" + forms.codec +
                     "\": how much it sends follows from the model's matrices: name the model's file in the plan, and "
                     "give no --values"};
  }
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  const aggregate::Shapes shapes(*question.schema, question.chunk_values);
  FLUVIAL_ASSIGN(const std::vector<std::uint64_t> passes, aggregate::pass_values(*codec, shapes));
  std::uint64_t sent = 0;
  for (const std::uint64_t values : passes) sent += values;
  const auto all = static_cast<double>(question.values);
  const std::uint64_t means = sent - passes.back();
  forms.up_bytes = 4 * static_cast<double>(sent) / all;
  forms.down_bytes += (4 * static_cast<double>(means) + static_cast<double>(codec->state_bytes(shapes.schema()))) / all;
  forms.round_trips += kPassRoundTrips * static_cast<double>(passes.size() - 1);
  return {};
}

Result<Forms> forms_of(const AdviceQuestion& question, const std::string& codec, const std::string& down) {
  FLUVIAL_TRY(aggregate::check_plan_codec(codec));
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(codec));
  Forms forms{.codec = codec, .down = down};
  FLUVIAL_ASSIGN(forms.down_bytes, down_bytes_a_value(down));
  if (spec.kind == kernels::CodecKind::kPowerSgd) {
    FLUVIAL_TRY(add_passes(question, spec, forms));
  } else {
    FLUVIAL_ASSIGN(forms.up_bytes, encoded_bytes_a_value(spec));
  }
  return forms;
}

// Every codec with the model down as the plan has it, then with the difference.
Result<std::vector<Forms>> candidates_of(const AdviceQuestion& question) {
  std::vector<Forms> candidates;
  std::vector<std::string> downs = {question.down};
  FLUVIAL_ASSIGN(const aggregate::Down planned, aggregate::parse_down(question.down));
  if (planned != aggregate::parse_down(kSmallDown).value()) downs.emplace_back(kSmallDown);
  for (const std::string& down : downs) {
    for (const std::string codec : kCandidates) {
      FLUVIAL_ASSIGN(Forms forms, forms_of(question, codec, down));
      candidates.push_back(std::move(forms));
    }
  }
  return candidates;
}

// 0: costs no accuracy; then the harsher, the more it costs.
std::size_t severity(const Forms& forms) {
  const auto place = std::find(kCandidates.begin(), kCandidates.end(), forms.codec) - kCandidates.begin();
  return static_cast<std::size_t>(place) < kMild ? 0 : static_cast<std::size_t>(place);
}

AdvisedRound round_of(const AdviceQuestion& question, const Forms& forms, std::uint64_t steps) {
  const auto values = static_cast<double>(question.values);
  const double update = values * forms.up_bytes;
  AdvisedRound round{.codec = forms.codec, .down = forms.down, .local_steps = steps};
  round.down_s = values * forms.down_bytes / question.down_bytes_per_s;
  round.train_s = static_cast<double>(steps) * question.step_s;
  round.up_s = update / question.up_bytes_per_s;
  round.other_s = values * (kSiteSecondsAValue + kRootSecondsAValue) +
                  update * static_cast<double>(question.sites) * kRootSecondsAByte + forms.round_trips * question.rtt_s;
  if (forms.down != "fp32") round.other_s += values * (kRootFormSecondsAValue + kSiteFormSecondsAValue);
  return round;
}

// The fewest of kSteps, not below the plan's, with which training is most of the round; the most of them if none does.
AdvisedRound with_steps(const AdviceQuestion& question, const Forms& forms) {
  for (const std::uint64_t steps : kSteps) {
    const AdvisedRound round = round_of(question, forms, std::max(steps, question.local_steps));
    if (round.training_share() >= kEnough) return round;
  }
  return round_of(question, forms, std::max(kSteps.back(), question.local_steps));
}

// What a round takes with each codec and this form down, for some numbers of local steps and the plan's.
Result<std::vector<std::vector<AdvisedRound>>> rounds_by_steps(const AdviceQuestion& question,
                                                               const std::string& down) {
  std::set<std::uint64_t> numbers(kShownSteps.begin(), kShownSteps.end());
  numbers.insert(question.local_steps);
  std::vector<std::vector<AdvisedRound>> rows;
  for (const std::uint64_t steps : numbers) {
    std::vector<AdvisedRound>& row = rows.emplace_back();
    for (const std::string codec : kCandidates) {
      FLUVIAL_ASSIGN(const Forms forms, forms_of(question, codec, down));
      row.push_back(round_of(question, forms, steps));
    }
  }
  return rows;
}

// Which of `fitted`, the rounds of `candidates` with the local steps that each needs, and why. The mildest one that
// needs the fewest steps; a harsher codec only where the milder ones need very many. If training is most of no round:
// the mildest that comes near the one in which it is most.
std::pair<AdvisedRound, std::string> choose(const std::vector<Forms>& candidates,
                                            const std::vector<AdvisedRound>& fitted) {
  std::vector<std::size_t> order(fitted.size());
  std::iota(order.begin(), order.end(), 0U);
  std::ranges::sort(order, {}, [&](std::size_t i) { return std::pair(severity(candidates[i]), i); });
  const AdvisedRound* best = nullptr;
  std::size_t cost = 0;  // of the best one
  double most = 0;
  for (const std::size_t i : order) {
    most = std::max(most, fitted[i].training_share());
    if (best != nullptr && best->local_steps <= kManySteps && severity(candidates[i]) > cost) break;
    if (fitted[i].training_share() < kEnough) continue;
    if (best != nullptr && fitted[i].local_steps >= best->local_steps) continue;
    best = &fitted[i];
    cost = severity(candidates[i]);
  }
  if (best == nullptr) {
    const auto near = [&](std::size_t i) { return fitted[i].training_share() >= kNear * most; };
    return {
        fitted[*std::ranges::find_if(order, near)],
        fmt::format("the lines are too thin for this model: with no codec is {:.0f} % of a round training within {} "
                    "local steps; this is the mildest of those that come near the best, and costs accuracy",
                    kEnough * 100, std::max(kSteps.back(), fitted.front().local_steps))};
  }
  const bool is_short = best->local_steps <= kManySteps;
  if (cost == 0 && is_short) {
    return {*best,
            fmt::format("the mildest forms and the fewest local steps with which {:.0f} % of a round is training",
                        kEnough * 100)};
  }
  return {*best,
          fmt::format("the lines are thin for this model:{}{}{}; no milder codec needs as few steps. Measure the "
                      "accuracy",
                      cost == 0 ? "" : " a codec that costs some accuracy", cost == 0 || is_short ? "" : ", and",
                      is_short ? "" : " many local steps")};
}

// Of a round that the plan has in the worker's script, not in a key of its own.
std::string overlap_words(const AdviceQuestion& question, const AdvisedRound& chosen) {
  const double rest_s = chosen.round_s() - chosen.train_s;
  const auto steps = static_cast<std::uint64_t>(std::ceil(rest_s / std::max(question.step_s, 0.001)));
  return fmt::format(
      "with round.submit(..., overlap=True) sites train while models and updates travel: the round takes {} in place "
      "of "
      "{}, and with {} local steps or more the network costs nothing. An update then comes one round late",
      format_seconds(chosen.overlapped_s()), format_seconds(chosen.round_s()), steps);
}

// docs/design/architecture.md, plan.md; a site's as docs/benchmarks.md has measured it.
std::string memory_words(const AdviceQuestion& question, const AdvisedRound& chosen) {
  constexpr double kOwn = 64e6, kStagingLeast = 32 << 20;
  const auto values = static_cast<double>(question.values);
  const double parent = 12 * values + std::max(8 * values, kStagingLeast) + kOwn;
  const double form = chosen.down == "fp32" ? 0 : 16 * values;
  const double state = 8 * static_cast<double>(question.optimizer_vectors) * values;
  return fmt::format(
      "up to {} at the coordinator ({} of it for the optimizer's state, {} for the model's form on its way down), {} "
      "at "
      "an aggregator, about {} at a site beside its workers",
      format_bytes(parent + state + form), format_bytes(state), format_bytes(form), format_bytes(parent + form / 2),
      format_bytes(20 * values + kOwn));
}

json::object to_json(const AdvisedRound& round) {
  return {{"codec", round.codec},       {"down", round.down},       {"local_steps", round.local_steps},
          {"round_s", round.round_s()}, {"down_s", round.down_s},   {"train_s", round.train_s},
          {"up_s", round.up_s},         {"other_s", round.other_s}, {"training_share", round.training_share()}};
}

Result<AdviceQuestion> question_of(const AdviceOptions& options, store::FileSystem& files) {
  FLUVIAL_ASSIGN(const config::PlanFile file, config::load_plan(options.plan, aggregate::check_plan_forms));
  AdviceQuestion question{.values = options.values, .sites = options.sites};
  if (question.values == 0) {
    if (file.model.empty()) {
      return Error{Code::kInvalidArgument, options.plan + " names no model; give --values N, the model's parameters"};
    }
    FLUVIAL_ASSIGN(const auto model, store::open_model(files, file.model));
    FLUVIAL_ASSIGN(const store::ModelHeader header, store::read_model_header(*model, file.model));
    question.values = header.schema.value_count();
    question.schema = header.schema;
  }
  question.codec = file.plan.codec;
  question.down = file.plan.down;
  question.local_steps = file.plan.local_steps;
  question.chunk_values = file.plan.chunk_values;
  question.is_async = round::is_async(file.plan);
  question.optimizer_vectors = aggregate::state_vectors(file.plan.optimizer);
  FLUVIAL_ASSIGN(question.up_bytes_per_s, parse_rate(options.up));
  FLUVIAL_ASSIGN(question.down_bytes_per_s, parse_rate(options.down));
  FLUVIAL_ASSIGN(const std::uint64_t rtt_ms, config::parse_milliseconds(options.rtt));
  FLUVIAL_ASSIGN(const std::uint64_t step_ms, config::parse_milliseconds(options.step));
  question.rtt_s = static_cast<double>(rtt_ms) / 1000;
  question.step_s = static_cast<double>(step_ms) / 1000;
  return question;
}

// A line for each number of local steps: the round's time with each codec, and the part of it that is training.
std::string steps_table(const Advice& advice, const Terminal& terminal) {
  std::vector<Table::Column> columns = {{"STEPS", Align::kRight}};
  for (const AdvisedRound& round : advice.by_steps.front()) columns.push_back({round.codec, Align::kRight});
  Table table(std::move(columns));
  for (const std::vector<AdvisedRound>& row : advice.by_steps) {
    std::vector<std::string> cells = {std::to_string(row.front().local_steps)};
    for (const AdvisedRound& round : row) {
      cells.push_back(format_seconds(round.round_s()) + ", " + format_percent(round.training_share()));
    }
    table.add(std::move(cells));
  }
  return table.render(terminal);
}

void add_row(Table& table, const std::string& what, const AdvisedRound& round) {
  table.add({what, round.codec, round.down, std::to_string(round.local_steps), format_seconds(round.round_s()),
             format_seconds(round.down_s), format_seconds(round.train_s), format_seconds(round.up_s),
             format_seconds(round.other_s), format_percent(round.training_share())});
}

}  // namespace

Result<double> down_bytes_a_value(const std::string& text) {
  FLUVIAL_ASSIGN(const aggregate::Down down, aggregate::parse_down(text));
  if (down.kind == aggregate::Down::Kind::kWhole) return 4.0;
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(down.codec));
  return encoded_bytes_a_value(spec);
}

Result<Advice> advise(const AdviceQuestion& question) {
  Advice advice;
  if (question.is_async) {
    advice.note =
        "mode = \"async\": a round is here what one site takes for an update. Windows wait for no site; they commit at "
        "async.goal updates, whoever brings them";
  }
  FLUVIAL_ASSIGN(const Forms planned, forms_of(question, question.codec, question.down));
  FLUVIAL_ASSIGN(const std::vector<Forms> candidates, candidates_of(question));
  advice.planned = round_of(question, planned, question.local_steps);
  std::vector<AdvisedRound> fitted;
  for (const Forms& forms : candidates) {
    advice.others.push_back(round_of(question, forms, question.local_steps));
    fitted.push_back(with_steps(question, forms));
  }
  if (advice.planned.training_share() >= kEnough) {
    advice.chosen = advice.planned;
    advice.why = "the plan as it is: most of a round is training already";
  } else {
    std::tie(advice.chosen, advice.why) = choose(candidates, fitted);
  }
  advice.overlap = overlap_words(question, advice.chosen);
  advice.memory = memory_words(question, advice.chosen);
  FLUVIAL_ASSIGN(advice.by_steps, rounds_by_steps(question, advice.chosen.down));
  return advice;
}

Result<double> parse_rate(std::string_view text) {
  struct Unit {
    std::string_view name;
    double bytes;
  };
  constexpr Unit kUnits[] = {{"kbit", 125}, {"mbit", 125e3}, {"gbit", 125e6}, {"kB", 1e3},
                             {"MB", 1e6},   {"GB", 1e9},     {"bit", 0.125},  {"B", 1}};
  double number = 0;
  const auto [after, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  const std::string_view unit = text.substr(static_cast<std::size_t>(after - text.data()));
  for (const Unit& known : kUnits) {
    if (error == std::errc() && std::isfinite(number) && number > 0 && unit == known.name) return number * known.bytes;
  }
  return Error{Code::kInvalidArgument,
               fmt::format("\"{}\": expected a rate such as 50mbit, 1gbit or 6MB (a second)", text)};
}

int run_advise(const Io& io, const AdviceOptions& options, store::FileSystem& files) {
  const auto question = question_of(options, files);
  if (!question.ok()) return fail(io, "simulate --advise", question.error(), kUsage);
  const auto advice = advise(*question);
  if (!advice.ok()) return fail(io, "simulate --advise", advice.error(), kUsage);
  Table table({{""},
               {"CODEC"},
               {"DOWN"},
               {"STEPS", Align::kRight},
               {"ROUND", Align::kRight},
               {"MODEL DOWN", Align::kRight},
               {"TRAINING", Align::kRight},
               {"UPDATE UP", Align::kRight},
               {"OTHER", Align::kRight},
               {"TRAINS", Align::kRight}});
  add_row(table, "the plan", advice->planned);
  for (const AdvisedRound& round : advice->others) add_row(table, "", round);
  add_row(table, "chosen", advice->chosen);
  io.print(fmt::format("{} values, {} sites\n\n", format_count(question->values), question->sites) +
           table.render(io.terminal()) +
           fmt::format("\na round, and how much of it is training, by local steps and codec, with down = \"{}\":\n\n",
                       advice->chosen.down) +
           steps_table(*advice, io.terminal()) +
           fmt::format("\nchosen: {} (docs/operations/choose.md)\noverlap: {}\nmemory: {}\n", advice->why,
                       advice->overlap, advice->memory) +
           (advice->note.empty() ? "" : advice->note + "\n"));
  if (options.json.empty()) return kDone;
  json::array others;
  for (const AdvisedRound& round : advice->others) others.push_back(to_json(round));
  json::array by_steps;
  for (const std::vector<AdvisedRound>& row : advice->by_steps) {
    for (const AdvisedRound& round : row) by_steps.push_back(to_json(round));
  }
  const Status written = write_text_file(options.json, pretty(json::object{{"values", question->values},
                                                                           {"sites", question->sites},
                                                                           {"planned", to_json(advice->planned)},
                                                                           {"others", std::move(others)},
                                                                           {"by_steps", std::move(by_steps)},
                                                                           {"chosen", to_json(advice->chosen)},
                                                                           {"why", advice->why},
                                                                           {"overlap", advice->overlap},
                                                                           {"memory", advice->memory},
                                                                           {"note", advice->note}}));
  return written.ok() ? kDone : fail(io, "simulate --advise", written.error());
}

}  // namespace fluvial::cli
