#include "cli/doctor/checkup.h"

#include <fmt/format.h>

#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

namespace fluvial::cli::doctor {
namespace {

// Shared with threads that may outlive the checkup.
struct State {
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::optional<Findings>> findings;
};

Findings run_safely(const Check& check) {
  try {
    return check.run();
  } catch (const std::exception& error) {
    return {{Severity::kError, fmt::format("the check itself failed: {}", error.what()), "please report this"}};
  }
}

std::vector<std::string> names_of_rest(const std::vector<std::string>& names, const State& state) {
  std::vector<std::string> rest;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!state.findings[i]) rest.push_back(names[i]);
  }
  return rest;
}

}  // namespace

Checkup check_all(std::vector<Check> checks, Duration limit,
                  const std::function<void(const std::vector<std::string>& names)>& waiting) {
  const auto state = std::make_shared<State>();
  state->findings.resize(checks.size());
  std::vector<std::string> names;
  for (std::size_t i = 0; i < checks.size(); ++i) {
    names.push_back(checks[i].name);
    std::thread([state, i, check = std::move(checks[i])] {
      Findings findings = run_safely(check);
      const std::lock_guard lock(state->mutex);
      state->findings[i] = std::move(findings);
      state->changed.notify_all();
    }).detach();
  }
  std::unique_lock lock(state->mutex);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
  std::vector<std::string> rest = names_of_rest(names, *state);
  while (!rest.empty() && std::chrono::steady_clock::now() < end) {
    waiting(rest);
    state->changed.wait_until(lock, end);
    rest = names_of_rest(names, *state);
  }
  Checkup checkup{.all_ended = rest.empty()};
  for (std::size_t i = 0; i < names.size(); ++i) {
    Findings late = {
        {Severity::kError,
         fmt::format("not ended within {} s", std::chrono::duration_cast<std::chrono::seconds>(limit).count()),
         "a disk, a driver or a name server that hangs? --deadline gives it longer"}};
    checkup.checks.push_back({std::move(names[i]), state->findings[i] ? *state->findings[i] : std::move(late)});
  }
  return checkup;
}

}  // namespace fluvial::cli::doctor
