// fluvial demo: a whole federation on this machine, on real data, as separate processes.
#include "cli/demo.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "cli/command.h"
#include "cli/console.h"
#include "cli/disturbed_run.h"
#include "cli/format.h"
#include "cli/local_run.h"
#include "cli/round_view.h"
#include "core/aggregate/down.h"
#include "core/aggregate/down_forms.h"
#include "core/aggregate/plan_codec.h"
#include "core/aggregate/plan_forms.h"
#include "core/aggregate/plan_notes.h"
#include "core/store/file_system.h"
#include "core/store/plan_json.h"
#include "kernels/codec.h"

namespace fluvial::cli {
namespace {

constexpr auto kEvaluationLimit = std::chrono::seconds(30);
constexpr std::uint64_t kWatchablePaceMs = 1200;
constexpr std::uint64_t kKillablePaceMs = 60;  // so that a round is open for long enough to die in it

// About so long each site waits before it trains: up to half as long again.
std::uint64_t pace_ms(const DemoOptions& options) {
  return options.stays() ? kWatchablePaceMs : options.kill ? kKillablePaceMs : 0;
}

round::Plan plan_of(const DemoOptions& options) {
  round::Plan plan;
  plan.name = "digits-demo";
  plan.rounds = options.rounds;
  plan.local_steps = options.local_steps;
  plan.codec = options.codec;
  plan.down = options.down;
  plan.participants_min = options.shape.sites;
  plan.quorum = (options.shape.sites + 1) / 2;
  plan.seed = options.seed;
  if (!aggregate::suit_optimizer(&plan) && options.server_momentum > 0) {
    plan.optimizer.kind = round::Optimizer::kFedAvgM;
    plan.optimizer.momentum = options.server_momentum;
  }
  plan.optimizer.lr = options.server_learning_rate;
  round::set_mode(options.mode, &plan);
  plan.late = options.late;
  if (round::late_is_next(plan)) plan.staleness_max = 10;
  if (options.slow_ms > 0 && !round::is_async(plan)) {  // rounds go on before the slow site is in, and after the others
    plan.adaptive_deadlines = false;
    plan.soft_deadline =
        std::chrono::milliseconds(pace_ms(options) * 3 / 2 + std::max<std::uint64_t>(options.slow_ms / 4, 1));
    plan.soft_deadline_min = std::min(plan.soft_deadline_min, plan.soft_deadline);
    plan.hard_deadline = std::max(plan.hard_deadline, plan.soft_deadline);
  }
  if (options.kill) {  // the same contributors in both runs: each round holds every site, however long that takes
    plan.quorum = options.shape.sites;
    plan.adaptive_deadlines = false;
    plan.soft_deadline = plan.hard_deadline = std::chrono::minutes(2);
    plan.attempts_max = 100;
  }
  plan.worker.values = {{"batch_size", static_cast<double>(options.batch_size)},
                        {"learning_rate", options.learning_rate}};
  return plan;
}

class Demo {
 public:
  Demo(const Io& io, const DemoOptions& options, Supervisor& supervisor, const WorkFolder& folder,
       std::string executable)
      : io_(io),
        terminal_(io.terminal()),
        options_(options),
        supervisor_(supervisor),
        folder_(folder),
        digits_(companion_executable(executable, "fluvial-digits")),
        federation_(supervisor, executable, folder.path(), options.shape) {}

  Result<DemoOutcome> run() {
    FLUVIAL_TRY(start());
    say("up and down: what arrives at the coordinator and leaves it");
    for (const std::string& note : aggregate::plan_notes(plan_of(options_))) say("note: " + note);
    const auto began = std::chrono::steady_clock::now();
    FLUVIAL_TRY(start_run());
    FLUVIAL_ASSIGN(RoundView view, view_of_run());
    FLUVIAL_TRY(watch_local_run(federation_.admin(), run_, options_.rounds, view));
    DemoOutcome outcome;
    outcome.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    outcome.rounds_committed = view.committed();
    outcome.late_updates = view.late_updates();
    const Status collected = collect(outcome);
    view.on_event(json::object{
        {"event", "evaluated"}, {"round", options_.rounds}, {"evaluation", member(outcome.last_round, "evaluation")}});
    view.finish();
    if (!collected.ok()) return collected.error();
    if (options_.kill) FLUVIAL_TRY(disturb(outcome));
    say("the same model, all images in one place, as many epochs");
    FLUVIAL_TRY(train_centrally(outcome));
    return outcome;
  }

