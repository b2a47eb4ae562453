#include "cli/command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "cli/completion.h"
#include "cli/health.h"
#include "core/store/model_book.h"
#include "core/tree/version.h"

namespace fluvial::cli {
namespace {

constexpr const char* kStartHere = R"(Start here:
  fluvial demo                            a whole federation on this machine, with real data
On a machine of your own:
  fluvial coordinator --data-dir /var/lib/fluvial
  fluvial token create --role site --name hospital-a --region eu-west
  fluvial enroll --token-file token.txt --data-dir /var/lib/fluvial      (at the site)
  fluvial edge --config /var/lib/fluvial/edge.toml                       (at the site)
  fluvial run start plan.toml --model initial.safetensors --watch

When something is wrong:
  fluvial status                          runs, what they wait for, what is wrong, what to do

Exit status: 0 done, 1 failed, 2 wrong usage or configuration; commands that watch have more. `fluvial COMMAND --help`
explains each command.)";

std::string command_path(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? "fluvial" : command_path(*parent) + " " + app.get_name();
}

std::string help_of(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return app.help(parent == nullptr ? "" : command_path(*parent));
}

std::vector<std::string> names_of_subcommands(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App* s) { return !s->get_group().empty(); })) {
    names.push_back(sub->get_name());
  }
  return names;
}

CLI::App* find_subcommand(CLI::App& app, const std::string& name) {
  for (CLI::App* sub : app.get_subcommands([](CLI::App*) { return true; })) {
    if (sub->get_name() == name) return sub;
  }
  return nullptr;
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& known) {
  const std::string near = config::closest(word, known);
  return near.empty() ? "" : fmt::format(" (did you mean \"{}\"?)", near);
}

// The command that the line names, or the error of the first word that names none.
Result<CLI::App*> resolve(CLI::App& root, const std::vector<std::string>& arguments) {
  CLI::App* app = &root;
  for (const std::string& word : arguments) {
    if (word.empty() || word[0] == '-') break;
    const std::vector<std::string> known = names_of_subcommands(*app);
    CLI::App* sub = find_subcommand(*app, word);
    if (sub == nullptr) {
      if (known.empty()) break;  // a positional argument
      return Error{Code::kInvalidArgument,
                   fmt::format("{}: unknown command \"{}\"{}; expected one of: {}", command_path(*app), word,
                               did_you_mean(word, known), fmt::join(known, ", "))};
    }
    app = sub;
  }
  return app;
}

std::string unexpected_message(const CLI::App& app, const std::vector<std::string>& extras) {
  const auto flag = std::find_if(extras.begin(), extras.end(), [](const auto& word) { return word.starts_with("-"); });
  if (flag == extras.end()) return fmt::format("\"{}\" was not expected", extras.empty() ? "" : extras.front());
  std::vector<std::string> known;
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    for (const std::string& name : option->get_lnames()) known.push_back("--" + name);
  }
  const std::string name = flag->substr(0, flag->find('='));
  return fmt::format("unknown option {}{}", name, did_you_mean(name, known));
}

// CLI11 counts what an option requires and received.
std::string repeated_message(const CLI::App& app) {
  for (const CLI::Option* option : app.get_options([](const CLI::Option*) { return true; })) {
    const bool takes_one = option->get_items_expected_max() == 1;
    if (!takes_one || option->count() < 2) continue;
    return fmt::format("{} is there {} times; give it once", option->get_name(), option->count());
  }
  return "";
}

std::string joined_lines(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text.substr(0, text.find_last_not_of(' ') + 1);
}

