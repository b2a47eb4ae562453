#include "simulator/world/network.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "core/base/check.h"

namespace fluvial::simulator {
namespace {

// The time of a smaller frame on the receiver's own link is not booked; it would be noise.
constexpr std::uint64_t kBookedBytes = 4096;

// A message that belongs to no transfer may be doubled or overtake its neighbour. The order within a transfer, within
// the greeting, and of members coming and going, is TCP's.
bool is_control(const v1::Envelope& header) {
  switch (header.body_case()) {
    case v1::Envelope::kHello:
    case v1::Envelope::kWelcome:
    case v1::Envelope::kGoodbye:
    case v1::Envelope::kMemberChange:
    case v1::Envelope::kReport:
    case v1::Envelope::kModelBegin:
    case v1::Envelope::kModelChunk:
    case v1::Envelope::kUpdateBegin:
    case v1::Envelope::kUpdateChunk:
    case v1::Envelope::kUpdateEnd:
    case v1::Envelope::kPartialBegin:
    case v1::Envelope::kPartialChunk:
    case v1::Envelope::kPartialEnd: return false;
    default: return true;
  }
}

Duration time_for(std::uint64_t bytes, double bytes_per_s) {
  if (bytes_per_s <= 0) return {};
  return Duration(static_cast<Duration::rep>(static_cast<double>(bytes) / bytes_per_s * 1e9));
}

wire::FrameLimits limits() { return {}; }

std::string words_of(SessionId id, const char* way, HostId peer, const v1::Envelope& header) {
  return "session " + std::to_string(id.value()) + " " + way + " " + std::to_string(peer.value()) + " " +
         header.ShortDebugString();
}

}  // namespace

Network::Network(Scheduler& scheduler, Trace& trace, const Chance& chance, SessionSettings settings)
    : scheduler_(scheduler), trace_(trace), rng_(chance.stream("network")), settings_(settings) {}

void Network::add_host(HostId host, std::uint32_t region, LinkSettings link) {
  FLUVIAL_CHECK(host.value() == hosts_.size(), "hosts are added in the order of their numbers");
  hosts_.push_back({.region = region, .link = link});
}

void Network::set_byte_cost(double byte_ns, Cores* cores) {
  byte_ns_ = byte_ns;
  cores_ = cores;
}

// When both the link and the processor have finished with these bytes.
TimePoint Network::after_work(TimePoint link_free, std::uint64_t bytes) {
  if (byte_ns_ <= 0 || bytes < kBookedBytes) return link_free;
  const Duration work(static_cast<Duration::rep>(static_cast<double>(bytes) * byte_ns_));
  return std::max(link_free, scheduler_.now() + cores_->take(scheduler_.now(), work));
}

// Trailers do not grow with the model.
std::uint64_t Network::payload_on_wire(const v1::Envelope& header, const Payload& payload) const {
  double factor = 1;
  switch (header.body_case()) {
    case v1::Envelope::kModelChunk: factor = scale_.model; break;
    case v1::Envelope::kUpdateChunk: factor = scale_.update; break;
    case v1::Envelope::kPartialChunk: factor = scale_.partial; break;
    default: break;
  }
  return static_cast<std::uint64_t>(std::llround(factor * static_cast<double>(payload.size_bytes())));
}

void Network::attach(HostId host, Endpoint* endpoint) { hosts_[host.value()].endpoint = endpoint; }

void Network::detach(HostId host, Ending ending) {
  HostState& state = hosts_[host.value()];
  state.endpoint = nullptr;
  state.up_free = scheduler_.now();
  const std::vector<SessionId> ids(state.sessions.begin(), state.sessions.end());
  for (const SessionId id : ids) {
    if (Session* session = find(id)) leave(id, end_of(*session, host), ending, "the peer's process ended");
  }
}

// ---- sessions -----------------------------------------------------------------------------------------------------

Duration Network::path_delay(HostId from, HostId to) {
  const LinkSettings& a = hosts_[from.value()].link;
  const LinkSettings& b = hosts_[to.value()].link;
  const Duration jitter = a.jitter + b.jitter;
  return a.delay + b.delay + (jitter > Duration::zero() ? between(rng_, Duration::zero(), jitter) : Duration::zero());
}

SessionId Network::connect(HostId from, HostId to) {
  HostState& state = hosts_[from.value()];
  if (state.endpoint == nullptr) return {};  // the dead connect to nobody
  const auto [added, session] = sessions_.add();
  const SessionId id = added;
  session->hosts = {from, to};
  state.sessions.insert(id);
  trace_.event(from, "connect", id.value(), to.value());
  const Duration there = path_delay(from, to);
  scheduler_.after(there, [this, id] { arrive(id); });
  return id;
}

// The child's first packet is at the parent.
void Network::arrive(SessionId id) {
  Session* session = find(id);
  if (session == nullptr) return;
  const auto [child, parent] = session->hosts;
  if (is_cut(child, parent) || is_cut(parent, child)) {
    scheduler_.after(settings_.connect_deadline, [this, id] { end_closed(id, 0, "no answer"); });
    return;
  }
  const Duration back = path_delay(parent, child);
  if (hosts_[parent.value()].endpoint == nullptr || happens(rng_, faults_.refuse_connect)) {
    scheduler_.after(back, [this, id] { end_closed(id, 0, "connection refused"); });
    return;
  }
  session->ends[1] = EndState::kOpen;
  hosts_[parent.value()].sessions.insert(id);
  trace_.event(parent, "accepted", id.value(), child.value());
  scheduler_.after(back, [this, id] { finish_connect(id); });
  hosts_[parent.value()].endpoint->accepted(id, child);
}

// The parent's answer is at the child: by itself, or by the parent's first frame.
void Network::finish_connect(SessionId id) {
  Session* session = find(id);
  if (session == nullptr || session->ends[0] != EndState::kConnecting) return;
  session->ends[0] = EndState::kOpen;
  const HostId child = session->hosts[0];
  trace_.event(child, "connected", id.value());
  hosts_[child.value()].endpoint->connected(id);
}

std::optional<HostId> Network::peer_of(HostId host, SessionId id) const {
  const Session* session = find(id);
  if (session == nullptr) return std::nullopt;
  const int end = end_of(*session, host);
  if (session->ends[end] == EndState::kClosed) return std::nullopt;
  return session->hosts[1 - end];
}

void Network::end_closed(SessionId id, int end, const char* why) {
  Session* session = find(id);
  if (session == nullptr || session->ends[end] == EndState::kClosed) return;
  const HostId host = session->hosts[end];
  session->ends[end] = EndState::kClosed;
  session->pipes[end].clear();
  hosts_[host.value()].sessions.erase(id);
  trace_.event(host, "closed", id.value(), 0, [&] { return "session " + std::to_string(id.value()) + ": " + why; });
  Endpoint* endpoint = hosts_[host.value()].endpoint;
  forget_if_over(id);
  if (endpoint != nullptr) endpoint->closed(id, {Code::kUnavailable, why});
}

// This end goes without telling its own process; the other end learns of it.
void Network::leave(SessionId id, int end, Ending ending, const char* why) {
  Session* session = find(id);
  if (session == nullptr || session->ends[end] == EndState::kClosed) return;
  session->ends[end] = EndState::kClosed;
  session->pipes[end].clear();
  session->pipes[1 - end].clear();
  hosts_[session->hosts[end].value()].sessions.erase(id);
  tell_peer(id, end, ending, why);
  forget_if_over(id);
}

void Network::tell_peer(SessionId id, int end, Ending ending, const char* why) {
  Session* session = find(id);
  const int peer = 1 - end;
  if (session == nullptr || session->ends[peer] == EndState::kClosed) return;
  const HostId from = session->hosts[end];
  const HostId to = session->hosts[peer];
  if (ending == Ending::kSilent || is_cut(from, to)) {
    scheduler_.after(settings_.heartbeat_timeout, [this, id, peer] { end_closed(id, peer, "no sign of life"); });
    return;
  }
  scheduler_.after(path_delay(from, to), [this, id, peer, why] { end_closed(id, peer, why); });
}

void Network::forget_if_over(SessionId id) {
  Session* session = find(id);
  if (session == nullptr || session->ends[0] != EndState::kClosed || session->ends[1] == EndState::kOpen) return;
  for (Pipe& pipe : session->pipes) scheduler_.cancel(pipe.pump);
  sessions_.erase(id);
}

void Network::abort(HostId host, SessionId id) {
  Session* session = find(id);
  if (session == nullptr) return;
  const int end = end_of(*session, host);
  if (session->ends[end] == EndState::kClosed) return;
  trace_.event(host, "abort", id.value());
  leave(id, end, Ending::kReset, "the peer broke the session off");
}

void Network::close(HostId host, SessionId id) {
  Session* session = find(id);
  if (session == nullptr) return;
  const int end = end_of(*session, host);
  if (session->ends[end] != EndState::kOpen || session->ends[1 - end] != EndState::kOpen) return abort(host, id);
  trace_.event(host, "close", id.value());
  Flying last;
  last.is_end = true;
  push(id, *session, end, std::move(last));
  session->ends[end] = EndState::kClosed;  // the frames behind it go on
  session->pipes[1 - end].clear();
  hosts_[host.value()].sessions.erase(id);
}

bool Network::half_open(std::uint64_t pick) {
  if (sessions_.size() == 0) return false;
  SessionId id;
  std::uint64_t wanted = pick % sessions_.size();
  sessions_.for_each([&](SessionId candidate, Session&) {
    if (wanted-- == 0) id = candidate;
  });
  Session& session = *find(id);
  const int end = static_cast<int>((pick / sessions_.size()) % 2);
  if (session.ends[0] != EndState::kOpen || session.ends[1] != EndState::kOpen) return false;
  trace_.event(session.hosts[end], "half-open", id.value());
  for (Pipe& pipe : session.pipes) pipe.clear();
  tell_peer(id, end, Ending::kSilent, "");
  end_closed(id, end, "the connection was reset");
  return true;
}

void Network::break_session(SessionId id, const char* why) {
  Session* session = find(id);
  if (session == nullptr) return;
  trace_.event(session->hosts[0], "break", id.value());
  session->broken = true;
  for (int end = 0; end < 2; ++end) {
    session->pipes[end].clear();
    scheduler_.after(path_delay(session->hosts[0], session->hosts[1]),
                     [this, id, end, why] { end_closed(id, end, why); });
  }
}

// ---- frames -------------------------------------------------------------------------------------------------------

bool Network::send(HostId from, SessionId id, const v1::Envelope& header, Payload payload) {
  Session* session = find(id);
  if (session == nullptr) return false;
  const int end = end_of(*session, from);
  if (session->ends[end] != EndState::kOpen || hosts_[from.value()].endpoint == nullptr) return false;
  Flying frame;
  Result<Buffer> head = wire::encode_head(header, payload.size_bytes(), limits());
  FLUVIAL_CHECK(head.ok(), head.error().message);  // as in core/net: a frame that is too large is a bug here
  frame.head = std::move(*head);
  frame.wire_bytes = frame.head.size() + payload_on_wire(header, payload);
  frame.payload = std::move(payload);
  frame.is_control = is_control(header);
  HostTraffic& traffic = hosts_[from.value()].traffic;
  if (end == 0) traffic.up_bytes += frame.wire_bytes;
  ++traffic.sent_frames;
  trace_.event(from, "send", id.value(), frame.wire_bytes,
               [&] { return words_of(id, "to", session->hosts[1 - end], header); });
  if (session->broken) return true;
  if (happens(rng_, faults_.break_session)) {
    break_session(id, "the connection broke");
    return true;
  }
  if (frame.is_control && happens(rng_, faults_.duplicate)) {
    Flying twin;
    twin.head = Buffer::copy_of(frame.head.span());
    twin.payload = frame.payload;
    twin.wire_bytes = frame.wire_bytes;
    twin.is_control = true;
    push(id, *session, end, std::move(twin));
  }
  push(id, *session, end, std::move(frame));
  return true;
}

void Network::push(SessionId id, Session& session, int end, Flying frame) {
  const HostId from = session.hosts[end];
  HostState& sender = hosts_[from.value()];
  Pipe& pipe = session.pipes[end];
  sender.up_free = std::max(sender.up_free, scheduler_.now()) + time_for(frame.wire_bytes, sender.link.up_bytes_per_s);
  sender.up_free = after_work(sender.up_free, frame.wire_bytes);
  frame.ready = sender.up_free + path_delay(from, session.hosts[1 - end]);
  if (happens(rng_, faults_.loss)) frame.ready += faults_.loss_stall;
  if (happens(rng_, faults_.late)) frame.ready += between(rng_, Duration::zero(), faults_.late_by);
  pipe.queued_bytes += frame.wire_bytes;
  sender.traffic.outbox_bytes_peak = std::max(sender.traffic.outbox_bytes_peak, pipe.queued_bytes);
  if (pipe.queued_bytes >= settings_.outbox_bytes_max) pipe.was_full = true;
  const bool overtakes = frame.is_control && pipe.frames.size() > 1 && pipe.frames.back().is_control &&
                         !pipe.frames.back().at_receiver && happens(rng_, faults_.reorder);
  pipe.frames.push(std::move(frame));
  if (overtakes) std::swap(pipe.frames.back(), pipe.frames.before_back());
  if (pipe.frames.size() == 1) arm(id, session, end);
}

void Network::arm(SessionId id, Session& session, int end) {
  Pipe& pipe = session.pipes[end];
  if (pipe.frames.empty() || pipe.stalled) return;
  scheduler_.cancel(pipe.pump);
  pipe.pump = scheduler_.at(pipe.frames.front().ready, [this, id, end] { pump(id, end); });
}

void Network::pump(SessionId id, int end) {
  Session* session = find(id);
  if (session == nullptr) return;
  Pipe& pipe = session->pipes[end];
  if (pipe.frames.empty()) return;
  const HostId from = session->hosts[end];
  const HostId to = session->hosts[1 - end];
  if (anything_cut_ && is_cut(from, to)) {
    pipe.stalled = true;
    return;
  }
  Flying& front = pipe.frames.front();
  if (!front.at_receiver && front.wire_bytes >= kBookedBytes) {
    HostState& receiver = hosts_[to.value()];
    if (receiver.link.down_bytes_per_s > 0 || byte_ns_ > 0) {
      front.at_receiver = true;
      receiver.down_free =
          std::max(receiver.down_free, scheduler_.now()) + time_for(front.wire_bytes, receiver.link.down_bytes_per_s);
      receiver.down_free = after_work(receiver.down_free, front.wire_bytes);
      front.ready = receiver.down_free;
      return arm(id, *session, end);
    }
  }
  Flying frame = pipe.frames.pop();
  pipe.queued_bytes -= std::min(pipe.queued_bytes, frame.wire_bytes);
  arm(id, *session, end);
  const bool writable = pipe.was_full && pipe.queued_bytes < settings_.outbox_bytes_max / 2;
  if (writable) pipe.was_full = false;
  deliver(id, end, std::move(frame));
  if (!writable) return;
  session = find(id);
  Endpoint* sender = hosts_[from.value()].endpoint;
  if (session != nullptr && sender != nullptr && session->ends[end] == EndState::kOpen) sender->writable(id);
}

void Network::deliver(SessionId id, int end, Flying flying) {
  const int to_end = 1 - end;
  if (to_end == 0) finish_connect(id);
  Session* session = find(id);
  if (session == nullptr) return;
  const HostId to = session->hosts[to_end];
  HostState& receiver = hosts_[to.value()];
  if (flying.is_end) return end_closed(id, to_end, "the peer closed the session");
  if (session->ends[to_end] != EndState::kOpen || receiver.endpoint == nullptr) return;
  if (to_end == 0) receiver.traffic.down_bytes += flying.wire_bytes;
  const ByteSpan head = flying.head.span();
  const auto prefix = wire::decode_prefix(head.first<wire::kPrefixBytes>(), limits());
  FLUVIAL_CHECK(prefix.ok() && prefix->header_bytes + wire::kPrefixBytes == head.size(),
                "a frame of our own is damaged");
  Result<v1::Envelope> header = wire::parse_header(head.subspan(wire::kPrefixBytes));
  FLUVIAL_CHECK(header.ok(), "a frame of our own does not parse");
  trace_.event(to, "receive", id.value(), flying.payload.size_bytes(),
               [&] { return words_of(id, "from", session->hosts[end], *header); });
  trace_.bytes(head);
  trace_.bytes(flying.payload.bytes.bytes);
  receiver.endpoint->received(id, {std::move(*header), std::move(flying.payload)});
}

std::uint64_t Network::writable_bytes(HostId from, SessionId id) const {
  const Session* session = find(id);
  if (session == nullptr) return 0;
  const int end = end_of(*session, from);
  if (session->ends[end] != EndState::kOpen) return 0;
  const std::uint64_t queued = session->pipes[end].queued_bytes;
  return queued >= settings_.outbox_bytes_max ? 0 : settings_.outbox_bytes_max - queued;
}

}  // namespace fluvial::simulator
