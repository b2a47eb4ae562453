// Transfers that are cut off and go on, and submissions that contradict themselves, on real sessions.
#include <gmock/gmock.h>

#include <limits>
#include <utility>

#include "core/net/signal.h"
#include "core/tree/test_support.h"

namespace fluvial::tree {
namespace {

using testing::ElementsAre;

constexpr std::uint64_t kChunkBytes = kChunkValues * sizeof(float);

class ResumeScenarios : public HubTest {
 protected:
  using Session = std::shared_ptr<net::Session>;

  static v1::Envelope begin_at(std::uint64_t first_chunk, std::uint64_t submission = 9, std::uint64_t incarnation = 1) {
    v1::Envelope message = begin(7);
    message.mutable_update_begin()->mutable_key()->set_submission(submission);
    message.mutable_update_begin()->mutable_key()->set_incarnation(incarnation);
    message.mutable_update_begin()->set_first_chunk(first_chunk);
    return message;
  }
  void open_round() { hub_->book().open(RunId(1), RoundId(1)); }
  // Everything posted before has been looked at when this returns.
  net::Awaitable<void> settle(Session session) {
    net::AsyncSignal asked(process_.runtime().strand);
    bool seen = false;
    owner_.on_outcome_asked = [&] {
      seen = true;
      asked.notify_all();
    };
    v1::Envelope query;
    query.mutable_outcome_query()->set_site(7);
    session->post({std::move(query), {}});
    while (!seen) co_await asked.wait();
    owner_.on_outcome_asked = nullptr;
  }
  // A session that ends without a word after the first two chunks, and the next one.
  net::Awaitable<Session> cut_after_two(std::vector<float> values, std::uint64_t next_incarnation = 1) {
    const Session first = co_await connect(Role::kSite, 7);
    first->post({begin_at(0), {}});
    for (std::size_t i = 0; i < 2; ++i) post_chunk(first, i, chunk_bytes(values, i));
    co_await settle(first);
    EXPECT_EQ(hub_->budget().bytes_used(), 2 * kChunkBytes);
    first->close({Code::kUnavailable, "the line is dead"}, false);
    co_return co_await connect(Role::kSite, 7, 1, next_incarnation);
  }

  net::Awaitable<void> goes_on() {
    open_round();
    const std::vector<float> values(kValues, 0.5f);
    const Session second = co_await cut_after_two(values);
    EXPECT_EQ(hub_->book().received(NodeId(7)), (wire::Received{Incarnation(1), 9, 2}));
    const std::uint64_t before = hub_->payload_bytes_in();
    second->post({begin_at(2), {}});
    post_chunk(second, 2, chunk_bytes(values, 2));
    post_end(second, sha256(std::as_bytes(std::span(values))));
    co_await settle(second);
    EXPECT_EQ(hub_->payload_bytes_in() - before, kValues * sizeof(float) - 2 * kChunkBytes)
        << "what was sent is not sent again";
    EXPECT_EQ(owner_.arrivals.size(), 1u);
    EXPECT_EQ(owner_.arrivals.at(0).chunks->total_bytes(), kValues * sizeof(float));
    EXPECT_TRUE(owner_.refusals.empty());
    owner_.arrivals.clear();
    EXPECT_EQ(hub_->budget().bytes_used(), 0u);
  }

  net::Awaitable<void> another_incarnation() {
    open_round();
    const std::vector<float> values(kValues, 0.5f);
    const Session second = co_await cut_after_two(values, /*next_incarnation=*/2);
    const std::vector<float> trained_again(kValues, 0.75f);
    second->post({begin_at(0, 10, 2), {}});
    co_await settle(second);
    EXPECT_EQ(hub_->budget().bytes_used(), 0u) << "what the one before sent is let go";
    for (std::size_t i = 0; i < 3; ++i) post_chunk(second, i, chunk_bytes(trained_again, i));
    post_end(second, sha256(std::as_bytes(std::span(trained_again))));
    co_await settle(second);
    EXPECT_EQ(owner_.arrivals.size(), 1u);
    EXPECT_TRUE(owner_.refusals.empty()) << "a restarted site is nobody's liar";
  }

