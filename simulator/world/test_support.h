// Processes that exchange meaningless messages, to test the world that carries them.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "simulator/world/world.h"

namespace fluvial::simulator {

struct Heard {
  TimePoint at;
  std::string what;  // "accepted", "connected", "ping 7", "closed: ...", "writable"
};

// Records its events; connects to its home when told to.
class Listener : public Process {
 public:
  Listener(World& world, HostId host, std::vector<Heard>* heard) : world_(world), host_(host), heard_(heard) {}
  void start() override {}
  void accepted(SessionId session, HostId) override { note("accepted"), session_ = session; }
  void connected(SessionId session) override { note("connected"), session_ = session; }
  void received(SessionId, Frame frame) override {
    note(frame.header.has_ping() ? "ping " + std::to_string(frame.header.ping().token())
                                 : "chunk " + std::to_string(frame.header.update_chunk().index()) + " of " +
                                       std::to_string(frame.payload.size_bytes()));
  }
  void closed(SessionId, const Error& why) override { note("closed: " + why.message); }
  void writable(SessionId) override { note("writable"); }

  void connect() { world_.network().connect(host_, world_.host(host_).home); }
  bool ping(std::uint64_t token) {
    v1::Envelope header;
    header.mutable_ping()->set_token(token);
    return world_.network().send(host_, session_, header);
  }
  bool chunk(std::uint64_t index, std::size_t bytes) {
    v1::Envelope header;
    header.mutable_update_chunk()->set_index(index);
    return world_.network().send(host_, session_, header, Payload::of(Buffer(bytes)));
  }
  SessionId session() const { return session_; }

 private:
  void note(std::string what) { heard_->push_back({world_.scheduler().now(), std::move(what)}); }
  World& world_;
  HostId host_;
  std::vector<Heard>* heard_;
  SessionId session_;
};

// A coordinator and two sites; what each heard outlives its process.
struct Town {
  explicit Town(Scenario scenario, std::uint64_t seed = 1) : world(shape(std::move(scenario)), seed, 100) {
    heard.resize(world.hosts().size());
    for (const Host& host : world.hosts()) {
      world.install(host.id,
                    [this](World& w, HostId id) { return std::make_unique<Listener>(w, id, &heard[id.value()]); });
    }
    world.start_all();
  }
  static Scenario shape(Scenario scenario) {
    scenario.tree = {.depth = 0, .sites = 2};
    for (LinkScenario* link : {&scenario.site_links, &scenario.coordinator_links}) {
      link->delay = std::chrono::milliseconds(5);
      link->jitter = Duration::zero();
    }
    scenario.session.heartbeat_timeout = std::chrono::seconds(2);
    return scenario;
  }
  Listener& at(std::uint32_t host) { return dynamic_cast<Listener&>(*world.process(HostId(host))); }
  void run_for(Duration duration) {
    const TimePoint end = world.scheduler().now() + duration;
    while (world.step(end)) continue;
  }
  std::vector<std::string> words(std::uint32_t host) const {
    std::vector<std::string> out;
    for (const Heard& h : heard[host]) out.push_back(h.what);
    return out;
  }

  World world;
  std::vector<std::vector<Heard>> heard;
};

}  // namespace fluvial::simulator
