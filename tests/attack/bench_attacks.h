// The attacks that ./dev bench attack measures.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cli/admin_client.h"
#include "tests/attack/flood.h"
#include "tests/attack/member.h"

namespace fluvial::attack {

// What an attacker knows of the federation, and the member that it is: an aggregator without a site, whom no round
// asks.
struct Scene {
  std::uint16_t member_port = 0;
  std::uint16_t enrol_port = 0;
  std::uint16_t metrics_port = 0;
  Tls stranger;
  Tls member;
  identity::Credentials mallory;
  static Result<Scene> of(const cli::AdminClient& admin, std::uint16_t metrics_port);
};

struct BenchAttack {
  std::string name;
  unsigned threads = 1;
  std::function<Result<std::unique_ptr<Flood>>(const Scene& scene)> start;
};
const std::vector<BenchAttack>& bench_attacks();

}  // namespace fluvial::attack
