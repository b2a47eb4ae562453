// fluvial completion: scripts for bash, zsh and fish.
#include "cli/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <iterator>
#include <map>
#include <memory>
#include <optional>

namespace fluvial::cli {
namespace {

enum class Value { kNone, kText, kPath, kWord };  // what follows an option

struct Flag {
  std::string name;  // with its dashes
  std::string help;
  Value value = Value::kNone;
  std::vector<std::string> words;  // of kWord
};

struct CommandNode {
  std::string path;                                           // "fluvial token create"
  std::vector<std::pair<std::string, std::string>> commands;  // name and help
  std::vector<Flag> flags;
  bool takes_path = false;               // a positional argument is one
  std::vector<std::string> positionals;  // the words that it may be, where they are few
};

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  return text;
}

// "debug, info, warn, error or off" is a choice among words; what is no plain word ("cuda:N,...") is left out.
std::vector<std::string> words_of(std::string text) {
  if (text.find(" or ") == std::string::npos) return {};
  for (std::size_t at = 0; (at = text.find(" or ")) != std::string::npos;) text.replace(at, 4, ", ");
  std::vector<std::string> words;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find(", ", at), text.size());
    const std::string word = text.substr(at, end - at);
    if (word.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_-") == std::string::npos) words.push_back(word);
    at = end + 2;
  }
  return words;
}

std::string check_name(const CLI::Option& option) {
  try {
    return const_cast<CLI::Option&>(option).get_validator(0)->get_name();  // NOLINT(*-const-cast): it only looks
  } catch (const CLI::OptionNotFound&) {
    return "";
  }
}

bool is_path(const std::string& type) {
  const std::string kind = lower(type);
  return kind == "path" || kind == "file" || kind == "dir" || kind.ends_with(".toml") || kind.ends_with(".safetensors");
}

std::vector<std::string> choices_of(const CLI::Option& option) {
  std::vector<std::string> words = words_of(option.get_type_name());
  return words.empty() ? words_of(check_name(option)) : words;
}

void read_option(const CLI::Option& option, CommandNode& node) {
  const std::vector<std::string> words = choices_of(option);
  if (option.get_positional()) {
    node.takes_path = node.takes_path || is_path(option.get_type_name());
    node.positionals.insert(node.positionals.end(), words.begin(), words.end());
  }
  Flag flag{.name = "", .help = option.get_description(), .value = Value::kNone, .words = words};
  std::replace(flag.help.begin(), flag.help.end(), '\n', ' ');
  if (option.get_items_expected_max() > 0) {
    flag.value = !words.empty() ? Value::kWord : is_path(option.get_type_name()) ? Value::kPath : Value::kText;
  }
  for (const std::string& name : option.get_lnames()) {
    flag.name = "--" + name;
    node.flags.push_back(flag);
  }
}

void read_app(const CLI::App& app, const std::string& path, std::vector<CommandNode>& nodes) {
  CommandNode node{.path = path, .commands = {}, .flags = {}, .takes_path = false, .positionals = {}};
  for (const CLI::Option* option : app.get_options([](const CLI::Option* o) { return !o->get_group().empty(); })) {
    read_option(*option, node);
  }
  const auto visible = app.get_subcommands([](const CLI::App* sub) { return !sub->get_group().empty(); });
  for (const CLI::App* sub : visible) {
    std::string help = sub->get_description();
    std::replace(help.begin(), help.end(), '\n', ' ');
    node.commands.emplace_back(sub->get_name(), std::move(help));
  }
  nodes.push_back(std::move(node));
  for (const CLI::App* sub : visible) read_app(*sub, path + " " + sub->get_name(), nodes);
}

// Between single quotes; `inner` is what the shell takes for one inside them.
std::string shell_quoted(std::string_view text, std::string_view inner = "'\\''") {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'') {
      out += inner;
    } else {
      out += c;
    }
  }
  return out + "'";
}

std::string names_of(const CommandNode& node) {
  std::vector<std::string> names = node.positionals;
  for (const auto& command : node.commands) names.push_back(command.first);
  for (const Flag& flag : node.flags) names.push_back(flag.name);
  return fmt::format("{}", fmt::join(names, " "));
}

