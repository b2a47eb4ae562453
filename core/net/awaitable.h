// The two Asio types that appear in signatures. Light: includes no sockets, timers or spawning.
#pragma once

#include <boost/asio/any_io_executor.hpp>
#include <boost/asio/awaitable.hpp>

namespace fluvial::net {

namespace asio = boost::asio;
using Executor = asio::any_io_executor;
template <typename T>
using Awaitable = asio::awaitable<T>;

}  // namespace fluvial::net