  // One run after the other, with a console, until somebody ends the federation: the error says how.
  Status stay() {
    FLUVIAL_TRY(start());
    const ConsoleOptions console_options{.open = options_.open};
    FLUVIAL_ASSIGN(Console console, Console::open(*federation_.admin().where(), console_options));
    show_console(io_, console, console_options);
    say("training goes on, slowly enough to watch, until Ctrl-C");
    round::Plan plan = plan_of(options_);
    for (;; ++plan.seed) {
      FLUVIAL_ASSIGN(run_, start_local_run(federation_.admin(), plan, folder_.path(), "initial.safetensors"));
      FLUVIAL_ASSIGN(RoundView view, view_of_run());
      const Status watched = federation_.admin().watch(fmt::format("/v1/rounds/watch?run={}&from=1", run_),
                                                       [&view](const json::value& event) {
                                                         view.on_event(event);
                                                         return true;
                                                       });
      view.finish();
      if (!watched.ok()) return watched;
      say(fmt::format("run {} is over; the next begins", run_));
    }
  }

 private:
  void say(const std::string& text) const { io_.print(terminal_.dim("-- " + text) + "\n"); }

  Result<RoundView> view_of_run() const {
    RoundView view(io_, options_.rounds, RoundView::Evaluation::kAwaited);
    FLUVIAL_ASSIGN(const json::value plan, parse_json(store::plan_to_json(plan_of(options_)), "the plan"));
    view.of_plan(plan);
    return view;
  }

  std::vector<std::string> digits(std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), digits_);
    return arguments;
  }

  Status start() {
    say(fmt::format("1 coordinator, {} aggregators and {} sites as processes of their own, over mutual TLS 1.3",
                    options_.shape.aggregators, options_.shape.sites));
    FLUVIAL_TRY(supervisor_.run(federation_.tool("init", digits({"init", "--model", options_.model, "--seed", seed(),
                                                                 "--out", folder_.file("initial.safetensors")}))));
    FLUVIAL_TRY(federation_.start());
    const std::string sites = std::to_string(options_.shape.sites);
    for (std::size_t i = 0; i < federation_.sites().size(); ++i) {
      const std::string number = std::to_string(i + 1);
      const bool is_slow = i + 1 == federation_.sites().size();
      FLUVIAL_TRY(federation_.spawn_worker(
          "trainer-" + number, digits({"train", "--socket", federation_.sites()[i].worker_socket, "--sites", sites,
                                       "--site", number, "--seed", seed(), "--pace-ms",
                                       std::to_string(pace_ms(options_) + (is_slow ? options_.slow_ms : 0))})));
    }
    FLUVIAL_TRY(
        federation_.spawn_worker("evaluator", digits({"evaluate", "--socket", federation_.evaluator_socket()})));
    say(fmt::format("every member enrolled with a one-time token; data: handwritten digits, unevenly split (seed {})",
                    options_.seed));
    return {};
  }

  Status start_run() {
    FLUVIAL_ASSIGN(run_,
                   start_local_run(federation_.admin(), plan_of(options_), folder_.path(), "initial.safetensors"));
    return {};
  }

  // The same run once more, in which nodes die.
  Status disturb(DemoOutcome& outcome) {
    say("the same plan once more; this time nodes are killed in the middle of rounds");
    const std::uint64_t third = std::max<std::uint64_t>(options_.rounds / 3, 1);
    std::vector<Kill> kills;
    if (options_.shape.aggregators > 0) kills.push_back({"aggregator-1", third});
    kills.push_back({"coordinator", std::min(2 * third, options_.rounds)});
    FLUVIAL_TRY(start_run());
    FLUVIAL_ASSIGN(RoundView view, view_of_run());
    FLUVIAL_TRY(watch_disturbed_run(federation_, run_, options_.rounds, kills, view,
                                    [this](const std::string& text) { say(text); }));
    view.finish();
    for (const Kill& kill : kills) outcome.killed.push_back(kill.node);
    outcome.disturbed_sha256 = text_member(view.last_round(), "model_sha256");
    return {};
  }