// The patterns of all commands behind another: "'fluvial token create'|'fluvial token list'".
std::string all_paths(const std::vector<CommandNode>& nodes) {
  std::vector<std::string> paths;
  for (std::size_t i = 1; i < nodes.size(); ++i) paths.push_back(shell_quoted(nodes[i].path));
  return fmt::format("{}", fmt::join(paths, "|"));
}

// A line of a case statement for every option that takes a value; those that are answered alike stand in one.
std::string value_cases(const std::vector<CommandNode>& nodes, std::string_view path_action,
                        const std::function<std::string(const std::string& words)>& word_action) {
  std::map<std::string, std::vector<std::string>> patterns;  // by what is done
  for (const CommandNode& node : nodes) {
    for (const Flag& flag : node.flags) {
      if (flag.value == Value::kNone) continue;
      std::string action(flag.value == Value::kPath ? path_action : ":");
      if (flag.value == Value::kWord) action = word_action(fmt::format("{}", fmt::join(flag.words, " ")));
      patterns[action].push_back(shell_quoted(node.path + ":" + flag.name));
    }
  }
  std::string text;
  for (const auto& [action, alike] : patterns) {
    text += fmt::format("    {}) {}; return ;;\n", fmt::join(alike, "|"), action);
  }
  return text;
}

std::string bash_script(const std::vector<CommandNode>& nodes) {
  std::string cases;
  std::vector<std::string> takers;
  for (const CommandNode& node : nodes) {
    cases += fmt::format("    {}) words={} ;;\n", shell_quoted(node.path), shell_quoted(names_of(node)));
    if (node.takes_path) takers.push_back(shell_quoted(node.path));
  }
  const std::string values = value_cases(
      nodes, "_fluvial_paths", [](const std::string& words) { return "_fluvial_words " + shell_quoted(words); });
  return fmt::format(R"(# bash completion for fluvial: made by `fluvial completion bash`.
_fluvial_words() {{ mapfile -t COMPREPLY < <(compgen -W "$1" -- "$current"); }}
_fluvial_paths() {{
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -- "$current")
}}
_fluvial() {{
  local current=${{COMP_WORDS[COMP_CWORD]}} previous=${{COMP_WORDS[COMP_CWORD - 1]}} at=fluvial words="" i
  for ((i = 1; i < COMP_CWORD; ++i)); do
    case "$at ${{COMP_WORDS[i]}}" in
      {}) at="$at ${{COMP_WORDS[i]}}" ;;
    esac
  done
  if [ "$current" = = ]; then current=""; previous="= $previous"; fi
  case $previous in
    =) previous=${{COMP_WORDS[COMP_CWORD - 2]}} ;;
    "= "*) previous=${{previous#= }} ;;
  esac
  COMPREPLY=()
  case "$at:$previous" in
{}  esac
  case "$at" in
{}  esac
  case "$at" in
    {}) case $current in -*) ;; *) _fluvial_paths; return ;; esac ;;
  esac
  _fluvial_words "$words"
}}
complete -F _fluvial fluvial
)",
                     all_paths(nodes), values, cases, fmt::join(takers, "|"));
}

// "'name:help'" for zsh's _describe.
std::string zsh_entry(std::string_view name, std::string_view help) {
  return shell_quoted(fmt::format("{}:{}", name, help));
}

