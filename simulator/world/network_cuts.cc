// Partitions: which directions are cut, and how the sessions across them notice.
#include <algorithm>

#include "simulator/world/network.h"

namespace fluvial::simulator {
namespace {

constexpr std::size_t index_of(Network::Direction direction) { return direction == Network::Direction::kIn ? 0 : 1; }

}  // namespace

bool Network::is_cut(HostId from, HostId to) const {
  if (!anything_cut_) return false;
  const HostState& a = hosts_[from.value()];
  const HostState& b = hosts_[to.value()];
  if (a.cuts[index_of(Direction::kOut)] > 0 || b.cuts[index_of(Direction::kIn)] > 0) return true;
  if (a.region != b.region) {
    const auto out = cut_regions_.find(a.region);
    if (out != cut_regions_.end() && out->second[index_of(Direction::kOut)] > 0) return true;
    const auto in = cut_regions_.find(b.region);
    if (in != cut_regions_.end() && in->second[index_of(Direction::kIn)] > 0) return true;
  }
  const auto pair = cut_pairs_.find({from, to});
  return pair != cut_pairs_.end() && pair->second > 0;
}

void Network::cut(HostId from, HostId to) {
  ++cut_pairs_[{from, to}];
  cuts_changed(+1);
}
void Network::heal(HostId from, HostId to) {
  --cut_pairs_[{from, to}];
  cuts_changed(-1);
}
void Network::cut_region(std::uint32_t region, Direction direction) {
  ++cut_regions_[region][index_of(direction)];
  cuts_changed(+1);
}
void Network::heal_region(std::uint32_t region, Direction direction) {
  --cut_regions_[region][index_of(direction)];
  cuts_changed(-1);
}
void Network::cut_host(HostId host, Direction direction) {
  ++hosts_[host.value()].cuts[index_of(direction)];
  cuts_changed(+1);
}
void Network::heal_host(HostId host, Direction direction) {
  --hosts_[host.value()].cuts[index_of(direction)];
  cuts_changed(-1);
}

void Network::cuts_changed(int by) {
  cuts_ += by;
  anything_cut_ = true;  // until each session has seen what changed
  sessions_.for_each([this](SessionId id, Session& session) {
    for (int end = 0; end < 2; ++end) {
      Pipe& pipe = session.pipes[end];
      const bool cut = is_cut(session.hosts[end], session.hosts[1 - end]);
      if (cut == pipe.cut) continue;
      pipe.cut = cut;
      if (cut) {
        pipe.cut_number = ++last_cut_;
        scheduler_.after(settings_.heartbeat_timeout,
                         [this, id, end, number = last_cut_] { silence(id, end, number); });
      } else if (pipe.stalled) {
        pipe.stalled = false;
        arm(id, session, end);
      }
    }
  });
  anything_cut_ = cuts_ > 0;
}

// Since a cut nothing has come this way for the heartbeat timeout.
void Network::silence(SessionId id, int end, std::uint64_t cut_number) {
  Session* session = find(id);
  if (session == nullptr || !session->pipes[end].cut || session->pipes[end].cut_number != cut_number) return;
  const int deaf = 1 - end;
  if (session->ends[deaf] == EndState::kClosed) return;
  tell_peer(id, deaf, Ending::kReset, "the peer heard nothing and closed");
  end_closed(id, deaf, "no sign of life");
}

}  // namespace fluvial::simulator
