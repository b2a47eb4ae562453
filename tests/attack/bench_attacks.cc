#include "tests/attack/bench_attacks.h"

#include <fmt/format.h>

#include "core/identity/csr.h"

namespace fluvial::attack {
namespace {

using Started = std::unique_ptr<Flood>;

constexpr std::size_t kHeld = 300;
constexpr std::uint64_t kKeyUpdates = 20'000;

// Held from one turn to the next, of one thread.
template <typename T>
std::shared_ptr<T> hold(T value) {
  return std::make_shared<T>(std::move(value));
}

Started idle(std::uint16_t port) {
  auto held = hold(IdleConnections(port, kStrangersAddress, kHeld));
  return std::make_unique<Flood>(1, [held](std::uint64_t) { (void)held->add(1); });
}

Started key_updates(unsigned threads, std::uint16_t port, const Tls& tls) {
  return std::make_unique<Flood>(threads, [port, tls](std::uint64_t) { update_keys(port, tls, kKeyUpdates); });
}

v1::Envelope any_chunk() {
  v1::Envelope chunk;
  chunk.mutable_update_chunk()->set_index(0);
  return chunk;
}

// A member's connection that announces what does not come, until the other side ends it.
Started announced(unsigned threads, const Scene& scene) {
  return std::make_unique<Flood>(threads, [port = scene.member_port, tls = scene.member](std::uint64_t) {
    Result<Connection> connection = Connection::open(port, tls);
    if (connection.ok() && connection->send_head(any_chunk(), 8 << 20).ok()) (void)connection->ending();
  });
}

Started unfinished_headers(unsigned threads, const Scene& scene) {
  const auto bytes = std::make_shared<Buffer>(3 << 20);
  return std::make_unique<Flood>(threads, [port = scene.member_port, tls = scene.member, bytes](std::uint64_t) {
    Result<Connection> connection = Connection::open(port, tls);
    if (connection.ok() && connection->announce(4 << 20, 0).ok() && connection->write(bytes->span()).ok()) {
      (void)connection->ending();
    }
  });
}

Result<Started> outcome_queries(const Scene& scene) {
  FLUVIAL_ASSIGN(Connection joined, join_coordinator(scene.mallory, scene.member_port, "127.0.0.1:1"));
  joined.set_patience(std::chrono::seconds(1));
  v1::Envelope question;
  question.mutable_outcome_query()->set_run(1);
  question.mutable_outcome_query()->set_round(1);
  question.mutable_outcome_query()->set_sha256(std::string(32, 'x'));
  return std::make_unique<Flood>(
      1,
      [held = hold(std::move(joined)), question](std::uint64_t count) {
        (void)held->send(question);
        if (count % 100 == 0) (void)held->has_ended();
      },
      ~std::uint64_t{0});
}

Started wrong_secrets(const Scene& scene) {
  const std::string csr(as_text(identity::make_key_and_csr()->csr_der.span()));
  return std::make_unique<Flood>(1, [port = scene.enrol_port, tls = scene.stranger, csr](std::uint64_t count) {
    Result<Connection> connection = Connection::open(port, tls);
    v1::Envelope request;
    request.mutable_enrol_request()->set_token_secret(fmt::format("{:032}", count));
    request.mutable_enrol_request()->set_csr_der(csr);
    if (connection.ok() && connection->send(request).ok()) (void)connection->receive();
  });
}

Started handshakes(const Scene& scene) {
  return std::make_unique<Flood>(
      2, [port = scene.member_port, tls = scene.stranger](std::uint64_t) { (void)Connection::open(port, tls).ok(); });
}

}  // namespace

Result<Scene> Scene::of(const cli::AdminClient& admin, std::uint16_t metrics_port) {
  FLUVIAL_ASSIGN(const cli::json::value status, admin.get("/v1/status"));
  FLUVIAL_ASSIGN(const cli::json::value token,
                 admin.post("/v1/tokens",
                            cli::json::object{
                                {"role", "aggregator"}, {"name", "mallory"}, {"region", "nowhere"}, {"ttl_s", 600}}));
  FLUVIAL_ASSIGN(tree::Enrolment enrolment, enrol(cli::text_member(token, "token")));
  FLUVIAL_ASSIGN(Tls stranger, identity::TlsContext::enrol_client(cli::text_member(status, "pin")));
  return Scene{.member_port = static_cast<std::uint16_t>(cli::count_member(status, "member_port")),
               .enrol_port = static_cast<std::uint16_t>(cli::count_member(status, "enrol_port")),
               .metrics_port = metrics_port,
               .stranger = std::move(stranger),
               .member = as_child(enrolment.credentials),
               .mallory = enrolment.credentials};
}

const std::vector<BenchAttack>& bench_attacks() {
  static const std::vector<BenchAttack> attacks = {
      {"idle", 1, [](const Scene& scene) { return idle(scene.member_port); }},
      {"handshakes", 2, [](const Scene& scene) { return handshakes(scene); }},
      {"key-updates", 4, [](const Scene& scene) { return key_updates(4, scene.enrol_port, scene.stranger); }},
      {"member-keys", 4, [](const Scene& scene) { return key_updates(4, scene.member_port, scene.member); }},
      {"announced", 4, [](const Scene& scene) { return announced(4, scene); }},
      {"announced-64", 64, [](const Scene& scene) { return announced(64, scene); }},
      {"headers", 16, [](const Scene& scene) { return unfinished_headers(16, scene); }},
      {"questions", 1, [](const Scene& scene) { return outcome_queries(scene); }},
      {"wrong-tokens", 1, [](const Scene& scene) { return wrong_secrets(scene); }},
      {"metrics", 1, [](const Scene& scene) { return idle(scene.metrics_port); }},
  };
  return attacks;
}

}  // namespace fluvial::attack
