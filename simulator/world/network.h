// Sessions between hosts, in virtual time: what core/net is to a process. Frames are encoded when sent and decoded
// when they arrive (core/wire/frame.h), in order per direction. Links have delay, jitter and loss; hosts have up and
// down rates that all their sessions share, first come first served. Everything that can go wrong is in Faults and in
// the verbs below; all of it is off by default.
//
// A process attaches an Endpoint to its host and gets its events from it. Ends of a session are told apart by host.
// Heartbeats are not sent, but for the questions after a peer's clock: the network knows when they would not arrive,
// and then closes the end that hears nothing after heartbeat_timeout. Not thread safe: one world, one thread.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/wire/frame.h"
#include "simulator/scenario/chance.h"
#include "simulator/world/cores.h"
#include "simulator/world/host.h"
#include "simulator/world/session_table.h"
#include "simulator/world/trace.h"

namespace fluvial::simulator {

struct Payload {  // what follows a header
  SharedBytes bytes;

  static Payload none() { return {}; }
  static Payload of(Buffer buffer) { return {SharedBytes::from(std::move(buffer))}; }
  static Payload of(SharedBytes bytes) { return {std::move(bytes)}; }
  std::uint64_t size_bytes() const { return bytes.bytes.size(); }
};

// For the planner, whose processes handle a small model in place of the planned one: how many bytes the wire, the
// outboxes, the processors and the counters are charged for each byte of these payloads.
struct PayloadScale {
  double model = 1;
  double update = 1;
  double partial = 1;
};

struct Frame {
  v1::Envelope header;
  Payload payload;
};

class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual void accepted(SessionId session, HostId from) = 0;  // a child connected
  virtual void connected(SessionId session) = 0;              // connect() succeeded
  virtual void received(SessionId session, Frame frame) = 0;
  // The session is over, or connect() failed; not called for what this side closed or aborted itself.
  virtual void closed(SessionId session, const Error& why) = 0;
  virtual void writable(SessionId session) = 0;  // the bytes waiting to be sent fell below half of the bound again
};

struct LinkSettings {           // of one host, towards anyone
  Duration delay{};             // one way; a path has both hosts'
  Duration jitter{};            // uniform, added for each frame
  double up_bytes_per_s = 0;    // 0: no limit
  double down_bytes_per_s = 0;  // 0: no limit
};

struct SessionSettings {
  Duration heartbeat_timeout = std::chrono::seconds(20);
  Duration connect_deadline = std::chrono::seconds(5);
  std::uint64_t outbox_bytes_max = 16 << 20;
};

struct NetworkFaults {       // rates are for each frame, or each connect
  double loss = 0;           // a frame is lost: the frames behind it wait for the retransmission
  Duration loss_stall{};     // for this long
  double break_session = 0;  // the session breaks; everything in flight is lost
  double duplicate = 0;      // a control frame comes twice
  double reorder = 0;        // two neighbouring control frames change places
  double late = 0;           // a frame is delayed by up to `late_by`
  Duration late_by{};
  double refuse_connect = 0;
};

enum class Ending {
  kReset,   // the process died: the peer is told, as soon as a packet can reach it
  kSilent,  // the machine died, or a middlebox forgot the session: the peer notices by the heartbeat timeout
};

struct HostTraffic {
  std::uint64_t up_bytes = 0;    // sent to parents, as a child
  std::uint64_t down_bytes = 0;  // received from parents
  std::uint64_t sent_frames = 0;
  std::uint64_t outbox_bytes_peak = 0;
};

class Network {
 public:
  Network(Scheduler& scheduler, Trace& trace, const Chance& chance, SessionSettings settings);

  // ---- the world ----
  void add_host(HostId host, std::uint32_t region, LinkSettings link);  // in the order of their numbers
  // The processor time of either end for a byte of a transfer. `cores` outlive the network.
  void set_byte_cost(double byte_ns, Cores* cores);
  void set_payload_scale(const PayloadScale& scale) { scale_ = scale; }
  void attach(HostId host, Endpoint* endpoint);  // its process runs
  void detach(HostId host, Ending ending);       // it is gone, and all its sessions with it
  void set_faults(const NetworkFaults& faults) { faults_ = faults; }