  net::Awaitable<void> wrong_first_chunk(std::vector<v1::Envelope> wrong) {
    open_round();
    const std::vector<float> values(kValues, 0.5f);
    Session session = co_await cut_after_two(values);
    for (const v1::Envelope& message : wrong) {
      session->post({message, {}});
      post_chunk(session, message.update_begin().first_chunk(), chunk_bytes(values, 2));  // skipped
      const v1::Receipt receipt = co_await next_receipt(session);
      EXPECT_EQ(receipt.code(), wire::code_to_proto(Code::kUnavailable)) << message.ShortDebugString();
      EXPECT_EQ(hub_->budget().bytes_used(), 0u);
    }
    EXPECT_TRUE(owner_.refusals.empty()) << "it may begin anew";
    session->post({begin_at(0), {}});
    for (std::size_t i = 0; i < 3; ++i) post_chunk(session, i, chunk_bytes(values, i));
    post_end(session, sha256(std::as_bytes(std::span(values))));
    co_await settle(session);
    EXPECT_EQ(owner_.arrivals.size(), 1u);
  }

  net::Awaitable<void> round_closes() {
    open_round();
    const Session second = co_await cut_after_two(std::vector<float>(kValues, 0.5f));
    EXPECT_EQ(hub_->budget().bytes_used(), 2 * kChunkBytes) << "it counts while it is kept";
    hub_->book().close();
    EXPECT_EQ(hub_->budget().bytes_used(), 0u);
  }

  net::Awaitable<void> contradiction() {
    open_round();
    const std::vector<float> first(kValues, 0.5f);
    const std::vector<float> second(kValues, 0.75f);
    const Session session = co_await connect(Role::kSite, 7);
    post_update(session, 7, first);
    post_update(session, 7, second);
    const v1::Receipt conflict = co_await next_receipt(session);
    EXPECT_EQ(conflict.code(), wire::code_to_proto(Code::kConflict)) << conflict.message();
    EXPECT_EQ(owner_.refusals.size(), 1u);
    EXPECT_EQ(owner_.refusals.at(0).error.code, Code::kConflict);
    EXPECT_EQ(owner_.arrivals.size(), 1u);

    owner_.counts_already = true;  // and when it is turned away at the door
    post_update(session, 7, second);
    std::vector<std::uint32_t> codes;
    for (int i = 0; i < 2; ++i) {
      const v1::Receipt receipt = co_await next_receipt(session);
      codes.push_back(receipt.code());
    }
    EXPECT_THAT(codes, ElementsAre(wire::code_to_proto(Code::kAlreadyExists), wire::code_to_proto(Code::kConflict)));
    EXPECT_EQ(owner_.refusals.size(), 2u);
    post_update(session, 7, first);
    const v1::Receipt again = co_await next_receipt(session);
    EXPECT_EQ(again.code(), wire::code_to_proto(Code::kAlreadyExists));
    co_await settle(session);
    EXPECT_EQ(owner_.refusals.size(), 2u) << "the same again is harmless";
  }
};

TEST_F(ResumeScenarios, ATransferGoesOnAfterAReconnect) {
  run([this] { return goes_on(); });
}
TEST_F(ResumeScenarios, AnotherIncarnationStartsOver) {
  run([this] { return another_incarnation(); });
}
TEST_F(ResumeScenarios, AWrongFirstChunkIsRefusedAndTheSenderMayBeginAnew) {
  run([this] {
    return wrong_first_chunk({begin_at(1), begin_at(2), begin_at(3),
                              begin_at(std::numeric_limits<std::uint64_t>::max()), begin_at(2, 10), begin_at(2, 9, 5)});
  });
}
TEST_F(ResumeScenarios, WhatIsKeptGoesWithItsRound) {
  run([this] { return round_closes(); });
}
TEST_F(ResumeScenarios, OneSubmissionWithTwoContentsIsAConflict) {
  run([this] { return contradiction(); });
}

}  // namespace
}  // namespace fluvial::tree
