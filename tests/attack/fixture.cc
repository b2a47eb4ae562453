#include "tests/attack/fixture.h"

#include <fmt/format.h>

#include <fstream>
#include <sstream>

#include "core/net/connector.h"

namespace fluvial::attack {

using cli::json::object;
using cli::json::value;

namespace {

constexpr std::uint64_t kParams = 1'000;
constexpr std::chrono::seconds kRoundsLimit{40};  // an attack that stops rounds shows well before

}  // namespace

void AttackTest::start_held_run(std::uint64_t rounds) {
  gate_ = &hold_from(2);
  rounds_ = rounds;
  const std::size_t sites = federation_->sites().size();
  for (std::size_t i = 1; i <= sites; ++i) add_worker(i, gated(*gate_, i));
  run_ = start_run(plan(rounds), kParams);
  gate_->wait_arrival(2, sites);
}

void AttackTest::expect_rounds_go_on() {
  release();
  const auto done = cli::retry(kRoundsLimit, [&]() -> Result<bool> { return committed(run_).size() >= rounds_; });
  ASSERT_TRUE(done.ok() && *done) << "round " << committed(run_).size() + 1 << " of " << rounds_ << " does not end";
  for (const value& round : committed(run_)) {
    for (const cli::LocalSite& site : federation_->sites()) {
      EXPECT_TRUE(integration::names(round, "contributors", site.name)) << cli::pretty(round);
    }
  }
  expect_exact(run_, rounds_);
}

void AttackTest::expect_more_rounds(std::uint64_t more) {
  const std::size_t before = committed(run_).size();
  const auto done = cli::retry(kRoundsLimit, [&]() -> Result<bool> { return committed(run_).size() >= before + more; });
  EXPECT_TRUE(done.ok() && *done) << "no " << more << " rounds after round " << before;
}

std::uint16_t AttackTest::coordinator_port(const char* key) {
  std::uint16_t& port = ports_[key];
  if (port == 0) {
    port = static_cast<std::uint16_t>(cli::count_member(federation_->admin().get("/v1/status").value(), key));
  }
  return port;
}

std::uint16_t AttackTest::port_of(const std::string& aggregator) {
  const auto listed = federation_->admin().get("/v1/nodes");
  EXPECT_TRUE(listed.ok()) << listed.error().message;
  if (!listed.ok()) return 0;
  for (const value& node : cli::array_member(*listed, "nodes")) {
    if (cli::text_member(node, "name") != aggregator) continue;
    const auto address = config::parse_host_port(cli::text_member(node, "advertise"));
    if (address.ok()) return address->port;
  }
  ADD_FAILURE() << aggregator << " has no address";
  return 0;
}

std::string AttackTest::pin() { return cli::text_member(federation_->admin().get("/v1/status").value(), "pin"); }

identity::Credentials AttackTest::stolen_from(const std::string& folder) {
  return identity::load_credentials(folder + "/identity").value();
}

std::string AttackTest::new_token(const std::string& name, const std::string& role, const std::string& region) {
  const auto token = federation_->admin().post(
      "/v1/tokens", object{{"role", role}, {"name", name}, {"region", region}, {"ttl_s", 600}});
  EXPECT_TRUE(token.ok()) << token.error().message;
  return token.ok() ? cli::text_member(*token, "token") : "";
}

identity::Credentials AttackTest::enrolled(const std::string& name, const std::string& role,
                                           const std::string& region) {
  return enrol(new_token(name, role, region)).value().credentials;
}

void AttackTest::revoke(const std::string& name) {
  const auto revoked = federation_->admin().post("/v1/nodes/" + name + "/revoke");
  ASSERT_TRUE(revoked.ok()) << revoked.error().message;
}

Result<Leased> AttackTest::ask_lease(const identity::Credentials& credentials, const std::string& advertise,
                                     const std::string& from) {
  return attack::ask_lease(credentials, coordinator_port(), advertise, from);
}

Result<Connection> AttackTest::join_coordinator(const identity::Credentials& credentials,
                                                const std::string& advertise) {
  return attack::join_coordinator(credentials, coordinator_port(), advertise);
}

double AttackTest::metric(const std::string& node, const std::string& name, const std::string& label) {
  const Result<std::string> page = federation_->metrics_of(node);
  EXPECT_TRUE(page.ok()) << node << ": " << page.error().message;
  if (!page.ok()) return -1;
  double sum = 0;
  std::istringstream lines(*page);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t name_end = line.find_first_of("{ ");
    if (line.starts_with('#') || name_end == std::string::npos || !line.substr(0, name_end).ends_with(name)) continue;
    if (line.find(label, name_end) != std::string::npos) sum += std::stod(line.substr(line.rfind(' ')));
  }
  return sum;
}

std::uint64_t AttackTest::resident_bytes(const std::string& node, const std::string& which) {
  std::ifstream status(fmt::format("/proc/{}/status", supervisor_->pid_of(federation_->process_of(node))));
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with(which)) return std::stoull(line.substr(6)) * 1024;
  }
  ADD_FAILURE() << node << " has ended";
  return 0;
}

}  // namespace fluvial::attack
