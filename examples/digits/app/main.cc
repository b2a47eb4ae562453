// fluvial-digits: everything about the digits that is not the federation itself.
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>

#include "examples/digits/app/commands.h"

namespace fluvial::digits {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

using Command = Status (*)(const Options&);

class CommandLine {
 public:
  CommandLine() : app_("Handwritten digits, trained by a federation", "fluvial-digits") {
    app_.require_subcommand(1);
    add_init();
    add_train();
    add_evaluate();
    add_central();
    add_data();
  }

  int run(int argc, char** argv) {
    try {
      app_.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
      return app_.exit(error) == 0 ? 0 : kUsage;
    }
    const Status done = chosen_(options_);
    if (done.ok()) return 0;
    fmt::print(stderr, "fluvial-digits {}: {}\n", name_, done.error().message);
    return done.error().code == Code::kInvalidArgument ? kUsage : kFailed;
  }

 private:
  CLI::App* add(const std::string& name, const std::string& help, Command command) {
    CLI::App* sub = app_.add_subcommand(name, help);
    sub->add_option("--data", options_.data, "CSV file, or folder with MNIST's four files (default: the UCI digits)")
        ->type_name("PATH");
    sub->callback([this, name, command] {
      name_ = name;
      chosen_ = command;
    });
    return sub;
  }
  static void number(CLI::App* sub, const std::string& flag, std::uint64_t& value, const std::string& help,
                     std::uint64_t least, std::uint64_t most) {
    sub->add_option(flag, value, help)->type_name("N")->check(CLI::Range(least, most))->capture_default_str();
  }
  void add_model(CLI::App* sub) {
    sub->add_option("--model", options_.model, "cnn, mlp or softmax")
        ->check(CLI::IsMember({"cnn", "mlp", "softmax"}))
        ->type_name("MODEL")
        ->capture_default_str();
  }
  void add_seed(CLI::App* sub) {
    number(sub, "--seed", options_.split.seed, "of the initial model, the split and the training", 0, 1'000'000'000);
  }
  void add_sites(CLI::App* sub) { number(sub, "--sites", options_.split.sites, "sites in all", 1, 1000); }
  void add_alpha(CLI::App* sub) {
    sub->add_option("--alpha", options_.split.alpha, "how alike the sites are: small means few digits at each")
        ->type_name("X")
        ->capture_default_str();
  }
  void add_worker(CLI::App* sub) {
    sub->add_option("--socket", options_.socket, "the agent's worker socket")->type_name("PATH")->required();
    number(sub, "--patience-s", options_.patience_s, "how long to wait for an agent that is not there", 0, 86'400);
  }

  void add_init() {
    CLI::App* sub = add("init", "write an initial model", &init);
    sub->add_option("--out", options_.out, "the model file")->type_name("FILE")->required();
    add_model(sub);
    add_seed(sub);
  }
  void add_train() {
    CLI::App* sub = add("train", "attach to a site's agent and train on that site's images", &train_as_worker);
    add_worker(sub);
    add_sites(sub);
    number(sub, "--site", options_.site, "which one, from 1", 1, 1000);
    add_alpha(sub);
    add_seed(sub);
    number(sub, "--pace-ms", options_.pace_ms, "wait about so long before each task, for people to watch", 0,
           3'600'000);
    add_faults(sub);
  }
  void add_faults(CLI::App* sub) {
    sub->add_option("--sleep-round", options_.faults.sleep_round, "sleep before training in this round")
        ->type_name("N")
        ->group("Faults, for tests");
    sub->add_option_function<std::uint64_t>(
           "--sleep-ms", [this](std::uint64_t value) { options_.faults.sleep = std::chrono::milliseconds(value); },
           "so long")
        ->type_name("N")
        ->check(CLI::Range(std::uint64_t{0}, std::uint64_t{86'400'000}))
        ->group("Faults, for tests");
    sub->add_option("--nan-round", options_.faults.nan_round, "hand in a model with a NaN in this round")
        ->type_name("N")
        ->group("Faults, for tests");
  }
  void add_evaluate() {
    add_worker(
        add("evaluate", "attach to the coordinator and test models on the held-out images", &evaluate_as_worker));
  }
  void add_central() {
    CLI::App* sub = add("central", "train on all images in one place, as many as a federation sees", &central);
    add_model(sub);
    add_seed(sub);
    add_sites(sub);
    number(sub, "--rounds", options_.rounds, "rounds of the federation", 1, 100'000);
    number(sub, "--local-steps", options_.local_steps, "of a site in a round", 1, 1'000'000);
    number(sub, "--batch-size", options_.sgd.batch_size, "images a step", 1, 65'536);
    const auto real = [&](const std::string& flag, double& value, double least, double most) {
      sub->add_option(flag, value)->type_name("X")->check(CLI::Range(least, most))->capture_default_str();
    };
    real("--learning-rate", options_.sgd.learning_rate, 0, 100);
    real("--momentum", options_.sgd.momentum, 0, 0.9999);
    real("--weight-decay", options_.sgd.weight_decay, 0, 1);
    sub->add_option("--json", options_.json, "write the figures to this file")->type_name("FILE");
  }
  void add_data() {
    CLI::App* sub = add("data", "show which site holds which digits", &show_data);
    add_sites(sub);
    add_alpha(sub);
    add_seed(sub);
  }

  CLI::App app_;
  Options options_;
  std::string name_;
  Command chosen_ = nullptr;
};

}  // namespace
}  // namespace fluvial::digits

int main(int argc, char** argv) {
  std::signal(SIGPIPE, SIG_IGN);  // an agent that went away is an error value, no end
  if (::getpid() == 1) {          // of a container: the kernel gives process 1 no default action for a signal
    std::signal(SIGTERM, [](int signal) { std::_Exit(128 + signal); });
    std::signal(SIGINT, [](int signal) { std::_Exit(128 + signal); });
  }
  return fluvial::digits::CommandLine().run(argc, argv);
}