  // The last evaluation may come in after the run is done; likewise the sites' copies of the model.
  Status collect(DemoOutcome& outcome) {
    const std::string target = fmt::format("/v1/rounds?run={}&from={}&limit=1", run_, options_.rounds);
    FLUVIAL_ASSIGN(
        const bool evaluated, retry(kEvaluationLimit, [&]() -> Result<bool> {
          FLUVIAL_ASSIGN(const json::value rounds, federation_.admin().get(target));
          const json::array& found = array_member(rounds, "rounds");
          if (!found.empty()) outcome.last_round = found[0];
          return std::isfinite(number_member(member(outcome.last_round, "evaluation"), "test_accuracy", kNoNumber));
        }));
    if (!evaluated)
      return Error{Code::kDeadlineExceeded, "the last model was not evaluated in time; see evaluator.log"};
    outcome.test_accuracy = number_member(member(outcome.last_round, "evaluation"), "test_accuracy", kNoNumber);
    outcome.test_loss = number_member(member(outcome.last_round, "evaluation"), "test_loss", kNoNumber);
    outcome.model_sha256 = text_member(outcome.last_round, "model_sha256");
    FLUVIAL_ASSIGN(const auto statuses, federation_.wait_for_model(run_, options_.rounds));
    for (const json::value& status : statuses) {
      outcome.site_model_sha256.push_back(text_member(status, "model_sha256"));
      outcome.bytes_up += number_member(status, "update_bytes_sent", 0);
      outcome.bytes_up_fp32 += number_member(status, "update_bytes_fp32", 0);
    }
    FLUVIAL_ASSIGN(const json::value all,
                   federation_.admin().get(fmt::format("/v1/rounds?run={}&limit={}", run_, options_.rounds)));
    for (const json::value& round : array_member(all, "rounds")) {
      outcome.bytes_to_coordinator += number_member(round, "bytes_up", 0);
      outcome.contributions += array_member(round, "contributors").size();
      outcome.old_updates += count_member(round, "stale");
    }
    return {};
  }

  // In windows a site brings as many updates as it can: what they were together, in rounds of all sites.
  std::uint64_t rounds_of_all(const DemoOutcome& outcome) const {
    if (options_.mode != "async") return options_.rounds;
    return std::max<std::uint64_t>(outcome.contributions / options_.shape.sites, 1);
  }

  Status train_centrally(DemoOutcome& outcome) {
    const std::string path = folder_.file("central.json");
    FLUVIAL_TRY(supervisor_.run(federation_.tool(
        "central",
        digits({"central", "--model", options_.model, "--seed", seed(), "--rounds",
                std::to_string(rounds_of_all(outcome)), "--local-steps", std::to_string(options_.local_steps),
                "--sites", std::to_string(options_.shape.sites), "--batch-size", std::to_string(options_.batch_size),
                "--learning-rate", fmt::format("{}", options_.learning_rate), "--json", path}))));
    store::PosixFileSystem files;
    FLUVIAL_ASSIGN(const Buffer text, store::read_file(files, path, 1 << 20));
    FLUVIAL_ASSIGN(const json::value central, parse_json(as_text(text.span()), path));
    outcome.central_test_accuracy = number_member(central, "test_accuracy", kNoNumber);
    outcome.central_test_loss = number_member(central, "test_loss", kNoNumber);
    return {};
  }

  std::string seed() const { return std::to_string(options_.seed); }

  Io io_;
  Terminal terminal_;
  const DemoOptions& options_;
  Supervisor& supervisor_;
  const WorkFolder& folder_;
  std::string digits_;
  LocalFederation federation_;
  std::uint64_t run_ = 0;
};

