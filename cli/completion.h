// What a shell needs to complete a command line of ours, read out of the declared commands.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <string_view>

#include "cli/command.h"

namespace fluvial::cli {

enum class Shell { kBash, kZsh, kFish };

// A script for the shell that completes `app`'s visible commands, their options, and the values of options that take
// one of a few words or a path.
std::string completion_script(const CLI::App& app, Shell shell);

void add_completion_command(CLI::App& app, Commands& commands);

}  // namespace fluvial::cli
