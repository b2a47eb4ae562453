// What a chaos run is asked for.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/local_federation.h"
#include "core/round/plan.h"
#include "core/round/schema.h"
#include "tests/chaos/faults.h"

namespace fluvial::chaos {

struct Options {
  std::uint64_t seed = 0;
  std::uint64_t seconds = 0;  // faults go on at least this long,
  std::uint64_t rounds = 0;   // and until this many rounds are committed
  std::uint64_t sites = 6;
  std::uint64_t aggregators = 2;  // of the lowest tier; one a tier above it
  std::uint64_t tiers = 2;
  std::uint64_t params = 50'000;
  std::string codec;               // of every run; "": another each time
  std::string optimizer;           // likewise
  std::uint64_t run_seconds = 20;  // of faults, then the next run begins
  std::uint64_t gap_max_s = 0;
  bool defaults = false;  // of settings and plan, instead of short times
  int pace = 1;           // of the faults
  std::string executable = FLUVIAL_CHAOS_NODE;
  std::vector<std::string> faults;  // their kinds by name, each as often as it is likely
  std::vector<std::string> roles = {"coordinator", "aggregator", "site"};  // that are disturbed
  std::string json;
  std::string keep;
};

// Reads the command line. `status` is what to exit with when nothing is to be run: --help, or a line that was wrong.
struct Parsed {
  Options options;
  bool run = false;
  int status = 0;
};
Parsed parse(const std::vector<std::string>& arguments);

int fail(const cli::Io& io, const Error& error, int status);  // says so in one line; the status

cli::FederationShape shape_of(const Options& options);  // but for what surrounds it (chaos.cc)
std::vector<FaultKind> kinds_of(const Options& options);
round::Schema schema_of(const Options& options);  // several tensors, integer ones among them
// Of the n-th run, from 0: codec, optimizer, quorum and chunks as the seed says, where they are not given.
round::Plan plan_of(const Options& options, std::uint64_t n);
// Whether it begins with the last model of the one before and with what the sites have left unspent.
bool continues(const Options& options, std::uint64_t n);

}  // namespace fluvial::chaos
