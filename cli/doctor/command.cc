// fluvial doctor: what is wrong with this machine and this node, and what to do about it.
#include "cli/command.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <utility>

#include "cli/doctor/checkup.h"
#include "cli/doctor/collect.h"
#include "cli/doctor/judge.h"
#include "cli/json.h"
#include "cli/token_file.h"
#include "core/identity/token.h"

namespace fluvial::cli {
namespace doctor {
namespace {

struct Options {
  std::string role;
  std::string config;
  std::string data_dir;
  std::string token_file;
  std::string model_bytes;
  std::string deadline = "60s";
  bool json = false;
};

std::optional<Role> role_of(const std::string& word) {
  if (word == "coordinator") return Role::kCoordinator;
  if (word == "aggregator") return Role::kAggregator;
  return word.empty() ? std::nullopt : std::optional(Role::kSite);
}

Findings judge_settings(const Subject& subject) {
  if (!subject.role) {
    return {{Severity::kOk, "no node here: what follows is about the machine alone",
             "fluvial doctor ROLE --config FILE (or --data-dir FOLDER) looks at a node"}};
  }
  if (!subject.settings_read.ok()) {
    return {{Severity::kError, subject.settings_read.error().message,
             "the process would end with the same line; docs/operations/settings.md lists the settings"}};
  }
  return {{Severity::kOk, fmt::format("settings of the {} from {}", role_name(*subject.role), subject.source)}};
}

Findings judge_token(const std::string& path) {
  const auto given = read_token_file(path);
  if (!given.ok()) return {{Severity::kError, given.error().message, "fluvial token create makes another"}};
  const auto token = identity::EnrolmentToken::parse(given->text);
  if (!token.ok()) return {{Severity::kError, token.error().message, "fluvial token create makes another"}};
  Findings findings;
  if (!given->warning.empty()) findings.push_back({Severity::kWarning, given->warning, "chmod 600 " + path});
  if (token->expires_at <= SystemClock().wall_now()) {
    findings.push_back({Severity::kError, "the token has expired", "fluvial token create makes another"});
  }
  for (Finding& finding : judge(collect_enrolment(token->address, token->pin))) findings.push_back(std::move(finding));
  return findings;
}

// What a machine is asked for, whatever it is to be.
void add_machine_checks(std::vector<Check>& checks, const Subject& subject, const Node& node,
                        const ProcessFacts& process) {
  checks.push_back({"clock", [] { return judge(collect_clock()); }});
  checks.push_back({"kernel", [node, limits = process.limits] { return judge(collect_kernel(limits), node); }});
  checks.push_back({"processor", [] { return judge(collect_cpu()); }});
  if (!subject.role || subject.role == Role::kSite) {
    const std::string setting = subject.edge ? subject.edge->gpus : "auto";
    checks.push_back({"gpus", [node, setting] { return judge(collect_gpus(setting), node); }});
    checks.push_back({"python", [] { return judge(collect_python()); }});
  }
}

void add_node_checks(std::vector<Check>& checks, const Subject& subject, const Node& node,
                     const ProcessFacts& process) {
  checks.push_back({"process", [process, node] { return judge(process, node); }});
  if (subject.common() == nullptr) return;
  checks.push_back({"ports", [subject, process] { return judge(collect_ports(subject), process); }});
  if (subject.coordinator) {
    checks.push_back({"journal", [path = subject.data_dir + "/journal.sqlite", held = process.answers] {
                        return judge(collect_journal(path, held));
                      }});
    if (process.answers) {
      checks.push_back({"address", [subject, process] { return judge(collect_advertised(subject, process)); }});
      checks.push_back({"aggregators", [subject] { return judge(collect_way_back(subject)); }});
    }
  } else {
    checks.push_back({"parent", [subject, process] { return judge(collect_parent(subject, process), process); }});
  }
  if (subject.edge) {
    checks.push_back({"workers", [path = subject.edge->worker_socket, answers = process.answers] {
                        return judge(collect_worker_socket(path), answers);
                      }});
  }
}

std::vector<Check> checks_of(const Subject& subject, const Options& options) {
  Node node = subject.node();
  const ModelFacts models = collect_models(subject.data_dir);
  node.model_bytes =
      options.model_bytes.empty() ? models.largest_bytes : config::parse_bytes(options.model_bytes).value();
  node.sends_differences = models.has_trained;
  node.has_gpus = subject.edge && subject.edge->gpus != "none" && has_gpu_driver();
  const ProcessFacts process = subject.common() == nullptr ? ProcessFacts{} : collect_process(subject);
  std::vector<Check> checks = {{"settings", [subject] { return judge_settings(subject); }}};
  if (subject.role) {
    add_node_checks(checks, subject, node, process);
    checks.push_back({"certificate", [subject, node] { return judge(collect_certificates(subject), node); }});
  }
  if (!subject.data_dir.empty()) {
    checks.push_back({"disk", [subject, node] { return judge(collect_folder(subject.data_dir), node); }});
  }
  if (!options.token_file.empty()) {
    checks.push_back({"enrolment", [path = options.token_file] { return judge_token(path); }});
  }
  add_machine_checks(checks, subject, node, process);
  return checks;
}

// ---- what is printed ------------------------------------------------------------------------------------------------

std::size_t count(const Checkup& checkup, Severity severity) {
  std::size_t found = 0;
  for (const Checked& check : checkup.checks) {
    found += static_cast<std::size_t>(std::ranges::count(check.findings, severity, &Finding::severity));
  }
  return found;
}

void print_json(const Io& io, const Checkup& checkup, const Subject& subject) {
  json::array findings;
  for (const Checked& check : checkup.checks) {
    for (const Finding& finding : check.findings) {
      findings.push_back(json::object{{"check", check.name},
                                      {"severity", severity_name(finding.severity)},
                                      {"what", finding.what},
                                      {"do", finding.advice}});
    }
  }
  io.print(pretty(json::object{{"role", subject.role ? json::value(role_name(*subject.role)) : json::value()},
                               {"data_dir", subject.data_dir},
                               {"errors", count(checkup, Severity::kError)},
                               {"warnings", count(checkup, Severity::kWarning)},
                               {"findings", std::move(findings)}}));
}

void print_text(const Io& io, const Checkup& checkup) {
  const Terminal terminal = io.terminal();
  const auto coloured = [&terminal](Severity severity) {
    const std::string word = fmt::format("{:<8}", severity_name(severity));
    if (severity == Severity::kError) return terminal.red(word);
    return severity == Severity::kWarning ? terminal.yellow(word) : terminal.green(word);
  };
  for (const Checked& check : checkup.checks) {
    for (const Finding& finding : check.findings) {
      io.print(fmt::format("{} {:<12} {}\n", coloured(finding.severity), check.name, finding.what));
      if (!finding.advice.empty()) io.print(fmt::format("{:21} -> {}\n", "", finding.advice));
    }
  }
  const std::size_t errors = count(checkup, Severity::kError);
  const std::size_t warnings = count(checkup, Severity::kWarning);
  io.print(
      fmt::format("{} error{}, {} warning{}\n", errors, errors == 1 ? "" : "s", warnings, warnings == 1 ? "" : "s"));
}

int run(const Commands& commands, const Options& options, const std::vector<std::string>& flags) {
  const Subject subject = find_subject({.role = role_of(options.role),
                                        .config = options.config,
                                        .data_dir = options.data_dir,
                                        .flags = flags,
                                        .environment = commands.environment});
  if (!flags.empty() && !subject.role) {
    return fail(commands.io, "doctor",
                {Code::kInvalidArgument, flags.front() + " is a flag of a role: name the role first"}, kUsage);
  }
  const bool is_watched = ::isatty(::fileno(commands.io.err)) == 1 && !options.json;
  const auto waiting = [&](const std::vector<std::string>& names) {
    if (is_watched) commands.io.note(fmt::format("\r\033[Kchecking: {}", fmt::join(names, ", ")));
  };
  const Duration limit = std::chrono::milliseconds(config::parse_milliseconds(options.deadline).value());
  const Checkup checkup = check_all(checks_of(subject, options), limit, waiting);
  if (is_watched) commands.io.note("\r\033[K");
  if (options.json) {
    print_json(commands.io, checkup, subject);
  } else {
    print_text(commands.io, checkup);
  }
  const int status = count(checkup, Severity::kError) == 0 ? kDone : kFailed;
  if (!checkup.all_ended) std::_Exit(status);  // threads that hang must not see what they use go away
  return status;
}

}  // namespace
}  // namespace doctor

void add_doctor_command(CLI::App& app, Commands& commands) {
  const auto options = std::make_shared<doctor::Options>();
  CLI::App* command = app.add_subcommand("doctor", "what is wrong with this machine or node, and what to do about it");
  command->add_option("ROLE", options->role, "whose node; without it, what the data folder is of")
      ->check(one_of({"coordinator", "aggregator", "edge"}));
  command->add_option("--config", options->config, "the node's configuration (FLUVIAL_CONFIG)")->type_name("FILE");
  command->add_option("--data-dir", options->data_dir, "its data folder (FLUVIAL_DATA_DIR)")->type_name("PATH");
  command
      ->add_option("--token-file", options->token_file,
                   "before enrolment: also whether the enrolment port that this token names can be reached. The token "
                   "is not used")
      ->type_name("FILE");
  command
      ->add_option("--model-bytes", options->model_bytes,
                   "what memory and disk are held to (default: the largest "
                   "model in the folder)")
      ->type_name("SIZE")
      ->check(checked("a size such as 400MB or 2GiB", [](const std::string& text) -> Status {
        const auto size = config::parse_bytes(text);
        return size.ok() ? Status() : Status(size.error());
      }));
  command->add_option("--deadline", options->deadline, "how long all of it may take")
      ->type_name("TIME")
      ->capture_default_str()
      ->check(checked("a duration such as 20s or 2m", [](const std::string& text) -> Status {
        const auto limit = config::parse_milliseconds(text);
        return limit.ok() ? Status() : Status(limit.error());
      }));
  command->add_flag("--json", options->json, "print the findings as JSON");
  command->allow_extras();  // the role's own flags
  command->footer(
      "After ROLE it takes every flag of `fluvial ROLE`, too. Nothing is changed; a node that runs is asked, not "
      "disturbed.\n"
      "Status 0: no error (there may be warnings), 1: errors.\n"
      "Example:\n  fluvial doctor edge --config /var/lib/fluvial/edge.toml");
  command->callback([&commands, options, command] {
    commands.chosen = [&commands, options, flags = command->remaining()] {
      return doctor::run(commands, *options, flags);
    };
  });
}

}  // namespace fluvial::cli
