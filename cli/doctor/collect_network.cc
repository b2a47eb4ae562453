#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <sstream>
#include <tuple>

#include "cli/doctor/collect.h"
#include "core/identity/credentials.h"
#include "core/identity/tls.h"
#include "core/net/proxy.h"
#include "core/tree/runtime.h"
#include "core/tree/visit.h"

namespace fluvial::cli::doctor {
namespace {

constexpr Duration kStepMax = std::chrono::seconds(5);  // of a visit: name, connection, handshake, welcome

struct FreeAddress {
  void operator()(addrinfo* list) const { ::freeaddrinfo(list); }
};

// Bound and let go at once; nothing is listened for, so nobody can connect.
Status try_bind(const config::HostPort& at) {
  addrinfo hints{};
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (failed != 0) return Error{Code::kInvalidArgument, ::gai_strerror(failed)};
  const std::unique_ptr<addrinfo, FreeAddress> list(found);
  const int descriptor = ::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor < 0) return Error{Code::kUnavailable, std::strerror(errno)};
  const int on = 1;
  ::setsockopt(descriptor, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  const int error = ::bind(descriptor, list->ai_addr, list->ai_addrlen) == 0 ? 0 : errno;
  ::close(descriptor);
  switch (error) {
    case 0: return {};
    case EADDRINUSE: return Error{Code::kAlreadyExists, std::strerror(error)};
    case EACCES: return Error{Code::kPermissionDenied, std::strerror(error)};
    default: return Error{Code::kUnavailable, std::strerror(error)};
  }
}

// As a member's machine would, without a word.
Status try_connect(const config::HostPort& at) {
  addrinfo hints{};
  hints.ai_flags = AI_NUMERICSERV;
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int failed = ::getaddrinfo(at.host.c_str(), std::to_string(at.port).c_str(), &hints, &found);
  if (failed != 0) return Error{Code::kUnavailable, fmt::format("cannot resolve the name: {}", ::gai_strerror(failed))};
  const std::unique_ptr<addrinfo, FreeAddress> list(found);
  const int descriptor = ::socket(list->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (descriptor < 0) return Error{Code::kUnavailable, std::strerror(errno)};
  int error = ::connect(descriptor, list->ai_addr, list->ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    pollfd waiting{.fd = descriptor, .events = POLLOUT, .revents = 0};
    constexpr auto kWaitMs = std::chrono::duration_cast<std::chrono::milliseconds>(kStepMax).count();
    socklen_t size = sizeof error;
    if (::poll(&waiting, 1, static_cast<int>(kWaitMs)) <= 0) {
      error = ETIMEDOUT;
    } else if (::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = errno;
    }
  }
  ::close(descriptor);
  return error == 0 ? Status()
                    : Status(Error{Code::kUnavailable, fmt::format("cannot connect: {}", std::strerror(error))});
}

// What the coordinator calls itself in tokens.
std::string public_host(const config::CoordinatorSettings& settings) {
  if (!settings.public_host.empty()) return settings.public_host;
  const auto listen = config::parse_host_port(settings.listen);
  if (listen.ok() && listen->host != "0.0.0.0" && listen->host != "::") return listen->host;
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
}

// The inode of the socket that listens on the port: "sl local rem st ... inode", state 0A.
std::optional<std::string> listening_inode(const char* table, std::uint16_t port) {
  const std::string wanted = fmt::format(":{:04X}", port);
  std::ifstream file(table);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::array<std::string, 10> word;
    for (std::string& one : word) words >> one;
    if (word[1].ends_with(wanted) && word[3] == "0A") return word[9];
  }
  return std::nullopt;
}

PortFacts look_at_port(const char* setting, const std::string& address) {
  PortFacts facts{.setting = setting, .address = address};
  const auto at = config::parse_host_port(address);
  facts.bound = at.ok() ? try_bind(*at) : Status(at.error());
  if (facts.bound.ok() || facts.bound.error().code != Code::kAlreadyExists) return facts;
  if (const auto listener = listener_on(at->port); listener && listener->pid != 0) {
    facts.holder = fmt::format("{} (pid {})", listener->name, listener->pid);
  }
  return facts;
}

bool is_fixed(const std::string& address) {
  const auto at = config::parse_host_port(address);
  return !at.ok() || at->port != 0;
}

// ---- visits ---------------------------------------------------------------------------------------------------------

struct Traveller {
  std::shared_ptr<const identity::TlsContext> tls;
  net::SessionSettings session;
};

void bound_steps(net::SessionSettings& session) {
  session.resolve_deadline = session.connect_deadline = session.tunnel_deadline = kStepMax;
  session.handshake_deadline = std::min(session.handshake_deadline, kStepMax);
  session.drain_deadline = std::chrono::seconds(1);
}

Result<Traveller> traveller_of(const Subject& subject) {
  FLUVIAL_ASSIGN(const auto credentials, identity::load_credentials(subject.data_dir + "/identity"));
  Traveller traveller;
  FLUVIAL_ASSIGN(traveller.tls, identity::TlsContext::member_client(credentials));
  traveller.session = tree::session_settings(subject.common()->session);
  const auto& [url, exceptions] = subject.aggregator ? std::tie(subject.aggregator->proxy, subject.aggregator->no_proxy)
                                                     : std::tie(subject.edge->proxy, subject.edge->no_proxy);
  FLUVIAL_ASSIGN(traveller.session.proxy, net::proxy_rules(url, exceptions));
  bound_steps(traveller.session);
  return traveller;
}

VisitFacts visit(const Traveller& traveller, const std::string& address, Role role) {
  VisitFacts facts{.address = address};
  const auto at = net::parse_host_port(address);
  if (!at.ok()) {
    facts.reached = at.error();
    return facts;
  }
  if (traveller.session.proxy) {
    if (const net::Proxy* const proxy = traveller.session.proxy->of(*at)) facts.proxy = net::to_string(proxy->address);
  }
  const auto met = tree::visit_blocking({*at, role}, traveller.tls, traveller.session);
  if (!met.ok()) {
    facts.reached = met.error();
    return facts;
  }
  facts.peer = met->peer;
  facts.handshake = met->handshake;
  facts.round_trip = met->round_trip;
  facts.wall_offset = met->wall_offset;
  return facts;
}

Status reach_enrolment(const std::string& address, const std::string& pin) {
  FLUVIAL_ASSIGN(const net::HostPort at, net::parse_host_port(address));
  FLUVIAL_ASSIGN(const auto tls, identity::TlsContext::enrol_client(pin));
  net::SessionSettings session;
  bound_steps(session);
  const auto met = tree::visit_blocking({at, std::nullopt}, tls, session);
  return met.ok() ? Status() : Status(met.error());
}

}  // namespace

std::optional<int> holder_of(const std::string& inode) {
  const std::string wanted = fmt::format("socket:[{}]", inode);
  std::error_code error;
  for (const auto& process : std::filesystem::directory_iterator("/proc", error)) {
    const std::string name = process.path().filename();
    int pid = 0;
    if (std::from_chars(name.data(), name.data() + name.size(), pid).ec != std::errc()) continue;
    std::error_code hidden;
    for (const auto& open : std::filesystem::directory_iterator(process.path() / "fd", hidden)) {
      std::error_code gone;
      if (std::filesystem::read_symlink(open.path(), gone) == wanted) return pid;
    }
  }
  return std::nullopt;
}

std::optional<Listener> listener_on(std::uint16_t port) {
  for (const char* table : {"/proc/net/tcp", "/proc/net/tcp6"}) {
    const auto inode = listening_inode(table, port);
    if (!inode) continue;
    Listener listener;
    if (const auto pid = holder_of(*inode)) {
      listener.pid = *pid;
      std::ifstream name(fmt::format("/proc/{}/comm", *pid));
      std::getline(name, listener.name);
    }
    return listener;
  }
  return std::nullopt;
}

std::vector<PortFacts> collect_ports(const Subject& subject) {
  std::vector<PortFacts> ports;
  const auto take = [&ports](const char* setting, const std::string& address) {
    if (is_fixed(address)) ports.push_back(look_at_port(setting, address));
  };
  if (subject.coordinator) {
    take("listen", subject.coordinator->listen);
    take("enrol_listen", subject.coordinator->enrol_listen);
    if (subject.coordinator->admin_listen != "off") take("admin_listen", subject.coordinator->admin_listen);
  }
  if (subject.aggregator) take("listen", subject.aggregator->listen);
  const std::string metrics = subject.common()->metrics_listen;
  if (metrics != "off" && metrics != config::kMetricsAuto) take("metrics_listen", metrics);
  return ports;
}

ParentFacts collect_parent(const Subject& subject, const ProcessFacts& process) {
  ParentFacts facts;
  const auto traveller = traveller_of(subject);
  if (!traveller.ok()) return facts;  // the certificates' check says why
  const std::string coordinator = subject.coordinator_address();
  facts.coordinator = visit(*traveller, coordinator, Role::kCoordinator);
  if (!process.parent_address.empty() && process.parent_address != coordinator) {
    facts.parent = visit(*traveller, process.parent_address, Role::kAggregator);
  }
  if (subject.aggregator && process.answers && is_fixed(subject.aggregator->advertise)) {
    facts.advertised = visit(*traveller, subject.aggregator->advertise, Role::kAggregator);
  }
  return facts;
}

AdvertisedFacts collect_advertised(const Subject& subject, const ProcessFacts& process) {
  AdvertisedFacts facts;
  const std::string host = public_host(*subject.coordinator);
  facts.members = net::to_string({host, process.member_port});
  facts.enrolment = net::to_string({host, process.enrol_port});
  const auto authority = identity::Certificate::load_chain(subject.data_dir + "/ca/ca.pem");
  if (!authority.ok()) {
    facts.members_reached = facts.enrolment_reached = authority.error();
    return facts;
  }
  // A coordinator has no certificate to come with as a child: who answers is known by its authority all the same.
  facts.enrolment_reached = reach_enrolment(facts.enrolment, identity::pin_of(authority->back()));
  facts.members_reached = try_connect({host, process.member_port});
  return facts;
}

EnrolmentFacts collect_enrolment(const std::string& address, const std::string& pin) {
  return {.address = address, .reached = reach_enrolment(address, pin)};
}

}  // namespace fluvial::cli::doctor
