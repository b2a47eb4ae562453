// The federation among the fixtures of a version (tests/upgrade): what its recorder and the test that starts it share.
#pragma once

#include <fmt/format.h>

#include <fstream>
#include <string>

#include "core/base/testing.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {

inline constexpr const char* kRecordedFolder = "@FOLDER@";
inline constexpr std::uint64_t kRecordedRun = 1;
inline constexpr std::uint64_t kRecordedRounds = 3;  // committed; another one is open

// With residuals at the sites and a state of the server optimizer.
inline round::Plan recorded_plan(round::Plan plan) {
  plan.name = "recorded";
  plan.rounds = 6;
  plan.models_kept = 7;
  plan.codec = "int8";
  plan.optimizer = round::ServerOptimizer::of(round::Optimizer::kFedAdam);
  plan.hard_deadline = std::chrono::seconds(120);
  return plan;
}

inline void replace_in_file(const std::string& path, const std::string& old, const std::string& with) {
  std::string text = text_of_file(path);
  for (std::size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + with.size())) {
    text.replace(at, old.size(), with);
  }
  std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
}

// What the admin API says of committed rounds, as far as it may never change.
inline std::string rounds_text(const cli::json::array& rounds) {
  std::string text;
  for (const cli::json::value& round : rounds) {
    text += fmt::format("round {} model {} weight {}\n", cli::count_member(round, "round"),
                        cli::text_member(round, "model_sha256"), cli::count_member(round, "weight"));
    for (const cli::json::value& one : cli::array_member(round, "contributors")) {
      text += fmt::format("contributor {} weight {} digest {}\n", cli::text_member(one, "name"),
                          cli::count_member(one, "weight"), cli::text_member(one, "digest"));
    }
  }
  return text;
}

}  // namespace fluvial::integration
