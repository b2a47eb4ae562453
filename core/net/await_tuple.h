// What an operation of Asio's is given so that co_await yields its error beside its result and throws nothing.
#pragma once

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace fluvial::net {

inline constexpr auto kAwaitTuple = boost::asio::as_tuple(boost::asio::use_awaitable);

}  // namespace fluvial::net
