#include "simulator/roles/parent_end.h"

#include <algorithm>
#include <utility>

#include "core/wire/mapping.h"
#include "core/wire/protocol.h"
#include "core/wire/record_mapping.h"

namespace fluvial::simulator {
namespace {

constexpr std::uint64_t kModelPartBytes = 1024;  // small, so that models can be cut off in the middle

}  // namespace

ParentEnd::ParentEnd(Cast& cast, HostId host, ParentOwner& owner)
    : cast_(cast),
      host_(host),
      owner_(owner),
      budget_(cast.staging_bytes_max()),
      staging_{&budget_, &cast.world().disk(host).files(), "spill"} {}

void ParentEnd::accepted(SessionId session, HostId from) { connections_[session].from = from; }

void ParentEnd::received(SessionId session, Frame frame) {
  const auto found = connections_.find(session);
  if (found == connections_.end()) return;
  Connection& connection = found->second;
  const v1::Envelope& message = frame.header;
  Status taken;
  switch (connection.stage) {
    case Stage::kNew:
      taken = message.has_hello() ? hello(session, connection, message.hello())
                                  : Status{Error{Code::kFailedPrecondition, "the first frame must be a Hello"}};
      break;
    case Stage::kLeaseHello:
      if (message.has_lease_request()) {
        connection.stage = Stage::kLeaseAsked;
        owner_.lease_asked(session, cast_.identity(connection.from), message.lease_request());
        return;  // the answer comes when it is durable
      }
      taken = Error{Code::kFailedPrecondition, "a session without a lease may only ask for one"};
      break;
    case Stage::kMember: taken = dispatch(session, connection, std::move(frame)); break;
    case Stage::kLeaseAsked:
    case Stage::kLeaseGiven: taken = Error{Code::kFailedPrecondition, "nothing more to say here"}; break;
  }
  if (!taken.ok()) end_session(session, taken.error(), /*breach=*/true);
}

void ParentEnd::end_session(SessionId session, const Error& why, bool breach) {
  if (!connections_.contains(session)) return;
  v1::Envelope bye;
  bye.mutable_goodbye()->set_code(wire::code_to_proto(why.code));
  bye.mutable_goodbye()->set_message(wire::printable(why.message));
  cast_.world().network().send(host_, session, bye);
  cast_.world().network().close(host_, session);
  leave(session, breach);
}

void ParentEnd::closed(SessionId session) { leave(session); }

// What was in the middle of its way may go on in the child's next session.
void ParentEnd::leave(SessionId session, bool breach) {
  const auto found = connections_.find(session);
  if (found == connections_.end()) return;
  const NodeId node = found->second.node;
  const bool member = found->second.stage == Stage::kMember;
  std::optional<transfer::Inflow>& inflow = found->second.inflow;
  std::optional<transfer::Incoming> cut = inflow && !breach ? inflow->cut_off() : std::nullopt;
  connections_.erase(found);
  const auto child = children_.find(node);
  if (!member || child == children_.end() || child->second.session != session) return;  // replaced
  children_.erase(child);
  if (cut) book_.keep(node, std::move(*cut));
  owner_.child_left(node);
}

Status ParentEnd::hello(SessionId session, Connection& connection, const v1::Hello& hello) {
  constexpr std::string_view kSoftware = "fluvial simulate";
  FLUVIAL_ASSIGN(const std::uint32_t protocol, wire::choose_protocol({}, hello, kSoftware));
  const Identity& peer = cast_.identity(connection.from);
  v1::Envelope welcome;
  welcome.mutable_welcome()->set_protocol(protocol);
  welcome.mutable_welcome()->set_software(std::string(kSoftware));
  if (hello.lease_epoch() == 0) {
    connection.stage = Stage::kLeaseHello;
    cast_.world().network().send(host_, session, welcome);
    return {};
  }
  const Child child{peer.node,
                    peer.role,
                    Epoch(hello.lease_epoch()),
                    Incarnation(hello.incarnation()),
                    round::HistoryId(hello.history()),
                    session};
  FLUVIAL_TRY(join(child));
  connection.stage = Stage::kMember;
  connection.node = child.node;
  cast_.world().network().send(host_, session, welcome);
  children_[child.node] = child;
  owner_.child_joined(child);
  return {};
}

Status ParentEnd::join(const Child& child) {
  FLUVIAL_TRY(owner_.may_join(child));
  const auto before = children_.find(child.node);
  if (before == children_.end()) return {};
  if (child.incarnation < before->second.incarnation) return Error{Code::kStale, "an older incarnation"};
  end_session(before->second.session, {Code::kStale, "replaced by a newer session"});
  return {};
}

void ParentEnd::send(NodeId child, const v1::Envelope& message) {
  const auto found = children_.find(child);
  if (found != children_.end()) cast_.world().network().send(host_, found->second.session, message);
}

void ParentEnd::cut(NodeId child, const Error& reason) {
  const auto found = children_.find(child);
  if (found != children_.end()) end_session(found->second.session, reason);
}

void ParentEnd::answer_lease(SessionId session, const Result<v1::LeaseGrant>& grant) {
  const auto found = connections_.find(session);
  if (found == connections_.end()) return;
  if (!grant.ok()) return end_session(session, grant.error());
  found->second.stage = Stage::kLeaseGiven;
  v1::Envelope reply;
  *reply.mutable_lease_grant() = *grant;
  cast_.world().network().send(host_, session, reply);
}

Status ParentEnd::dispatch(SessionId session, Connection& connection, Frame frame) {
  const Child child = children_.at(connection.node);
  const v1::Envelope& message = frame.header;
  switch (message.body_case()) {
    case v1::Envelope::kUpdateBegin: {
      FLUVIAL_ASSIGN(transfer::UpdateHead head,
                     transfer::head_from_proto(message.update_begin(), child.node, child.role));
      admit(connection.inflow.emplace(std::move(head)), child);
      return {};
    }
    case v1::Envelope::kPartialBegin: {
      FLUVIAL_ASSIGN(transfer::PartialHead head,
                     transfer::head_from_proto(message.partial_begin(), child.node, child.role));
      admit(connection.inflow.emplace(std::move(head)), child);
      return {};
    }
    case v1::Envelope::kUpdateChunk: return chunk(connection, child, message.update_chunk().index(), frame.payload);
    case v1::Envelope::kPartialChunk: return chunk(connection, child, message.partial_chunk().index(), frame.payload);
    case v1::Envelope::kUpdateEnd: return end(connection, child, message.update_end().sha256(), frame.payload);
    case v1::Envelope::kPartialEnd: return end(connection, child, message.partial_end().sha256(), frame.payload);
    case v1::Envelope::kModelRequest: return start_model(session, connection, message.model_request());
    case v1::Envelope::kMemberChange:
    case v1::Envelope::kDecline:
    case v1::Envelope::kOutcomeQuery: return tell_owner(child, message);
    default: return Error{Code::kFailedPrecondition, "a message that no child sends"};
  }
}

Status ParentEnd::tell_owner(const Child& child, const v1::Envelope& message) {
  const bool is_site = child.role == Role::kSite;
  const auto own = [&](std::uint32_t site) { return !is_site || site == child.node.value(); };
  if (message.has_member_change()) {
    if (is_site) return Error{Code::kPermissionDenied, "a site has no members"};
    owner_.members_changed(child.node, message.member_change());
  } else if (message.has_decline()) {
    if (!own(message.decline().site())) return Error{Code::kPermissionDenied, "in the name of another site"};
    owner_.declined(child.node, wire::from_proto(message.decline()));
  } else {
    if (!own(message.outcome_query().site())) return Error{Code::kPermissionDenied, "in the name of another site"};
    owner_.outcome_asked(child.node, message.outcome_query());
  }
  return {};
}

// ---- updates and partials -------------------------------------------------------------------------------------------

void ParentEnd::admit(transfer::Inflow& inflow, const Child& child) {
  Status taken = inflow.admit(book_, owner_);
  if (taken.ok()) taken = inflow.start(staging_);
  if (taken.ok() && inflow.kept_chunks() > 0) {
    cast_.world().trace().event(host_, "transfer goes on", child.node.value(), inflow.kept_chunks());
  }
  if (!taken.ok()) refuse(inflow, child, taken.error());
}

Status ParentEnd::chunk(Connection& connection, const Child& child, std::uint64_t index, const Payload& payload) {
  if (!connection.inflow) return Error{Code::kFailedPrecondition, "a chunk without a beginning"};
  transfer::Inflow& inflow = *connection.inflow;
  if (inflow.is_refused()) return {};
  const Status taken = inflow.chunk(index, Buffer::copy_of(payload.bytes.bytes));
  if (!taken.ok()) refuse(inflow, child, taken.error());
  return {};
}

Status ParentEnd::end(Connection& connection, const Child& child, const std::string& sha256, const Payload& integers) {
  if (!connection.inflow) return Error{Code::kFailedPrecondition, "an end without a beginning"};
  transfer::Inflow inflow = std::move(*connection.inflow);
  connection.inflow.reset();  // its owner may end the session
  Status taken = inflow.end(sha256, integers.bytes.bytes);
  if (taken.ok()) taken = inflow.hand_over(book_, owner_);
  if (!taken.ok()) refuse(inflow, child, taken.error());
  return {};
}

void ParentEnd::refuse(transfer::Inflow& inflow, const Child& child, const Error& error) {
  const v1::Envelope receipt = inflow.refuse(error, book_, owner_);
  send(child.node, receipt);
}

// ---- the model
// --------------------------------------------------------------------------------------------------------

Status ParentEnd::start_model(SessionId session, Connection& connection, const v1::ModelRequest& request) {
  FLUVIAL_ASSIGN(const round::ModelRef ref, wire::from_proto(request.model()));
  if (request.offset() > ref.bytes) return Error{Code::kInvalidArgument, "an offset beyond the model's end"};
  const std::shared_ptr<ModelSlot> slot = owner_.model(ref);
  if (slot == nullptr) return {};  // overtaken: the child will hear of a newer one
  connection.outflow = Outflow{slot, request.offset(), false};
  pump_model(session, connection);
  return {};
}

void ParentEnd::pump_model(SessionId session, Connection& connection) {
  if (!connection.outflow) return;
  Outflow& out = *connection.outflow;
  Network& network = cast_.world().network();
  if (!out.slot->begun() || (out.slot->available() <= out.offset && !out.slot->complete())) return;
  if (!out.begun) {
    v1::Envelope begin;
    *begin.mutable_model_begin()->mutable_model() = wire::to_proto(out.slot->ref());
    *begin.mutable_model_begin()->mutable_schema() = wire::to_proto(out.slot->schema());
    begin.mutable_model_begin()->set_offset(out.offset);
    network.send(host_, session, begin);
    out.begun = true;
  }
  while (out.offset < out.slot->available() && network.writable_bytes(host_, session) > 0) {
    const std::uint64_t left = out.slot->available() - out.offset;
    const std::uint64_t size = std::min(kModelPartBytes, left);
    v1::Envelope part;
    part.mutable_model_chunk()->set_run(out.slot->ref().run.value());
    part.mutable_model_chunk()->set_version(out.slot->ref().version.value());
    part.mutable_model_chunk()->set_offset(out.offset);
    network.send(host_, session, part, Payload::of(out.slot->part(out.offset, size)));
    out.offset += size;
  }
  if (out.offset < out.slot->ref().bytes) return;
  connection.outflow.reset();
}

void ParentEnd::model_grew(const std::shared_ptr<ModelSlot>& slot) {
  for (auto& [session, connection] : connections_) {
    if (connection.outflow && connection.outflow->slot == slot) pump_model(session, connection);
  }
}

void ParentEnd::writable(SessionId session) {
  const auto found = connections_.find(session);
  if (found != connections_.end()) pump_model(session, found->second);
}

}  // namespace fluvial::simulator
