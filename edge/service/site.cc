#include "edge/service/site.h"

#include <filesystem>
#include <limits>
#include <system_error>
#include <utility>

#include "core/identity/authority.h"
#include "core/identity/random.h"
#include "core/identity/tls.h"
#include "core/store/site_store.h"
#include "core/tree/process.h"
#include "edge/update/open.h"

namespace fluvial::edge {
namespace {

std::string identity_folder(const config::EdgeSettings& settings) {
  return store::join_path(settings.data_dir, "identity");
}

tree::UplinkOptions uplink_options(const config::EdgeSettings& settings, const tree::Renewal& renewal,
                                   net::HostPort coordinator, NodeId node, Incarnation incarnation) {
  tree::UplinkOptions options;
  options.verify = renewal.verifier();
  options.past_certificate_max = std::chrono::milliseconds(settings.session.past_certificate_max_ms);
  options.coordinator = std::move(coordinator);
  options.incarnation = incarnation;
  options.software = tree::software_name();
  options.process = identity::random_u64();
  options.jitter_seed = (static_cast<std::uint64_t>(node.value()) << 32) ^ incarnation.value();
  return options;
}

// On the disk of the site's store, with its spare files: the next update is written into them. What cannot be asked is
// no reason to wait.
std::uint64_t free_bytes(const std::string& state) {
  std::error_code failed;
  const std::filesystem::space_info space = std::filesystem::space(state, failed);
  if (failed) return std::numeric_limits<std::uint64_t>::max();
  std::uint64_t bytes = space.available;
  for (auto spare = std::filesystem::directory_iterator(store::join_path(state, "spare"), failed);
       !failed && spare != std::filesystem::directory_iterator(); spare.increment(failed)) {
    const std::uintmax_t size = spare->file_size(failed);
    if (!failed) bytes += size;
  }
  return bytes;
}

}  // namespace

Result<Member> load_member(const config::EdgeSettings& settings) {
  const std::string folder = identity_folder(settings);
  Result<identity::Credentials> credentials = identity::load_credentials(folder);
  if (!credentials.ok()) {
    if (credentials.error().code != Code::kNotFound) return credentials.error();
    return Error{Code::kNotFound, "this site is not enrolled: there are no credentials in " + folder +
                                      "; run: fluvial enroll --coordinator host:port --token TOKEN --data-dir " +
                                      settings.data_dir};
  }
  FLUVIAL_ASSIGN(identity::PeerIdentity self, identity::identity_of(credentials->chain.front()));
  if (self.role != Role::kSite) {
    return Error{Code::kFailedPrecondition,
                 "the certificate in " + folder + " is for " + identity::describe(self) + ", expected a site's"};
  }
  FLUVIAL_ASSIGN(std::shared_ptr<const identity::TlsContext> tls, identity::TlsContext::member_client(*credentials));
  return Member{std::move(self), std::move(*credentials), identity::live(std::move(tls))};
}

Result<std::unique_ptr<Site>> Site::open(tree::Runtime runtime, const config::EdgeSettings& settings, Member member,
                                         Host host) {
  std::string name = member.self.name;
  std::unique_ptr<Site> site(new Site(std::move(runtime), settings, std::move(name)));
  if (settings.worker_socket.empty()) {
    site->settings_.worker_socket = store::join_path(settings.data_dir, "worker.sock");
  }
  FLUVIAL_TRY(site->start(std::move(member), std::move(host)));
  return site;
}

Status Site::start(Member member, Host host) {
  FLUVIAL_ASSIGN(const net::HostPort coordinator, net::parse_host_port(settings_.coordinator));
  FLUVIAL_ASSIGN(std::unique_ptr<store::SiteStore> store,
                 open_site_store(runtime_.files, store::join_path(settings_.data_dir, "state"),
                                 member.credentials.enrolled_before));
  FLUVIAL_ASSIGN(std::shared_ptr<SiteGpus> gpus, open_gpus(settings_.gpus, runtime_.log));
  workers_ = std::make_unique<LocalWorkers>(runtime_, settings_, name_, gpus);
  const std::size_t gpu_count = gpus ? gpus->devices().size() : 0;
  report_ = std::make_unique<LogReport>(runtime_.metrics, runtime_.log, runtime_.clock, host.alone);
  const tree::Dial dial = tree::dial_over_tls(runtime_, member.tls);
  const std::string folder = identity_folder(settings_);
  renewal_ = std::make_unique<tree::Renewal>(
      runtime_, tree::Renewal::Parts{.credentials = member.credentials,
                                     .folder = folder,
                                     .coordinator = coordinator,
                                     .enrolment = tree::enrol_address(settings_.enrol_address, folder, coordinator),
                                     .dial = dial,
                                     .client = member.tls,
                                     .jitter_seed = identity::random_u64(),
                                     .tick_max = tree::look_every(settings_.session)});
  service_ = std::make_unique<EdgeService>(
      runtime_, settings_,
      EdgeService::Parts{
          .uplink = uplink_options(settings_, *renewal_, coordinator, member.self.node, store->incarnation()),
          .dial = renewal_->watching(dial),
          .self = std::move(member.self),
          .store = std::move(store),
          .gpus = std::move(gpus),
          .trainers = *workers_,
          .report = *report_,
          .tasks = host.tasks,
          .set_ready = std::move(host.set_ready),
          .request_stop = std::move(host.request_stop),
          .certificate_ends = renewal_->ends(),
          .renewal = renewal_.get(),
          .key = member.credentials.key,
          .common_models = host.models,
          .free_bytes = [state = store::join_path(settings_.data_dir, "state")] { return free_bytes(state); }});
  renewal_->tell(
      [this, renewed = std::move(host.renewed)](const std::string& chain_pem, WallTime ends) {
        service_->certificate_renewed(chain_pem, ends);
        if (renewed) renewed(ends);
      },
      [this] { service_->look_at_certificates(); });
  FLUVIAL_TRY(service_->open());
  // Of a site that does not start nothing is counted: others in the process go on.
  runtime_.metrics.gauge("workers_expected").add(static_cast<double>(settings_.workers));
  runtime_.metrics.gauge("gpus").add(static_cast<double>(gpu_count));
  return {};
}

}  // namespace fluvial::edge