int run_demo(const Io& io, const DemoOptions& options) {
  if (const auto codec = aggregate::check_plan_codec(options.codec); !codec.ok())
    return fail(io, "demo: --codec", codec.error(), kUsage);
  if (const auto down = aggregate::parse_down(options.down); !down.ok())
    return fail(io, "demo: --down", down.error(), kUsage);
  if (plan_of(options).optimizer.kind == round::Optimizer::kOnebitAdam && options.server_momentum > 0) {
    return fail(io, "demo: --server-momentum",
                Error{Code::kInvalidArgument, "codec onebit_adam says the momentum itself (beta1), expected 0"},
                kUsage);
  }
  Status right = round::check_plan(plan_of(options));
  if (right.ok()) right = aggregate::check_plan_forms(plan_of(options));
  if (!right.ok()) return fail(io, "demo", right.error(), kUsage);
  const auto executable = own_executable();
  if (!executable.ok()) return fail(io, "demo", executable.error());
  auto folder = WorkFolder::open(options.work_dir, options.keep, "demo");
  if (!folder.ok()) return fail(io, "demo", folder.error(), kUsage);
  auto supervisor = Supervisor::create(std::chrono::seconds(10));
  if (!supervisor.ok()) return fail(io, "demo", supervisor.error());
  Demo demo(io, options, **supervisor, *folder, *executable);
  if (options.stays()) {
    const Error ended = (*supervisor)->explain(demo.stay().error());
    (*supervisor)->stop();
    return ended.code == Code::kCancelled ? kDone : fail(io, "demo", ended);
  }
  auto outcome = demo.run();
  const Error explained = outcome.ok() ? Error{} : (*supervisor)->explain(outcome.error());
  (*supervisor)->stop();
  if (!outcome.ok()) return fail(io, "demo", explained);
  const Terminal terminal = io.terminal();
  io.print("\n" + demo_summary(options, *outcome, terminal) + "\n");
  if (!options.json.empty()) {
    const Status written = write_text_file(options.json, pretty(demo_json(options, *outcome)));
    if (!written.ok()) return fail(io, "demo", written.error());
  }
  io.print(demo_pointers(options, *folder, terminal));
  return left_no_trace(*outcome) ? kDone : kFailed;
}

// What the model and the codec train with, where nobody says otherwise. With --model cnn sites drift apart sooner than
// with a linear model; the step of 1-bit Adam is of about this length whatever the updates are.
void suit(const CLI::App& demo, DemoOptions& options) {
  const auto unless_given = [&demo](const char* flag, auto& value, auto suits) {
    if (demo.count(flag) == 0) value = suits;
  };
  if (options.model == "cnn") {
    unless_given("--rounds", options.rounds, std::uint64_t{100});
    unless_given("--learning-rate", options.learning_rate, 0.05);
  }
  if (options.mode == "async") {  // a window holds half of the sites' updates, and momentum decays with each
    unless_given("--late", options.late, "next");
    unless_given("--rounds", options.rounds, 2 * options.rounds);
    unless_given("--server-momentum", options.server_momentum, 0.0);
  }
  round::Plan plan;
  plan.codec = options.codec;
  if (!aggregate::suit_optimizer(&plan)) return;
  unless_given("--server-learning-rate", options.server_learning_rate, 0.05);
  unless_given("--server-momentum", options.server_momentum, 0.0);
}

