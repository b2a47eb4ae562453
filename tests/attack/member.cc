#include "tests/attack/member.h"

#include "core/identity/token.h"

namespace fluvial::attack {

Tls as_child(const identity::Credentials& credentials) {
  return identity::TlsContext::member_client(credentials).value();
}

Tls as_parent(const identity::Credentials& credentials) {
  return identity::TlsContext::member_server(credentials).value();
}

Result<tree::Enrolment> enrol(const std::string& token) {
  FLUVIAL_ASSIGN(const identity::EnrolmentToken parsed, identity::EnrolmentToken::parse(token));
  FLUVIAL_ASSIGN(const identity::PrivateKey key, identity::PrivateKey::generate());
  return tree::enrol_blocking(parsed, key, {});
}

namespace {

Status say_hello(Connection& connection, const v1::Envelope& message) {
  FLUVIAL_TRY(connection.send(message));
  FLUVIAL_ASSIGN(const v1::Envelope answer, connection.receive());
  return answer.has_welcome() ? Status() : Status(Error{Code::kFailedPrecondition, "no Welcome"});
}

}  // namespace

Result<Leased> ask_lease(const identity::Credentials& credentials, std::uint16_t coordinator_port,
                         const std::string& advertise, const std::string& from) {
  FLUVIAL_ASSIGN(Connection connection, Connection::open(coordinator_port, as_child(credentials), from));
  FLUVIAL_TRY(say_hello(connection, hello()));
  FLUVIAL_TRY(connection.send(lease_request(advertise)));
  FLUVIAL_ASSIGN(const v1::Envelope reply, connection.receive());
  if (!reply.has_lease_grant()) return Error{Code::kFailedPrecondition, "no LeaseGrant"};
  const v1::LeaseGrant& grant = reply.lease_grant();
  return Leased{.epoch = grant.epoch(),
                .parents = {grant.parents().begin(), grant.parents().end()},
                .leases = {grant.leases().begin(), grant.leases().end()}};
}

Result<Connection> join(const identity::Credentials& credentials, const Leased& lease, std::uint16_t port,
                        std::size_t parent) {
  FLUVIAL_ASSIGN(Connection connection, Connection::open(port, as_child(credentials)));
  v1::Envelope message = hello(lease.epoch);
  if (parent < lease.leases.size()) *message.mutable_hello()->mutable_lease() = lease.leases[parent];
  FLUVIAL_TRY(say_hello(connection, message));
  return connection;
}

Result<Connection> join_coordinator(const identity::Credentials& credentials, std::uint16_t coordinator_port,
                                    const std::string& advertise) {
  FLUVIAL_ASSIGN(const Leased lease, ask_lease(credentials, coordinator_port, advertise));
  for (std::size_t i = 0; i < lease.parents.size(); ++i) {
    if (lease.parents[i].node() == 0) return join(credentials, lease, coordinator_port, i);
  }
  return Error{Code::kFailedPrecondition, "the lease does not name the coordinator"};
}

}  // namespace fluvial::attack
