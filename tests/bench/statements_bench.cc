// What signatures cost a round: the coordinator signs its opening, its commit and an outcome for each site, and
// verifies each site's contribution; a site verifies three statements and signs one. Processor time of one thread.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "core/identity/signature.h"
#include "core/tree/orders.h"
#include "core/wire/statements.h"

namespace fluvial::wire {
namespace {

constexpr int kTimes = 15;
constexpr round::HistoryId kHistory{7};

template <typename T>
T must(Result<T> result) {
  if (result.ok()) return std::move(*result);
  std::fprintf(stderr, "statements_bench: %s\n", result.error().to_string().c_str());
  std::exit(1);
}

double seconds_of_processor() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The least of several: what the work needs, whatever else the machine does.
double least_ms(const std::function<void()>& body) {
  double least = 1e9;
  for (int i = 0; i < kTimes; ++i) {
    const double begun = seconds_of_processor();
    body();
    least = std::min(least, 1e3 * (seconds_of_processor() - begun));
  }
  return least;
}

struct Round {
  Opening opening;
  std::vector<SiteId> sites;
  std::vector<Decided> outcomes;
  std::vector<round::Contribution> contributions;
};

Round round_of(std::uint32_t sites, const identity::PrivateKey& key) {
  Round round;
  round.opening.run = RunId(1);
  round.opening.round = RoundId(9);
  round.opening.base = {RunId(1), ModelVersion(8), Digest{}, 4'000'000};
  round.opening.plan.name = "bench";
  round.opening.value_count = 1'000'000;
  for (std::uint32_t i = 1; i <= sites; ++i) {
    round.sites.emplace_back(i);
    round.outcomes.push_back({RunId(1), RoundId(9), SiteId(i), round::Outcome::kCounted, Digest{}});
    round::Contribution given{SiteId(i), Epoch(1), 100, Digest{}, 0, {}, Incarnation(1), 9};
    const std::string body = contribution_body(RunId(1), RoundId(9), Digest{}, given);
    given.signature = must(identity::sign(key, kContributionKind, as_byte_span(body)));
    round.contributions.push_back(given);
  }
  return round;
}

void sign(const identity::PrivateKey& key, std::string_view kind, const std::string& body) {
  must(identity::sign(key, kind, as_byte_span(body)));
}

void measure(std::uint32_t sites) {
  const identity::PrivateKey key = must(identity::PrivateKey::generate());
  const identity::PublicKey reader = identity::PublicKey::of(key);
  const Round round = round_of(sites, key);
  const std::string opening = opening_body(round.opening, round.sites, kHistory);
  const double open_ms = least_ms([&] { sign(key, kOpeningKind, opening_body(round.opening, round.sites, kHistory)); });
  const double outcomes_ms = least_ms([&] {
    for (const Decided& one : round.outcomes) sign(key, kOutcomeKind, outcome_body(one, kHistory));
  });
  const double verify_ms = least_ms([&] {
    for (const round::Contribution& one : round.contributions) {
      if (!tree::check_author(reader, RunId(1), RoundId(9), Digest{}, one).ok()) std::exit(1);
    }
  });
  const Signature signature = must(identity::sign(key, kOpeningKind, as_byte_span(opening)));
  const double site_ms = least_ms([&] {
    if (!reader.verify(kOpeningKind, as_byte_span(opening), signature).ok()) std::exit(1);
  });
  std::printf(
      "%u sites: an opening of %zu bytes; the coordinator signs it in %.3f ms, all outcomes in %.1f ms, and verifies "
      "all contributions in %.1f ms; a site verifies the opening in %.3f ms\n",
      sites, opening.size(), open_ms, outcomes_ms, verify_ms, site_ms);
}

}  // namespace
}  // namespace fluvial::wire

int main() {
  for (const std::uint32_t sites : {100U, 1000U}) fluvial::wire::measure(sites);
}