std::string zsh_script(const std::vector<CommandNode>& nodes) {
  std::string cases;
  std::vector<std::string> takers;
  for (const CommandNode& node : nodes) {
    std::vector<std::string> commands;
    std::vector<std::string> options;
    for (const auto& [name, help] : node.commands) commands.push_back(zsh_entry(name, help));
    for (const std::string& word : node.positionals) commands.push_back(zsh_entry(word, ""));
    for (const Flag& flag : node.flags) options.push_back(zsh_entry(flag.name, flag.help));
    cases += fmt::format("    {})\n      commands=({})\n      options=({}) ;;\n", shell_quoted(node.path),
                         fmt::join(commands, "\n        "), fmt::join(options, "\n        "));
    if (node.takes_path) takers.push_back(shell_quoted(node.path));
  }
  const std::string values =
      value_cases(nodes, "_files", [](const std::string& words) { return "compadd -- " + words; });
  return fmt::format(R"(#compdef fluvial
# zsh completion for fluvial: made by `fluvial completion zsh`.
_fluvial() {{
  local at=fluvial i previous=$words[CURRENT-1]
  local -a commands options
  for ((i = 2; i < CURRENT; ++i)); do
    case "$at $words[i]" in
      ({}) at="$at $words[i]" ;;
    esac
  done
  case "$at:$previous" in
{}  esac
  case "$at" in
{}  esac
  if [[ $words[CURRENT] != -* ]]; then
    case "$at" in
      ({}) _files; return ;;
    esac
    if (( $#commands )); then _describe command commands; return; fi
  fi
  _describe -o option options
}}
if [ "$funcstack[1]" = _fluvial ]; then _fluvial "$@"; else compdef _fluvial fluvial; fi
)",
                     all_paths(nodes), values, cases, fmt::join(takers, "|"));
}

std::string fish_quoted(const std::string& text) {
  std::string escaped;
  for (const char c : text) escaped += c == '\\' ? std::string("\\\\") : std::string(1, c);
  return shell_quoted(escaped, "\\'");
}

std::string fish_script(const std::vector<CommandNode>& nodes) {
  std::vector<std::string> paths;
  for (std::size_t i = 1; i < nodes.size(); ++i) paths.push_back(fish_quoted(nodes[i].path));
  std::string text = fmt::format(R"(# fish completion for fluvial: made by `fluvial completion fish`.
function __fluvial_at
    set -l at fluvial
    for word in (commandline -opc)[2..-1]
        if contains -- "$at $word" {}
            set at "$at $word"
        end
    end
    test "$at" = "$argv[1]"
end
complete -c fluvial -f
)",
                                 fmt::join(paths, " "));
  for (const CommandNode& node : nodes) {
    const std::string head = fmt::format("complete -c fluvial -n \"__fluvial_at {}\"", fish_quoted(node.path));
    for (const auto& [name, help] : node.commands) {
      text += fmt::format("{} -a {} -d {}\n", head, name, fish_quoted(help));
    }
    for (const std::string& word : node.positionals) text += fmt::format("{} -a {}\n", head, word);
    if (node.takes_path) text += head + " -F\n";
    for (const Flag& flag : node.flags) {
      std::string value;
      if (flag.value == Value::kText) value = " -x";
      if (flag.value == Value::kPath) value = " -r -F";
      if (flag.value == Value::kWord) value = " -x -a " + fish_quoted(fmt::format("{}", fmt::join(flag.words, " ")));
      text += fmt::format("{} -l {}{} -d {}\n", head, flag.name.substr(2), value, fish_quoted(flag.help));
    }
  }
  return text;
}

std::optional<Shell> shell_from_name(std::string_view name) {
  if (name == "bash") return Shell::kBash;
  if (name == "zsh") return Shell::kZsh;
  if (name == "fish") return Shell::kFish;
  return std::nullopt;
}

}  // namespace

std::string completion_script(const CLI::App& app, Shell shell) {
  std::vector<CommandNode> nodes;
  read_app(app, "fluvial", nodes);
  switch (shell) {
    case Shell::kBash: return bash_script(nodes);
    case Shell::kZsh: return zsh_script(nodes);
    case Shell::kFish: break;
  }
  return fish_script(nodes);
}

void add_completion_command(CLI::App& app, Commands& commands) {
  const auto shell = std::make_shared<std::string>();
  CLI::App* completion = app.add_subcommand("completion", "what a shell needs to complete these commands");
  completion->add_option("SHELL", *shell, "bash, zsh or fish")
      ->type_name("NAME")
      ->required()
      ->check(one_of({"bash", "zsh", "fish"}));
  completion->footer(
      "Packages install it. Without one:\n"
      "  fluvial completion bash > ~/.local/share/bash-completion/completions/fluvial\n"
      "  fluvial completion zsh > ~/.zfunc/_fluvial      (a folder of $fpath)\n"
      "  fluvial completion fish > ~/.config/fish/completions/fluvial.fish");
  completion->callback([&app, &commands, shell] {
    commands.chosen = [&app, &commands, shell] {
      commands.io.print(completion_script(app, shell_from_name(*shell).value()));
      return kDone;
    };
  });
}

}  // namespace fluvial::cli
