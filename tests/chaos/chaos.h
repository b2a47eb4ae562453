// One chaos run: a federation, faults, peace, the end; and what is held to on the way.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cli/command.h"
#include "cli/work_folder.h"
#include "tests/chaos/auditor.h"
#include "tests/chaos/disturber.h"
#include "tests/chaos/options.h"
#include "tests/chaos/person.h"
#include "tests/chaos/workers.h"

namespace fluvial::chaos {

struct Figures {
  double seconds = 0;        // of faults
  std::uint64_t rounds = 0;  // committed while they went on
  double healed_s = 0;       // from the last fault until two rounds held every site
};

struct GapShown {
  double seconds = 0;
  double out_seconds = 0;  // of these the coordinator was out
  std::uint64_t round = 0;
  std::uint64_t attempt = 0;
};

class Chaos {
 public:
  Chaos(const Options& options, const cli::Io& io, const cli::WorkFolder& folder);
  ~Chaos();
  Chaos(const Chaos&) = delete;
  Chaos& operator=(const Chaos&) = delete;

  // From the first process to the last check. An error says what did not hold.
  Status run();
  void print_report() const;
  cli::json::object to_json() const;
  // For a person who has to find out why: the last faults, what each role believes, the ends of the logs.
  std::string account() const;

 private:
  cli::FederationShape surrounded_shape();
  Status start();
  Status begin_run();
  Result<std::uint64_t> start_run(const round::Plan& plan);
  Status disturb();
  Status settle();
  Status rest();
  Status pause();
  Status stop_run();
  Status end();
  Status check_sites() const;
  Status is_well(const Progress& progress) const;
  template <typename Done>
  Status wait_until(const std::string& what, const Done& done);
  Result<bool> is_settled(const cli::LocalSite& site, const Progress& progress) const;
  void show(const Progress& progress, bool last);
  std::string beliefs() const;
  std::vector<GapShown> longest_gaps() const;
  struct Totals {
    std::uint64_t rounds = 0;
    std::uint64_t late = 0;
    std::uint64_t refused = 0;
    std::uint64_t between_passes = 0;
    std::map<std::uint64_t, std::uint64_t> by_attempts;
    std::map<std::string, std::uint64_t> counted;
  };
  Totals totals() const;

  const Options& options_;
  const cli::Io& io_;
  const cli::WorkFolder& folder_;
  std::map<std::string, std::unique_ptr<integration::TcpGate>> gates_;  // before each parent
  std::unique_ptr<cli::Supervisor> supervisor_;
  std::unique_ptr<cli::LocalFederation> federation_;
  std::unique_ptr<Workers> workers_;
  std::vector<std::unique_ptr<Auditor>> auditors_;  // of each run; those before the last are over
  Auditor* auditor_ = nullptr;                      // of the present one
  std::unique_ptr<Disturber> disturber_;
  std::unique_ptr<Person> person_;
  std::vector<cli::AuditSite> sites_;
  std::uint64_t run_ = 0;
  std::uint64_t rounds_before_ = 0;  // of the runs before the present one
  std::uint64_t paused_ = 0;         // by the person, in them
  std::uint64_t mended_ = 0;
  Figures figures_;
  std::chrono::steady_clock::time_point begun_;
  std::chrono::steady_clock::time_point shown_;
};

}  // namespace fluvial::chaos
