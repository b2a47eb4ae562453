#include "edge/service/many.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/post.hpp>
#include <boost/json.hpp>
#include <filesystem>
#include <map>
#include <utility>
#include <vector>

#include "core/identity/authority.h"
#include "core/net/proxy.h"
#include "core/tree/limits.h"
#include "edge/service/edge.h"

namespace fluvial::edge {

Sites::Sites(tree::Process& process)
    : process_(process), measuring_(process.runtime().metrics.before_render([this] { measure(); })) {}

Sites::Told Sites::told_by(Entry& entry) {
  return {.is = [&entry](const std::string& name) { entry.name = name; },
          .certificate_ends = [&entry](WallTime ends) { entry.certificate_ends = ends; },
          .set_ready =
              [this, &entry](bool ready) {
                entry.connected = ready;
                process_.set_ready(all_connected());
              },
          .request_stop = [this, &entry] { ended(entry); }};
}

void Sites::add(const std::string& folder, const Open& open) {
  Entry& entry = entries_.emplace_back();
  entry.name = folder;
  Result<std::unique_ptr<HostedSite>> opened = open(told_by(entry));
  if (opened.ok()) {
    entry.site = std::move(*opened);
    return;
  }
  entry.failure = opened.error();
  entry.stopped = true;
  process_.runtime().log.error("a site cannot start; the others go on without it",
                               {{"site", entry.name}, {"reason", opened.error().to_string()}});
}

// From within the site: it is stopped a moment later.
void Sites::ended(Entry& entry) {
  net::asio::post(process_.runtime().strand, [this, &entry] {
    if (entry.stopped) return;
    const Status why = entry.site->failure();
    entry.failure = why.ok() ? Error{Code::kInternal, "it ended"} : why.error();
    process_.runtime().log.error("a site has ended; the others go on without it",
                                 {{"site", entry.name}, {"reason", entry.failure->to_string()}});
    stop(entry);
    process_.set_ready(all_connected());
    if (std::ranges::all_of(entries_, &Entry::stopped)) process_.request_stop();
  });
}

void Sites::stop(Entry& entry) {
  if (!std::exchange(entry.stopped, true)) entry.site->stop();
}

void Sites::stop() {
  for (Entry& entry : entries_) stop(entry);
}

bool Sites::all_connected() const {
  return std::ranges::all_of(entries_, [](const Entry& entry) { return entry.stopped || entry.connected; }) &&
         !std::ranges::all_of(entries_, &Entry::stopped);
}

// What the sites set one after the other.
void Sites::measure() {
  process_.runtime().metrics.gauge("connected").set(all_connected() ? 1 : 0);
  std::optional<WallTime> first;
  for (const Entry& entry : entries_) {
    if (!entry.stopped && entry.certificate_ends)
      first = std::min(first.value_or(WallTime::max()), *entry.certificate_ends);
  }
  if (first) process_.set_certificate_end(*first);
}

std::size_t Sites::failed() const {
  return static_cast<std::size_t>(
      std::ranges::count_if(entries_, [](const Entry& entry) { return entry.failure.has_value(); }));
}

Status Sites::failure() const {
  for (const Entry& entry : entries_) {
    if (!entry.failure) continue;
    return Error{entry.failure->code, fmt::format("{} of {} sites failed; the first: {}: {}", failed(), size(),
                                                  entry.name, entry.failure->message)};
  }
  return {};
}

std::string Sites::status_json() const {
  boost::json::array sites;
  for (const Entry& entry : entries_) {
    if (!entry.failure) {
      sites.push_back(boost::json::parse(entry.site->status_json()));
    } else {
      sites.push_back(boost::json::object{{"role", "site"}, {"name", entry.name}, {"failure", entry.failure->message}});
    }
  }
  return boost::json::serialize(
      boost::json::object{{"role", "site"}, {"failed", failed()}, {"sites", std::move(sites)}});
}

namespace {

// Of a site at its busiest: sockets to parent, workers and those who attach, its store, a submission that is read while
// another is written, a model, a result.
constexpr std::uint64_t kFilesPerSite = 20;
constexpr std::uint64_t kFilesOfProcess = 128;

Status check_limits(std::size_t sites) {
  if (sites == 0) return Error{Code::kInvalidArgument, "no site to run"};
  if (sites > kSitesMax) {
    return Error{Code::kInvalidArgument, fmt::format("{} sites: one process takes {} at most", sites, kSitesMax)};
  }
  const std::uint64_t needed = kFilesOfProcess + kFilesPerSite * sites;
  const std::uint64_t allowed = tree::own_limits().open_files_soft;
  if (needed <= allowed) return {};
  return Error{Code::kResourceExhausted,
               fmt::format("{} sites in one process need {} open files, and it may have {}: raise the limit (ulimit "
                           "-Hn, LimitNOFILE= in the unit), or run fewer sites in a process",
                           sites, needed, allowed)};
}

config::CommonSettings of_process(const config::EdgeSettings& first, const std::string& folder) {
  config::CommonSettings settings = first;
  settings.data_dir = folder;
  return settings;
}

// What a site is called while its name is not known.
std::string folder_name(const std::string& data_dir) {
  const std::filesystem::path path(data_dir);
  return (path.has_filename() ? path : path.parent_path()).filename().string();
}

Result<std::unique_ptr<HostedSite>> open_site(tree::Process& process, const config::EdgeSettings& settings,
                                              CommonModels& models, Sites::Told told) {
  FLUVIAL_ASSIGN(Member member, load_member(settings));
  const std::string name = member.self.name;
  told.is(name);
  told.certificate_ends(member.self.not_after);
  tree::Runtime runtime = process.runtime();
  runtime.log = runtime.log.as({{"federation", identity::federation_of(member.credentials)}, {"node", name}})
                    .with({{"site", name}});
  FLUVIAL_ASSIGN(std::unique_ptr<Site> site, Site::open(std::move(runtime), settings, std::move(member),
                                                        {.tasks = process.tasks(),
                                                         .alone = false,
                                                         .models = &models,
                                                         .set_ready = std::move(told.set_ready),
                                                         .request_stop = std::move(told.request_stop),
                                                         .renewed = std::move(told.certificate_ends)}));
  return std::unique_ptr<HostedSite>(std::move(site));
}

std::string ready_json(const Sites& sites, std::uint16_t metrics_port) {
  const boost::json::object ready{{"role", "site"},
                                  {"sites", sites.size()},
                                  {"failed", sites.failed()},
                                  {"metrics_port", metrics_port},
                                  {"pid", static_cast<std::int64_t>(::getpid())}};
  return boost::json::serialize(ready);
}

std::string fault_of(const Sites& sites) {
  const Status failure = sites.failure();
  return failure.ok() ? "" : failure.error().message;
}

}  // namespace

Status run_sites(std::vector<config::EdgeSettings> settings, const std::string& folder, store::FileSystem& files,
                 telemetry::Logger log, tree::OnReady on_ready) {
  FLUVIAL_TRY(check_limits(settings.size()));
  const config::EdgeSettings& first = settings.front();
  tree::Process process(of_process(first, folder), Role::kSite, files, log.as({{"role", role_name(Role::kSite)}}));
  FLUVIAL_ASSIGN(process.runtime().session.proxy, net::proxy_rules(first.proxy, first.no_proxy));
  std::map<std::string, CommonModels> models;  // by coordinator: of a federation
  Sites sites(process);
  for (const config::EdgeSettings& of_site : settings) {
    sites.add(folder_name(of_site.data_dir), [&](Sites::Told told) {
      return open_site(process, of_site, models[of_site.coordinator], std::move(told));
    });
  }
  if (sites.failed() == sites.size()) return sites.failure();
  FLUVIAL_ASSIGN(const std::uint16_t metrics_port,
                 process.open_http({[&] { return sites.status_json(); }, [&] { return fault_of(sites); }}));
  process.runtime().log.info("sites started", {{"count", sites.size() - sites.failed()}});
  if (on_ready) on_ready(ready_json(sites, metrics_port));
  FLUVIAL_TRY(process.run([&sites] { sites.stop(); }));
  process.runtime().log.info("sites stopped");
  return sites.failure();
}

}  // namespace fluvial::edge