// What becomes of updates that are not in when their round closes. The option that makes a site slow.
CLI::Option* declare_lateness(CLI::App& demo, DemoOptions& options) {
  demo.add_option("--mode", options.mode,
                  "rounds, or async: windows without a barrier, twice as many and without momentum unless told "
                  "otherwise")
      ->check(one_of({"rounds", "async"}))
      ->type_name("MODE")
      ->capture_default_str();
  demo.add_option("--late", options.late,
                  "where an update goes that misses its round: residual, or the next one, up to ten rounds "
                  "later")
      ->check(one_of({"residual", "next"}))
      ->type_name("WHERE")
      ->capture_default_str();
  return demo
      .add_option("--slow-ms", options.slow_ms,
                  "the last site takes about so long before it trains: it misses rounds, and "
                  "windows do not wait for it")
      ->type_name("N")
      ->check(whole_number(0, 60'000))
      ->capture_default_str();
}

}  // namespace

void add_demo_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<DemoOptions>();
  CLI::App* demo = app.add_subcommand("demo", "a whole federation on this machine, with real data");
  const auto number = [demo](const std::string& flag, std::uint64_t& value, const std::string& help,
                             std::uint64_t least, std::uint64_t most) {
    demo->add_option(flag, value, help)->type_name("N")->check(whole_number(least, most))->capture_default_str();
  };
  number("--rounds", options->rounds, "rounds", 1, 100'000);
  number("--seed", options->seed, "of the initial model, the split over sites and the training", 0, 1'000'000'000);
  options->shape.arguments["site"] = {"--gpus", "none"};  // its workers have no use for them
  number("--sites", options->shape.sites, "sites", 1, 30);
  number("--aggregators", options->shape.aggregators, "regional aggregators; 0: none", 0, 30);
  demo->add_option(
          "--model", options->model,
          "softmax, mlp, or cnn: convolutions, with 100 rounds and a learning rate of 0.05 unless told otherwise")
      ->check(one_of({"cnn", "mlp", "softmax"}))
      ->type_name("MODEL")
      ->capture_default_str();
  demo->add_option("--codec", options->codec, "of the updates, with options: " + kernels::codec_names())
      ->type_name("CODEC")
      ->capture_default_str();
  demo->add_option("--down", options->down, "how the model travels to the sites: " + std::string(aggregate::kDownForms))
      ->type_name("HOW")
      ->capture_default_str();
  CLI::Option* const slow = declare_lateness(*demo, *options);
  number("--local-steps", options->local_steps, "training steps between two synchronisations", 1, 1'000'000);
  number("--batch-size", options->batch_size, "images a step", 1, 65'536);
  demo->add_option("--learning-rate", options->learning_rate, "of the sites' training")
      ->type_name("X")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  demo->add_option("--server-learning-rate", options->server_learning_rate,
                   "of the coordinator's step; with codec onebit_adam 0.05 unless told otherwise")
      ->type_name("X")
      ->capture_default_str()
      ->check(CLI::PositiveNumber);
  demo->add_option("--server-momentum", options->server_momentum,
                   "of the coordinator's step (fedavgm); 0: plain averaging, or the codec's own")
      ->type_name("X")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.999));
  demo->add_option("--json", options->json, "write the figures to this file")->type_name("FILE");
  demo->add_option("--work-dir", options->work_dir,
                   "an empty folder to work in and leave as it is (default: a temporary one)")
      ->type_name("PATH");
  demo->add_flag("--keep", options->keep, "keep the temporary folder with logs, plan and models");
  demo->add_flag("--open", options->open, "open a live console in the browser, train slowly, and stay until Ctrl-C");
  demo->add_flag("--no-open", options->no_open, "as --open, but print the console's address and open no browser");
  demo->add_flag("--kill", options->kill,
                 "train a second time, kill an aggregator and the coordinator in the middle of rounds, and compare the "
                 "two models bit for bit")
      ->excludes("--open")
      ->excludes("--no-open")
      ->excludes("--mode")  // both runs have the same contributors in each round
      ->excludes(slow);
  demo->footer(
      "Examples:\n  fluvial demo --rounds 30 --codec topk:ratio=0.05 --down delta:int8 --keep\n  fluvial demo --kill\n "
      " fluvial demo "
      "--open\n  fluvial demo --model cnn\n  fluvial demo --slow-ms 200 --late next\n  fluvial demo --slow-ms 200 "
      "--mode async");
  demo->callback([&commands, options, demo] {
    suit(*demo, *options);
    options->shape.may_fail = options->kill;
    commands.chosen = [&commands, options] { return run_demo(commands.io, *options); };
  });
}

}  // namespace fluvial::cli
