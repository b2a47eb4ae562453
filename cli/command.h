// What the command groups share: where they print, how they fail, and how a command line is read.
//
// A group declares its subcommands with add_..._commands(); the one that was typed puts its action into
// Commands::chosen, which run_command_line() carries out. Nothing is done while a line is being read.
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "cli/terminal.h"
#include "core/base/result.h"
#include "core/config/reader.h"
#include "core/store/file_system.h"

namespace fluvial::cli {

inline constexpr int kDone = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;  // a bad command line or bad configuration

struct Io {
  std::FILE* out = stdout;
  std::FILE* err = stderr;

  Terminal terminal() const { return Terminal::of(out); }
  void print(std::string_view text) const;  // to out, flushed: whoever reads a pipe sees each line at once
  void note(std::string_view text) const;   // to err
};

struct Commands {
  Io io;
  config::Environment environment;
  store::FileSystem& files;  // of the roles
  std::function<int()> chosen;
};

// "fluvial token create: MESSAGE" on err; returns the status.
int fail(const Io& io, std::string_view command, const Error& error, int status = kFailed);

// Checks of an option's text; the message of a bad one names flag, value and what was expected.
CLI::Validator a_round();  // of whose model it is: a number, latest, best or a label
CLI::Validator whole_number(std::uint64_t least, std::uint64_t most = std::numeric_limits<std::int64_t>::max());
CLI::Validator one_of(std::vector<std::string> words);
CLI::Validator checked(std::string expected, std::function<Status(const std::string&)> check);

// Reads and does what `arguments` (without the program's name) say. The exit status.
int run_command_line(const std::vector<std::string>& arguments, const Io& io, const config::Environment& environment,
                     store::FileSystem& files);

void add_role_commands(CLI::App& app, Commands& commands);
void add_token_commands(CLI::App& app, Commands& commands);
void add_authority_commands(CLI::App& app, Commands& commands);
void add_enroll_command(CLI::App& app, Commands& commands);
void add_status_command(CLI::App& app, Commands& commands);
void add_doctor_command(CLI::App& app, Commands& commands);
void add_node_commands(CLI::App& app, Commands& commands);
void add_operator_commands(CLI::App& app, Commands& commands);
void add_run_commands(CLI::App& app, Commands& commands);
void declare_run_export(CLI::App& run, Commands& commands);
void add_round_commands(CLI::App& app, Commands& commands);
void declare_round_trace(CLI::App& rounds, Commands& commands);
void declare_round_verify(CLI::App& rounds, Commands& commands);
void add_model_commands(CLI::App& app, Commands& commands);
void add_audit_commands(CLI::App& app, Commands& commands);
void add_backup_commands(CLI::App& app, Commands& commands);
void add_console_command(CLI::App& app, Commands& commands);
void add_demo_command(CLI::App& app, Commands& commands);
void add_local_command(CLI::App& app, Commands& commands);
void add_bench_commands(CLI::App& app, Commands& commands);
void add_simulate_command(CLI::App& app, Commands& commands);

}  // namespace fluvial::cli
