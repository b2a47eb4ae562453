#pragma once

#include "cli/command.h"

namespace fluvial::cli {

void add_health_command(CLI::App& app, Commands& commands);

}  // namespace fluvial::cli