void declare_all(CLI::App& app, Commands& commands) {
  app.set_version_flag("--version", std::string("fluvial ") + tree::kVersion, "print the version and exit");
  app.get_formatter()->column_width(34);
  app.require_subcommand(0, 1);  // a word behind the first command is never a command beside it: fluvial doctor edge
  add_demo_command(app, commands);
  add_local_command(app, commands);
  add_role_commands(app, commands);
  add_enroll_command(app, commands);
  add_token_commands(app, commands);
  add_authority_commands(app, commands);
  add_health_command(app, commands);
  add_doctor_command(app, commands);
  add_status_command(app, commands);
  add_node_commands(app, commands);
  add_operator_commands(app, commands);
  add_run_commands(app, commands);
  add_round_commands(app, commands);
  add_model_commands(app, commands);
  add_console_command(app, commands);
  add_audit_commands(app, commands);
  add_backup_commands(app, commands);
  add_bench_commands(app, commands);
  add_simulate_command(app, commands);
  add_completion_command(app, commands);
  app.footer(kStartHere);  // last: a command takes over the footer that its parent has when it is added
}

}  // namespace

void Io::print(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), out);
  std::fflush(out);
}

void Io::note(std::string_view text) const {
  std::fwrite(text.data(), 1, text.size(), err);
  std::fflush(err);
}

int fail(const Io& io, std::string_view command, const Error& error, int status) {
  io.note(fmt::format("fluvial {}: {}\n", command, error.message));
  return status;
}

CLI::Validator checked(std::string expected, std::function<Status(const std::string&)> check) {
  return CLI::Validator(
      [expected, check = std::move(check)](std::string& text) -> std::string {
        const Status status = check(text);
        return status.ok() ? "" : fmt::format("\"{}\": expected {}", text, expected);
      },
      "");
}

CLI::Validator a_round() {
  return checked("a round's number, latest, best or a label", [](const std::string& text) -> Status {
    const bool digits = !text.empty() && text.find_first_not_of("0123456789") == std::string::npos;
    if (digits || text == "latest" || text == "best") return {};
    return store::check_label(text);
  });
}

CLI::Validator whole_number(std::uint64_t least, std::uint64_t most) {
  const bool bounded = most != static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  return checked(bounded ? fmt::format("a whole number from {} to {}", least, most)
                         : fmt::format("a whole number from {} on", least),
                 [least, most](const std::string& text) -> Status {
                   std::uint64_t value = 0;
                   const auto end = text.data() + text.size();
                   const auto parsed = std::from_chars(text.data(), end, value);
                   if (parsed.ec == std::errc() && parsed.ptr == end && value >= least && value <= most) return {};
                   return Error{Code::kInvalidArgument, "out of range"};
                 });
}

CLI::Validator one_of(std::vector<std::string> words) {
  const std::string expected = fmt::format("{}", fmt::join(words, " or "));
  CLI::Validator check = checked(expected, [words = std::move(words)](const std::string& text) -> Status {
    if (std::find(words.begin(), words.end(), text) != words.end()) return {};
    return Error{Code::kInvalidArgument, "unknown word"};
  });
  return check.name(expected);  // for completion.cc: nobody else sees it
}

int run_command_line(const std::vector<std::string>& arguments, const Io& io, const config::Environment& environment,
                     store::FileSystem& files) {
  CLI::App app(
      "Fluvial: federated and hierarchical aggregation. Sites train on their own data; their updates flow up a\n"
      "tree of aggregators to one coordinator, and the new model flows back down.",
      "fluvial");
  Commands commands{.io = io, .environment = environment, .files = files, .chosen = {}};
  declare_all(app, commands);
  const auto command = resolve(app, arguments);
  if (!command.ok()) {
    io.note(command.error().message + "\n");
    return kUsage;
  }
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    io.print(help_of(**command));
    return kDone;
  } catch (const CLI::CallForVersion&) {
    io.print(fmt::format("fluvial {}\n", tree::kVersion));
    return kDone;
  } catch (const CLI::ExtrasError&) {
    io.note(fmt::format("{}: {}; see {} --help\n", command_path(**command),
                        unexpected_message(**command, app.remaining(true)), command_path(**command)));
    return kUsage;
  } catch (const CLI::ParseError& error) {
    const std::string repeated = repeated_message(**command);
    io.note(fmt::format("{}: {}; see {} --help\n", command_path(**command),
                        repeated.empty() ? joined_lines(error.what()) : repeated, command_path(**command)));
    return kUsage;
  }
  if (!commands.chosen) {
    io.note(help_of(**command));
    return kUsage;
  }
  return commands.chosen();
}

}  // namespace fluvial::cli
