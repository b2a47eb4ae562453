#include "core/net/proxy_tunnel.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>
#include <string>
#include <string_view>

#include "core/net/await_tuple.h"

namespace fluvial::net {
namespace {

constexpr std::string_view kHttp = "HTTP/";
constexpr std::string_view kHeaderEnd = "\r\n\r\n";

bool may_be_http(std::string_view start) {
  const std::size_t size = std::min(start.size(), kHttp.size());
  return start.substr(0, size) == kHttp.substr(0, size);
}

}  // namespace

Awaitable<Status> open_tunnel(asio::ip::tcp::socket* socket, Proxy proxy, HostPort peer) {
  const std::string who = fmt::format("proxy {} (for {}): ", to_string(proxy.address), to_string(peer));
  const std::string request = tunnel_request(proxy, peer);
  const auto [write_error, written] = co_await asio::async_write(*socket, asio::buffer(request), kAwaitTuple);
  if (write_error) co_return Error{Code::kUnavailable, who + write_error.message()};
  std::string answer;
  std::size_t end = std::string::npos;
  while (end == std::string::npos) {
    std::array<char, 2048> block;
    const auto [error, count] = co_await socket->async_read_some(asio::buffer(block), kAwaitTuple);
    answer.append(block.data(), count);
    if (!may_be_http(answer)) co_return judge_answer(answer, proxy, peer);
    end = answer.find(kHeaderEnd);
    if (end != std::string::npos) break;
    if (error) co_return Error{Code::kUnavailable, who + "it closed the connection without an answer"};
    if (answer.size() > kProxyAnswerBytesMax) {
      co_return Error{Code::kUnavailable,
                      fmt::format("{}its answer has more than {} bytes", who, kProxyAnswerBytesMax)};
    }
  }
  FLUVIAL_CO_TRY(judge_answer(std::string_view(answer).substr(0, end), proxy, peer));
  if (answer.size() != end + kHeaderEnd.size()) {  // the peer speaks only after us
    co_return Error{Code::kUnavailable, who + "it sent more than an answer"};
  }
  co_return Status{};
}

}  // namespace fluvial::net
