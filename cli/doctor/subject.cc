#include "cli/doctor/subject.h"

#include <filesystem>
#include <map>
#include <utility>

#include "cli/proxy.h"
#include "core/config/toml_file.h"
#include "core/identity/certificate.h"

namespace fluvial::cli::doctor {
namespace {

struct Packaged {
  Role role;
  const char* command;
  const char* folder;
  const char* variables;  // of the unit
};
constexpr Packaged kPackaged[] = {
    {Role::kCoordinator, "coordinator", "/var/lib/fluvial", "/etc/fluvial/coordinator.env"},
    {Role::kAggregator, "aggregator", "/var/lib/fluvial-aggregator", "/etc/fluvial/aggregator.env"},
    {Role::kSite, "edge", "/var/lib/fluvial-edge", "/etc/fluvial/edge.env"}};

const Packaged& packaged(Role role) {
  for (const Packaged& one : kPackaged) {
    if (one.role == role) return one;
  }
  return kPackaged[0];
}

bool is_there(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

// By what it holds: a member's certificate, or an authority.
std::optional<Role> role_of_folder(const std::string& folder) {
  if (is_there(folder + "/ca/ca.pem")) return Role::kCoordinator;
  const auto chain = identity::Certificate::load_chain(folder + "/identity/cert.pem");
  if (!chain.ok()) return std::nullopt;
  const auto member = identity::identity_of(chain->front());
  return member.ok() ? std::optional(member->role) : std::nullopt;
}

std::string folder_of(const SubjectRequest& request, const std::string& config) {
  if (!request.data_dir.empty()) return request.data_dir;
  if (auto folder = request.environment("FLUVIAL_DATA_DIR"); folder && !folder->empty()) return *folder;
  if (!config.empty()) {
    const auto entries = config::read_toml(config);
    const std::vector<config::TomlEntry> none;
    for (const config::TomlEntry& entry : entries.ok() ? *entries : none) {
      if (entry.key == "data_dir") return entry.value;
    }
    return "";
  }
  if (request.role) return packaged(*request.role).folder;
  for (const Packaged& one : kPackaged) {
    if (role_of_folder(one.folder)) return one.folder;
  }
  return "";
}

// KEY=VALUE lines, as systemd's EnvironmentFile takes them without quotes; comments and whatever else are passed over.
std::map<std::string, std::string> read_variables(const std::string& path) {
  std::map<std::string, std::string> variables;
  const auto text = config::read_text_file(path);
  if (!text.ok()) return variables;
  std::string_view rest = *text;
  while (!rest.empty()) {
    const std::size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(std::min(end + 1, rest.size()));
    const std::size_t equals = line.find('=');
    if (line.starts_with("FLUVIAL_") && equals != std::string_view::npos) {
      variables.emplace(line.substr(0, equals), line.substr(equals + 1));
    }
  }
  return variables;
}

// A unit's variables count for its own folder alone.
config::Environment with_packaged(const config::Environment& outer, Role role, const std::string& folder) {
  if (folder != packaged(role).folder) return outer;
  std::map<std::string, std::string> variables = read_variables(packaged(role).variables);
  if (role == Role::kSite) variables.emplace("FLUVIAL_WORKER_SOCKET", "/run/fluvial/worker.sock");
  return [outer, variables = std::move(variables)](const std::string& name) {
    std::optional<std::string> value = outer(name);
    const auto found = variables.find(name);
    if (!value && found != variables.end()) value = found->second;
    return value;
  };
}

template <typename Settings>
void read_into(std::optional<Settings>& out, Subject& subject, const std::vector<std::string>& arguments,
               const config::Environment& environment) {
  Result<Settings> settings = config::read_settings<Settings>(arguments, environment);
  if (!settings.ok()) {
    subject.settings_read = settings.error();
    return;
  }
  if constexpr (!std::is_same_v<Settings, config::CoordinatorSettings>) {
    ProxyChoice way_out = choose_proxy(settings->proxy, settings->no_proxy, environment);
    settings->proxy = std::move(way_out.url);
    settings->no_proxy = std::move(way_out.no_proxy);
  }
  subject.data_dir = settings->data_dir;
  out = std::move(*settings);
}

}  // namespace

const config::CommonSettings* Subject::common() const {
  if (coordinator) return &*coordinator;
  if (aggregator) return &*aggregator;
  return edge ? &*edge : nullptr;
}

std::string Subject::coordinator_address() const {
  if (aggregator) return aggregator->coordinator;
  return edge ? edge->coordinator : "";
}

Node Subject::node() const {
  Node node{.role = role};
  if (common() != nullptr) node.sessions_max = common()->session.sessions_max;
  if (coordinator) node.staging_bytes_max = coordinator->staging_bytes_max;
  if (aggregator) node.staging_bytes_max = aggregator->staging_bytes_max;
  return node;
}

Subject find_subject(const SubjectRequest& request) {
  std::string config = request.config;
  if (config.empty()) config = request.environment("FLUVIAL_CONFIG").value_or("");
  Subject subject{.role = request.role, .data_dir = folder_of(request, config)};
  if (!subject.role && !subject.data_dir.empty()) subject.role = role_of_folder(subject.data_dir);
  if (!subject.role && !config.empty()) {  // as enrolment names it
    const std::string stem = std::filesystem::path(config).stem();
    for (const Packaged& one : kPackaged) {
      if (stem == one.command) subject.role = one.role;
    }
  }
  if (!subject.role) return subject;

  const std::string left = subject.data_dir + "/" + packaged(*subject.role).command + ".toml";
  if (config.empty() && is_there(left)) config = left;
  subject.source = config.empty() ? "flags and environment" : config;
  std::vector<std::string> arguments;
  if (!config.empty()) arguments = {"--config", config};
  if (config.empty() || !request.data_dir.empty()) {
    arguments.insert(arguments.end(), {"--data-dir", subject.data_dir});
  }
  arguments.insert(arguments.end(), request.flags.begin(), request.flags.end());
  const config::Environment environment = with_packaged(request.environment, *subject.role, subject.data_dir);
  switch (*subject.role) {
    case Role::kCoordinator: read_into(subject.coordinator, subject, arguments, environment); break;
    case Role::kAggregator: read_into(subject.aggregator, subject, arguments, environment); break;
    case Role::kSite: read_into(subject.edge, subject, arguments, environment); break;
    case Role::kOperator: break;
  }
  return subject;
}

}  // namespace fluvial::cli::doctor