  // From now on nothing passes in this direction, neither new frames nor those on their way; nested cuts count.
  void cut(HostId from, HostId to);
  void heal(HostId from, HostId to);
  enum class Direction { kIn, kOut };
  void cut_region(std::uint32_t region, Direction direction);  // between its hosts and all others
  void heal_region(std::uint32_t region, Direction direction);
  void cut_host(HostId host, Direction direction);
  void heal_host(HostId host, Direction direction);
  // One open session, chosen by `pick`, ends at one side; the other side is not told. None open: false.
  bool half_open(std::uint64_t pick);

  // ---- the processes ----
  SessionId connect(HostId from, HostId to);
  // False when this end is closed already. Takes a frame even beyond outbox_bytes_max: ask writable_bytes() first.
  bool send(HostId from, SessionId session, const v1::Envelope& header, Payload payload = Payload::none());
  std::uint64_t writable_bytes(HostId from, SessionId session) const;  // room in this end's outbox; 0 when closed
  void close(HostId host, SessionId session);  // once all sent frames have left; nothing more is received
  void abort(HostId host, SessionId session);  // at once; frames in flight are lost
  std::optional<HostId> peer_of(HostId host, SessionId session) const;  // none when this end is closed

  const HostTraffic& traffic(HostId host) const { return hosts_[host.value()].traffic; }
  std::size_t open_sessions() const { return sessions_.size(); }

 private:
  struct Flying {
    Buffer head;
    Payload payload;
    TimePoint ready;
    std::uint64_t wire_bytes = 0;
    bool is_control = false;
    bool at_receiver = false;  // passed the path; it is on the receiver's own link
    bool is_end = false;       // of the stream: the sender closed
  };
  struct Pipe {  // one direction
    Fifo<Flying> frames;
    EventId pump;
    bool stalled = false;  // the first frame is due and the link is cut
    bool cut = false;
    std::uint64_t cut_number = 0;
    std::uint64_t queued_bytes = 0;
    bool was_full = false;

    void clear() {
      frames.clear();
      queued_bytes = 0;
    }
  };
  enum class EndState { kConnecting, kOpen, kClosed };
  struct Session {
    std::array<HostId, 2> hosts;  // 0: the child, which connected
    std::array<EndState, 2> ends = {EndState::kConnecting, EndState::kConnecting};
    std::array<Pipe, 2> pipes;  // [i]: from end i to the other
    bool broken = false;        // nothing passes; the ends are about to learn of it
  };
  struct HostState {
    Endpoint* endpoint = nullptr;
    std::uint32_t region = 0;
    LinkSettings link;
    TimePoint up_free{};
    TimePoint down_free{};
    std::array<int, 2> cuts{};     // by Direction
    std::set<SessionId> sessions;  // whose end here is not closed
    HostTraffic traffic;
  };

  Session* find(SessionId id) const { return sessions_.find(id); }
  bool is_cut(HostId from, HostId to) const;
  void cuts_changed(int by);
  void silence(SessionId id, int end, std::uint64_t cut_number);
  Duration path_delay(HostId from, HostId to);
  TimePoint after_work(TimePoint link_free, std::uint64_t bytes);
  std::uint64_t payload_on_wire(const v1::Envelope& header, const Payload& payload) const;
  void arrive(SessionId id);
  void finish_connect(SessionId id);
  void push(SessionId id, Session& session, int end, Flying frame);
  void arm(SessionId id, Session& session, int end);
  void pump(SessionId id, int end);
  void deliver(SessionId id, int end, Flying frame);
  void end_closed(SessionId id, int end, const char* why);  // tells its process, unless the end is closed already
  void leave(SessionId id, int end, Ending ending, const char* why);
  void tell_peer(SessionId id, int end, Ending ending, const char* why);
  void break_session(SessionId id, const char* why);
  void forget_if_over(SessionId id);
  int end_of(const Session& session, HostId host) const { return session.hosts[0] == host ? 0 : 1; }

  Scheduler& scheduler_;
  Trace& trace_;
  Rng rng_;
  SessionSettings settings_;
  NetworkFaults faults_;
  PayloadScale scale_;
  double byte_ns_ = 0;
  Cores* cores_ = nullptr;
  std::vector<HostState> hosts_;
  SessionTable<Session> sessions_;
  std::map<std::pair<HostId, HostId>, int> cut_pairs_;
  std::map<std::uint32_t, std::array<int, 2>> cut_regions_;
  bool anything_cut_ = false;
  int cuts_ = 0;
  std::uint64_t last_cut_ = 0;
};

}  // namespace fluvial::simulator
