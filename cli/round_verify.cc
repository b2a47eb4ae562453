// fluvial rounds verify: who signed what was committed.
#include <fmt/format.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/table.h"

namespace fluvial::cli {
namespace {

struct Range {
  std::uint64_t first = 1;
  std::optional<std::uint64_t> last;  // none: all of them
};

std::optional<std::uint64_t> number_of(const std::string& text) {
  const bool digits = !text.empty() && text.size() <= 18 && text.find_first_not_of("0123456789") == std::string::npos;
  return digits && text != "0" ? std::optional<std::uint64_t>(std::stoull(text)) : std::nullopt;
}

// "", "17" or "5..17".
Result<Range> range_of(const std::string& text) {
  if (text.empty()) return Range{};
  const std::size_t dots = text.find("..");
  const auto from = number_of(text.substr(0, dots));
  const auto to = dots == std::string::npos ? from : number_of(text.substr(dots + 2));
  if (from && to && *from <= *to) return Range{*from, *to};
  return Error{Code::kInvalidArgument, fmt::format("'{}': expected a round's number, or A..B", text)};
}

Status check_range(const std::string& text) {
  const Result<Range> range = range_of(text);
  return range.ok() ? Status{} : Status{range.error()};
}

struct RoundVerifyOptions : AdminOptions {
  std::uint64_t run = 0;  // 0: the latest
  std::string rounds;

  std::string target(std::uint64_t first, const std::optional<std::uint64_t>& last, std::uint64_t of_run) const {
    std::string target = fmt::format("/v1/rounds/verify?from={}", first);
    if (last) target += fmt::format("&limit={}", *last - first + 1);
    return of_run == 0 ? target : fmt::format("{}&run={}", target, of_run);
  }
};

std::string verdict_of(const json::value& round) {
  const json::array& faults = array_member(round, "faults");
  if (!faults.empty()) {
    const auto* const first = faults[0].if_string();
    return fmt::format("{} wrong: {}", faults.size(), first == nullptr ? "" : std::string(*first));
  }
  const auto* const checked = member(round, "checked").if_bool();
  return checked != nullptr && !*checked ? "not checked: the round before is pruned" : "holds";
}

// The coordinator checks some rounds a request.
Result<json::value> verified(const RoundVerifyOptions& options) {
  FLUVIAL_ASSIGN(Range left, range_of(options.rounds));
  FLUVIAL_ASSIGN(json::value all, options.client().get(options.target(left.first, left.last, options.run)));
  const std::uint64_t run = count_member(all, "run");  // the latest may be another one soon
  json::value page = all;
  while (!array_member(page, "rounds").empty()) {
    left.first = count_member(array_member(page, "rounds").back(), "round") + 1;
    if (left.last && left.first > *left.last) break;
    FLUVIAL_ASSIGN(page, options.client().get(options.target(left.first, left.last, run)));
    json::array& rounds = all.as_object()["rounds"].as_array();
    for (const json::value& round : array_member(page, "rounds")) rounds.push_back(round);
  }
  return all;
}

int verify(const Io& io, const RoundVerifyOptions& options) {
  const Result<json::value> answer = verified(options);
  if (!answer.ok()) return fail(io, "rounds verify", answer.error());
  const json::array& rounds = array_member(*answer, "rounds");
  std::size_t wrong = 0;
  Table table({{"ROUND", Align::kRight}, {"SIGNED", Align::kRight}, {"COMMIT", Align::kLeft}, {"VERDICT"}});
  for (const json::value& round : rounds) {
    wrong += array_member(round, "faults").empty() ? 0 : 1;
    const auto* const commit = member(round, "commit_signed").if_bool();
    table.add({std::to_string(count_member(round, "round")),
               fmt::format("{}/{}", count_member(round, "signed"), count_member(round, "contributors")),
               commit != nullptr && *commit ? "signed" : "not signed", verdict_of(round)});
  }
  if (rounds.empty()) {
    return fail(io, "rounds verify",
                {Code::kNotFound, "no such round is in the coordinator's journal; see: fluvial rounds list"});
  }
  io.print(options.json ? pretty(*answer) : table.render(io.terminal()));
  if (wrong == 0) return kDone;
  io.note(fmt::format("{} of {} rounds are not what was signed\n", wrong, rounds.size()));
  return kFailed;
}

}  // namespace

void declare_round_verify(CLI::App& rounds, Commands& commands) {
  const auto options = std::make_shared<RoundVerifyOptions>();
  CLI::App* app = rounds.add_subcommand("verify", "that committed rounds are what sites and coordinator signed");
  app->add_option("ROUNDS", options->rounds, "a round's number, or A..B (default: all)")
      ->check(checked("a round's number, or A..B", check_range));
  app->add_option("--run", options->run, "the run's number (default: the latest)")
      ->type_name("RUN")
      ->check(whole_number(1));
  add_admin_options(*app, *options);
  add_json_flag(*app, *options);
  app->footer(
      "From the coordinator's journal alone: each contribution against its site's signature and certified key, the\n"
      "weights, and the commit against the coordinator's signature. Members of versions up to 0.2 sign nothing.\n"
      "The exit status is 1 when something does not hold.");
  app->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return verify(commands.io, *options); }; });
}

}  // namespace fluvial::cli
