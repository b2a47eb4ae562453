// How long a revoked member's session goes on, at each tier: ./dev bench revocation. A federation of real processes on
// loopback that trains; the members that are revoked are threads of this process.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>

#include "cli/bench_update.h"
#include "core/config/settings.h"
#include "tests/attack/bench_federation.h"
#include "tests/attack/member.h"

namespace fluvial::attack {
namespace {

using Clock = std::chrono::steady_clock;

struct Options {
  std::uint64_t revocations = 20;
  std::string json;
};

// From the command's being sent to the session's end, and how many rounds were committed meanwhile.
struct Effect {
  double ms = 0;
  std::uint64_t rounds = 0;
};

class Bench {
 public:
  explicit Bench(Options options)
      : options_(std::move(options)),
        federation_({.sites = 2, .aggregators = 2, .tiers = 2, .weight_max = cli::kBenchWeightMax}) {}

  Status run() {
    FLUVIAL_TRY(federation_.start(std::chrono::seconds(1)));  // nobody waits long for the members of ours
    FLUVIAL_ASSIGN(const cli::json::value status, federation_.admin().get("/v1/status"));
    member_port_ = static_cast<std::uint16_t>(cli::count_member(status, "member_port"));
    FLUVIAL_ASSIGN(const auto tiers, parents());
    fmt::print("{:<20}{:>14}{:>12}{:>12}{:>12}\n", "parent", "revocations", "median ms", "most ms", "most rounds");
    cli::json::array rows;
    for (const auto& [parent, region] : tiers) {
      std::vector<Effect> effects;
      for (std::uint64_t i = 0; i < options_.revocations; ++i) {
        FLUVIAL_ASSIGN(const Effect effect, revoke_one(fmt::format("revoked-{}-{}", parent, i), parent, region));
        effects.push_back(effect);
      }
      rows.push_back(report(parent, effects));
    }
    if (options_.json.empty()) return {};
    return cli::write_text_file(options_.json, cli::pretty(rows));
  }

 private:
  // The coordinator, and the first aggregator of each tier; each with the region whose sites are its children.
  Result<std::vector<std::pair<std::string, std::string>>> parents() const {
    std::vector<std::pair<std::string, std::string>> found = {{"coordinator", ""}};
    FLUVIAL_ASSIGN(const cli::json::value listed, federation_.admin().get("/v1/nodes"));
    for (const char* name : {"aggregator-tier-1", "aggregator-1"}) {
      for (const cli::json::value& node : cli::array_member(listed, "nodes")) {
        if (cli::text_member(node, "name") == name) found.emplace_back(name, cli::text_member(node, "region"));
      }
    }
    return found;
  }

  Result<std::uint16_t> port_of(const std::string& parent) const {
    if (parent == "coordinator") return member_port_;
    FLUVIAL_ASSIGN(const cli::json::value listed, federation_.admin().get("/v1/nodes"));
    for (const cli::json::value& node : cli::array_member(listed, "nodes")) {
      if (cli::text_member(node, "name") != parent) continue;
      FLUVIAL_ASSIGN(const config::HostPort address, config::parse_host_port(cli::text_member(node, "advertise")));
      return address.port;
    }
    return Error{Code::kNotFound, parent + " is not listed"};
  }

  Result<Effect> revoke_one(const std::string& name, const std::string& parent, const std::string& region) {
    FLUVIAL_ASSIGN(
        const cli::json::value token,
        federation_.admin().post(
            "/v1/tokens", cli::json::object{{"role", "site"}, {"name", name}, {"region", region}, {"ttl_s", 600}}));
    FLUVIAL_ASSIGN(const tree::Enrolment member, enrol(cli::text_member(token, "token")));
    FLUVIAL_ASSIGN(const Leased lease, ask_lease(member.credentials, member_port_));
    const auto at = std::ranges::find(lease.parents, parent, &v1::Parent::name);
    if (at == lease.parents.end()) return Error{Code::kInternal, "the lease does not name " + parent};
    FLUVIAL_ASSIGN(const std::uint16_t port, port_of(parent));
    FLUVIAL_ASSIGN(Connection session,
                   join(member.credentials, lease, port, static_cast<std::size_t>(at - lease.parents.begin())));
    FLUVIAL_ASSIGN(const std::uint64_t before, federation_.committed());
    const auto begun = Clock::now();
    FLUVIAL_TRY(status_of(federation_.admin().post("/v1/nodes/" + name + "/revoke")));
    const std::optional<Error> ended = session.ending();
    const double ms = std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
    if (!ended) return Error{Code::kInternal, name + " was revoked, and its session goes on"};
    FLUVIAL_ASSIGN(const std::uint64_t after, federation_.committed());
    return Effect{ms, after - before};
  }

  static Status status_of(const Result<cli::json::value>& answer) {
    return answer.ok() ? Status() : Status(answer.error());
  }

  static cli::json::object report(const std::string& parent, std::vector<Effect> effects) {
    std::ranges::sort(effects, {}, &Effect::ms);
    const double median = effects[effects.size() / 2].ms;
    const std::uint64_t rounds = std::ranges::max(effects, {}, &Effect::rounds).rounds;
    fmt::print("{:<20}{:>14}{:>12.1f}{:>12.1f}{:>12}\n", parent, effects.size(), median, effects.back().ms, rounds);
    std::fflush(stdout);
    return {{"parent", parent},
            {"revocations", effects.size()},
            {"median_ms", median},
            {"most_ms", effects.back().ms},
            {"most_rounds", rounds}};
  }

  const Options options_;
  BenchFederation federation_;
  std::uint16_t member_port_ = 0;
};

}  // namespace
}  // namespace fluvial::attack

int main(int argc, char** argv) {
  using namespace fluvial::attack;
  CLI::App app("From a member's revocation to the end of its session, under the coordinator and under each tier",
               "revocation_bench");
  Options options;
  app.add_option("--revocations", options.revocations, "under each parent")->check(CLI::Range(1, 1'000));
  app.add_option("--json", options.json, "write the figures there as well");
  CLI11_PARSE(app, argc, argv);
  const fluvial::Status ran = Bench(std::move(options)).run();
  if (!ran.ok()) std::cerr << "revocation_bench: " << ran.error().message << "\n";
  return ran.ok() ? 0 : 1;
}
