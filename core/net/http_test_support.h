#pragma once

#include <chrono>
#include <memory>

#include "core/base/clock.h"
#include "core/net/http.h"

namespace fluvial::net {

inline constexpr Duration kLong = std::chrono::minutes(1);  // what never runs out

inline Awaitable<void> write_until_refused(std::shared_ptr<LineWriter> out) {
  for (Status written; written.ok();) written = co_await out->write_line("more");
}

}  // namespace fluvial::net
