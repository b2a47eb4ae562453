#include "core/net/connector.h"

#include <boost/asio/connect.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <charconv>
#include <optional>
#include <utility>
#include <vector>

#include "core/base/printable.h"
#include "core/net/await_tuple.h"
#include "core/net/deadline.h"
#include "core/net/greeting.h"
#include "core/net/proxy.h"
#include "core/net/proxy_tunnel.h"
#include "core/net/run_on.h"
#include "core/net/signal.h"

namespace fluvial::net {
namespace {

using Tcp = asio::ip::tcp;
using Endpoints = std::vector<Tcp::endpoint>;

// A look-up cannot be interrupted: it runs on a thread of Asio's and may outlive our patience, so nothing of the
// caller's belongs to it.
struct Lookup : std::enable_shared_from_this<Lookup> {
  explicit Lookup(const Executor& executor) : resolver(executor), finished(executor) {}

  void start(const HostPort& address) {
    resolver.async_resolve(
        address.host, std::to_string(address.port),
        [self = shared_from_this()](const boost::system::error_code& code, const Tcp::resolver::results_type& found) {
          self->error = code;
          for (const auto& entry : found) self->endpoints.push_back(entry.endpoint());
          self->done = true;
          self->finished.notify_all();
        });
  }
  static Awaitable<void> wait(std::shared_ptr<Lookup> self) {
    while (!self->done) co_await self->finished.wait();
  }

  Tcp::resolver resolver;
  AsyncSignal finished;
  bool done = false;
  boost::system::error_code error;
  Endpoints endpoints;
};

struct Dial {
  Executor strand;
  HostPort address;
  const Proxy* proxy;  // of the settings' rules; none: directly
  std::shared_ptr<const identity::TlsContext> tls;
  SessionSettings settings;
  std::shared_ptr<NetHooks> hooks;
  Admission admission;
  std::optional<Result<std::shared_ptr<Session>>> outcome;

  std::string text() const { return to_string(address); }
  const HostPort& first() const { return proxy == nullptr ? address : proxy->address; }  // what is dialled
};

Error failed(const Dial& dial, Code code, const std::string& what) { return {code, dial.text() + ": " + what}; }
Error failed_first(const Dial& dial, const std::string& what) {
  if (dial.proxy == nullptr) return failed(dial, Code::kUnavailable, what);
  return {Code::kUnavailable, "proxy " + to_string(dial.first()) + " (for " + dial.text() + "): " + what};
}

Awaitable<Result<Endpoints>> resolve(std::shared_ptr<Dial> dial) {
  boost::system::error_code error;
  const auto literal = asio::ip::make_address(dial->first().host, error);
  if (!error) co_return Endpoints{Tcp::endpoint(literal, dial->first().port)};
  auto lookup = std::make_shared<Lookup>(dial->strand);
  lookup->start(dial->first());
  const Status in_time = co_await with_deadline(Lookup::wait(lookup), dial->settings.resolve_deadline);
  if (!in_time.ok()) co_return failed_first(*dial, "the name was not resolved in time");
  if (lookup->error) co_return failed_first(*dial, "cannot resolve the name: " + lookup->error.message());
  co_return std::move(lookup->endpoints);
}

Awaitable<Result<Tcp::socket>> reach(std::shared_ptr<Dial> dial, Endpoints endpoints) {
  Tcp::socket socket(dial->strand);
  const auto [error, endpoint] = co_await asio::async_connect(socket, endpoints, kAwaitTuple);
  if (error) co_return failed_first(*dial, "cannot connect: " + error.message());
  co_return std::move(socket);
}

// Through the proxy, when there is one.
Awaitable<Status> tunnel(std::shared_ptr<Dial> dial, Tcp::socket* socket) {
  if (dial->proxy == nullptr) co_return Status{};
  const Status opened =
      co_await with_deadline(open_tunnel(socket, *dial->proxy, dial->address), dial->settings.tunnel_deadline);
  if (!opened.ok() && opened.error().code == Code::kDeadlineExceeded) {
    co_return failed_first(*dial, "no answer in time");
  }
  co_return opened;
}

Awaitable<Result<std::shared_ptr<Session>>> open_session(std::shared_ptr<Dial> dial) {
  FLUVIAL_CO_ASSIGN(Endpoints endpoints, co_await resolve(dial));
  auto socket = co_await with_deadline(reach(dial, std::move(endpoints)), dial->settings.connect_deadline);
  if (!socket.ok() && socket.error().code == Code::kDeadlineExceeded) {
    co_return failed_first(*dial, "cannot connect: no answer in time");
  }
  if (!socket.ok()) co_return socket.error();
  FLUVIAL_CO_TRY(co_await tunnel(dial, &*socket));
  auto greeted = co_await with_deadline(greet_server(std::move(*socket), dial->tls, dial->text()),
                                        dial->settings.handshake_deadline);
  if (!greeted.ok() && greeted.error().code == Code::kDeadlineExceeded) {
    co_return failed(*dial, Code::kUnavailable, "no TLS handshake in time");
  }
  if (!greeted.ok()) co_return greeted.error();
  if (dial->admission && greeted->peer) {
    if (const Status admitted = dial->admission(*greeted->peer); !admitted.ok()) {
      co_return failed(*dial, admitted.error().code, admitted.error().message);
    }
  }
  co_return start_session(std::move(greeted->stream), std::move(greeted->peer), dial->settings, dial->hooks);
}

Awaitable<void> dial_up(std::shared_ptr<Dial> dial) { dial->outcome.emplace(co_await open_session(dial)); }

}  // namespace

Awaitable<Result<std::shared_ptr<Session>>> connect(Executor executor, std::string host, std::uint16_t port,
                                                    std::shared_ptr<const identity::TlsContext> tls,
                                                    SessionSettings settings, std::shared_ptr<NetHooks> hooks,
                                                    Admission admission) {
  FLUVIAL_CHECK(tls && !tls->is_server(), "connect() needs a client's TLS context");
  const HostPort address{std::move(host), port};
  auto dial = std::make_shared<Dial>(Dial{.strand = asio::make_strand(executor),
                                          .address = address,
                                          .proxy = settings.proxy ? settings.proxy->of(address) : nullptr,
                                          .tls = std::move(tls),
                                          .settings = settings,
                                          .hooks = std::move(hooks),
                                          .admission = std::move(admission),
                                          .outcome = {}});
  co_await run_on(dial->strand, dial_up(dial));
  co_return std::move(*dial->outcome);
}

Result<HostPort> parse_host_port(std::string_view text) {
  const auto wrong = [text] {
    return Error{Code::kInvalidArgument, "'" + printable(text, 300) + "': expected host:port, such as 192.0.2.7:7443"};
  };
  const std::size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return wrong();
  std::string_view host = text.substr(0, colon);
  const std::string_view digits = text.substr(colon + 1);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') {
    host = host.substr(1, host.size() - 2);
    if (host.find(':') == std::string_view::npos || host.find_first_of("[]") != std::string_view::npos) return wrong();
  } else if (host.find_first_of(":[]") != std::string_view::npos) {
    return wrong();
  }
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (host.empty() || host.size() > 255 || error != std::errc() || end != digits.data() + digits.size()) {
    return wrong();
  }
  return HostPort{std::string(host), port};
}

std::string to_string(const HostPort& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  return (v6 ? "[" + address.host + "]" : address.host) + ":" + std::to_string(address.port);
}

}  // namespace fluvial::net
