// A gate between client and server, for tests: forwards TCP, and records, slices or cuts what passes.
#pragma once

#include <atomic>
#include <boost/asio/as_tuple.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/strand.hpp>
#include <boost/asio/write.hpp>
#include <limits>
#include <memory>
#include <mutex>
#include <string>

#include "core/net/task_group.h"
#include "core/net/test_support.h"

namespace fluvial::net {

struct GateOptions {
  std::size_t slice_bytes_max = 0;  // when set: forwards 1 to this many bytes at a time
  std::uint64_t cut_after_bytes = std::numeric_limits<std::uint64_t>::max();  // both directions together
  bool cut_once = false;                                                      // what comes after the first cut passes
  std::uint64_t flip_byte = std::numeric_limits<std::uint64_t>::max();  // one bit of this one; both directions together
  bool record = false;
};

class Gate {
 public:
  Gate(Threads& threads, std::uint16_t target, GateOptions options)
      : threads_(threads), state_(std::make_shared<State>(threads.executor(), target, options)) {
    state_->tasks.spawn(state_->strand, "gate", accept(state_));
  }
  ~Gate() {
    asio::post(state_->strand, [state = state_] {
      boost::system::error_code ignored;
      state->acceptor.close(ignored);
    });
    state_->tasks.cancel();
    threads_.run(state_->tasks.join());
  }
  std::uint16_t port() const { return state_->port; }
  std::uint64_t passed() const { return state_->passed; }
  std::string recorded() const {
    const std::lock_guard lock(state_->mutex);
    return state_->recorded;
  }

 private:
  using Tcp = asio::ip::tcp;

  struct State {
    State(const Executor& executor, std::uint16_t target_port, const GateOptions& how)
        : strand(asio::make_strand(executor)),
          acceptor(strand, Tcp::endpoint(asio::ip::address_v4::loopback(), 0)),
          port(acceptor.local_endpoint().port()),
          target(asio::ip::address_v4::loopback(), target_port),
          options(how),
          tasks(executor) {}
    Executor strand;
    Tcp::acceptor acceptor;
    const std::uint16_t port;
    const Tcp::endpoint target;
    const GateOptions options;
    TaskGroup tasks;
    std::atomic<std::uint64_t> passed = 0;
    mutable std::mutex mutex;
    std::string recorded;
  };
  struct Pair {
    explicit Pair(const Executor& executor) : strand(asio::make_strand(executor)), client(strand), server(strand) {}
    void close() {
      boost::system::error_code ignored;
      client.close(ignored);
      server.close(ignored);
    }
    Executor strand;
    Tcp::socket client;
    Tcp::socket server;
  };
  static constexpr auto kTuple = asio::as_tuple(asio::use_awaitable);

  static Awaitable<void> accept(std::shared_ptr<State> state) {
    for (;;) {
      auto pair = std::make_shared<Pair>(state->strand);
      const auto [error] = co_await state->acceptor.async_accept(pair->client, kTuple);
      if (error) co_return;
      state->tasks.spawn(pair->strand, "pair", connect(state, pair));
    }
  }
  static Awaitable<void> connect(std::shared_ptr<State> state, std::shared_ptr<Pair> pair) {
    const auto [error] = co_await pair->server.async_connect(state->target, kTuple);
    if (error) co_return pair->close();
    state->tasks.spawn(pair->strand, "up", pump(state, pair, &pair->client, &pair->server));
    state->tasks.spawn(pair->strand, "down", pump(state, pair, &pair->server, &pair->client));
  }
  static Awaitable<void> pump(std::shared_ptr<State> state, std::shared_ptr<Pair> pair, Tcp::socket* from,
                              Tcp::socket* to) {
    std::vector<char> block(64 * 1024);
    Rng rng(state->options.slice_bytes_max);
    for (;;) {
      const std::size_t slice_max = state->options.slice_bytes_max;
      const std::size_t ask = slice_max == 0 ? block.size() : 1 + rng.below(slice_max);
      const auto [read_error, count] = co_await from->async_read_some(asio::buffer(block.data(), ask), kTuple);
      const std::uint64_t before = state->passed.fetch_add(count);
      const std::uint64_t cut = state->options.cut_after_bytes;
      const std::uint64_t allowed = state->options.cut_once && before >= cut ? count : cut - std::min(before, cut);
      const std::size_t forwarded = std::min<std::uint64_t>(count, allowed);
      if (const std::uint64_t flip = state->options.flip_byte; flip >= before && flip - before < forwarded) {
        block[flip - before] ^= 1;
      }
      if (state->options.record) {
        const std::lock_guard lock(state->mutex);
        state->recorded.append(block.data(), forwarded);
      }
      const auto [write_error, written] =
          co_await asio::async_write(*to, asio::buffer(block.data(), forwarded), kTuple);
      if (forwarded < count || write_error) co_return pair->close();
      if (read_error) {
        boost::system::error_code ignored;
        to->shutdown(Tcp::socket::shutdown_send, ignored);
        co_return;
      }
    }
  }

  Threads& threads_;
  std::shared_ptr<State> state_;
};

}  // namespace fluvial::net
