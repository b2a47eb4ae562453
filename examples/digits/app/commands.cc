#include "examples/digits/app/commands.h"

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <thread>

#include "core/store/safetensors.h"
#include "examples/digits/app/places.h"
#include "examples/digits/model.h"
#include "examples/digits/random.h"

namespace fluvial::digits {
namespace {

void print_line(const std::string& line) {
  fmt::print("{}\n", line);
  std::fflush(stdout);  // a reader of a pipe or a log sees each line at once
}

Result<Data> data_of(const Options& options) {
  FLUVIAL_ASSIGN(const std::filesystem::path path, find_data(options.data));
  return load_data(path);
}

Attachment attachment_of(const Options& options, const std::string& name, local::TaskKind kind) {
  return {.socket = options.socket,
          .options = {.name = name, .kind = kind},
          .patience = std::chrono::seconds(options.patience_s),
          .say = print_line};
}

std::string counts_by_digit(const Examples& images) {
  std::array<std::size_t, kClasses> counts{};
  for (const std::uint8_t label : images.labels) ++counts[label];
  std::string line;
  for (const std::size_t count : counts) line += fmt::format("{:>6}", count);
  return line;
}

std::string json_number(double value) { return std::isfinite(value) ? fmt::format("{}", value) : "null"; }

Status write_text(const std::string& path, const std::string& text) {
  store::PosixFileSystem files;
  const ByteSpan part = as_byte_span(text);
  return store::write_file_atomically(files, path, {&part, 1});
}

// About the pace that was asked for, another in each round and at each site: a federation of equals is dull to watch.
std::chrono::milliseconds pause_before(const Options& options, const local::Task& task) {
  const std::uint64_t chance = mix({options.split.seed, task.round.value(), options.site}) % 1'000;
  return std::chrono::milliseconds(options.pace_ms * (500 + chance) / 1'000);
}

}  // namespace

Status init(const Options& options) {
  FLUVIAL_ASSIGN(const ModelKind kind, model_from_name(options.model));
  FLUVIAL_ASSIGN(const Data data, data_of(options));
  const ModelSpec spec{.kind = kind, .inputs = data.train.inputs};
  FLUVIAL_TRY(check_spec(spec));
  const round::Schema schema = schema_of(spec);
  Buffer bytes(schema.model_bytes());
  model_to_bytes(schema, initial_model(spec, options.split.seed), bytes.span());
  store::PosixFileSystem files;
  FLUVIAL_TRY(store::write_model(files, options.out, schema, bytes.span(),
                                 {{"model", options.model}, {"seed", std::to_string(options.split.seed)}}));
  print_line(fmt::format("{}: {} with {} parameters, SHA-256 {}", options.out, options.model, parameter_count(spec),
                         to_hex(store::model_digest(bytes.span()))));
  return {};
}

Status train_as_worker(const Options& options) {
  FLUVIAL_ASSIGN(const Data data, data_of(options));
  FLUVIAL_ASSIGN(const auto sites, split_over_sites(data.train, options.split));
  if (options.site == 0 || options.site > sites.size()) {
    return Error{Code::kInvalidArgument, fmt::format("site {}: expected 1 to {}", options.site, sites.size())};
  }
  const Trainer trainer(data.train.part(sites[options.site - 1]), options.split.seed, options.site, options.faults);
  print_line(fmt::format("site {} of {}: {} images", options.site, sites.size(), sites[options.site - 1].size()));
  return serve_tasks(attachment_of(options, fmt::format("digits-trainer-{}", options.site), local::TaskKind::kTrain),
                     [&](local::WorkerClient& client, const local::Task& task) {
                       print_line(fmt::format("round {}: {} steps", task.round.value(), task.local_steps));
                       std::this_thread::sleep_for(pause_before(options, task));
                       return trainer.answer(client, task);
                     });
}

Status evaluate_as_worker(const Options& options) {
  FLUVIAL_ASSIGN(const Data data, data_of(options));
  return serve_tasks(attachment_of(options, "digits-evaluator", local::TaskKind::kEvaluate),
                     [&](local::WorkerClient& client, const local::Task& task) {
                       print_line(fmt::format("round {}: testing", task.round.value()));
                       return answer_evaluation(data.test, client, task);
                     });
}

Status central(const Options& options) {
  FLUVIAL_ASSIGN(const ModelKind kind, model_from_name(options.model));
  FLUVIAL_ASSIGN(const Data data, data_of(options));
  const ModelSpec spec{.kind = kind, .inputs = data.train.inputs};
  FLUVIAL_TRY(check_spec(spec));
  const std::uint64_t seed = options.split.seed;
  Model model = initial_model(spec, seed);
  // Every site takes local_steps batches a round: as many images are used here.
  const std::uint64_t steps = options.rounds * options.local_steps * options.split.sites;
  const Score trained = train(spec, model.parameters, data.train, options.sgd, steps, mix({seed, 0x63656e747261}));
  const Score tested = evaluate(spec, model.parameters, data.test);
  const double epochs = static_cast<double>(steps * options.sgd.batch_size) / static_cast<double>(data.train.count());
  print_line(fmt::format(
      "{} steps of {} images ({:.1f} epochs): loss {:.4f}, accuracy {:.2f} %; on held-out images: "
      "loss {:.4f}, accuracy {:.2f} %",
      steps, options.sgd.batch_size, epochs, trained.loss, 100 * trained.accuracy, tested.loss, 100 * tested.accuracy));
  if (options.json.empty()) return {};
  return write_text(options.json,
                    fmt::format(R"({{"model": "{}", "seed": {}, "steps": {}, "epochs": {:.3f}, "train_loss": {}, )"
                                R"("train_accuracy": {}, "test_loss": {}, "test_accuracy": {}}})"
                                "\n",
                                options.model, seed, steps, epochs, json_number(trained.loss),
                                json_number(trained.accuracy), json_number(tested.loss), json_number(tested.accuracy)));
}

Status show_data(const Options& options) {
  FLUVIAL_ASSIGN(const Data data, data_of(options));
  FLUVIAL_ASSIGN(const auto sites, split_over_sites(data.train, options.split));
  std::string header = fmt::format("{:<10}", "digit");
  for (std::size_t digit = 0; digit < kClasses; ++digit) header += fmt::format("{:>6}", digit);
  print_line(header + fmt::format("{:>8}", "images"));
  for (std::size_t site = 0; site < sites.size(); ++site) {
    const Examples images = data.train.part(sites[site]);
    print_line(fmt::format("site {:<5}{}{:>8}", site + 1, counts_by_digit(images), images.count()));
  }
  print_line(fmt::format("{:<10}{}{:>8}", "held out", counts_by_digit(data.test), data.test.count()));
  return {};
}

}  // namespace fluvial::digits
