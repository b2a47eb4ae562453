// The parts of `fluvial bench`.
#pragma once

#include "cli/command.h"

namespace fluvial::cli {

void add_bench_tree_command(CLI::App& bench, Commands& commands);
void add_bench_asynchrony_command(CLI::App& bench, Commands& commands);
void add_bench_bound_command(CLI::App& bench, Commands& commands);
void add_bench_worker_command(CLI::App& app, Commands& commands);

}  // namespace fluvial::cli
