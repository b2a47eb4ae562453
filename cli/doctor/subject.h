// What a checkup is of: a node with its settings, or a bare machine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/doctor/judge.h"
#include "core/config/reader.h"
#include "core/config/settings.h"

namespace fluvial::cli::doctor {

struct SubjectRequest {
  std::optional<Role> role;  // none: whichever the data folder is of
  std::string config;
  std::string data_dir;
  std::vector<std::string> flags;  // further ones of the role's own command
  config::Environment environment;
};

struct Subject {
  std::optional<Role> role;
  std::string data_dir;  // may be empty on a bare machine
  std::string source;    // the configuration file, or where else the settings come from
  Status settings_read;  // an error: the node has a role, and none of the settings below
  std::optional<config::CoordinatorSettings> coordinator;
  std::optional<config::AggregatorSettings> aggregator;
  std::optional<config::EdgeSettings> edge;

  const config::CommonSettings* common() const;
  // "host:port" of the coordinator's members' port, of a member.
  std::string coordinator_address() const;
  Node node() const;
};

// As the role's own command finds its settings: flags, FLUVIAL_... variables, --config or FLUVIAL_CONFIG. Beyond that,
// what `fluvial enroll` and the packages' units leave: the configuration in the data folder, the folders under /var/lib
// and the variables under /etc/fluvial.
Subject find_subject(const SubjectRequest& request);

}  // namespace fluvial::cli::doctor
