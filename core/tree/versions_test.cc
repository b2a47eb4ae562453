// A parent and children of other versions: who is let in, by which protocol, and what the others are told.
#include "core/tree/test_support.h"

namespace fluvial::tree {
namespace {

constexpr std::uint32_t kNow = wire::kProtocol;

class Versions : public HubTest {
 protected:
  explicit Versions(const wire::Protocols& parent = {}) : HubTest(parent) {}

  // What the parent answers to a child that speaks these: the protocol, or why not.
  net::Awaitable<Result<std::uint32_t>> answer(std::uint32_t oldest, std::uint32_t newest, std::uint64_t lease = 1) {
    const auto session = co_await connect(Role::kSite, 7, lease, ++incarnation_, /*hello=*/false);
    v1::Envelope message;
    v1::Hello& hello = *message.mutable_hello();
    hello.set_protocol_min(oldest);
    hello.set_protocol_max(newest);
    hello.set_software("fluvial other");
    hello.set_lease_epoch(lease);
    hello.set_incarnation(incarnation_);
    session->post({std::move(message), {}});
    const Result<net::Frame> frame = co_await receive(session);
    if (!frame.ok()) co_return frame.error();
    co_return frame->header.welcome().protocol();
  }
  net::Awaitable<void> expect_protocol(std::uint32_t oldest, std::uint32_t newest, std::uint32_t expected) {
    for (const std::uint64_t lease : {0, 1}) {
      const Result<std::uint32_t> protocol = co_await answer(oldest, newest, lease);
      EXPECT_TRUE(protocol.ok() && *protocol == expected) << oldest << " to " << newest;
    }
  }
  net::Awaitable<void> expect_refused(std::uint32_t oldest, std::uint32_t newest, std::string line) {
    for (const std::uint64_t lease : {0, 1}) {
      const Result<std::uint32_t> protocol = co_await answer(oldest, newest, lease);
      EXPECT_FALSE(protocol.ok());
      if (protocol.ok()) continue;
      EXPECT_EQ(protocol.error().code, Code::kFailedPrecondition);
      EXPECT_NE(protocol.error().message.find(line), std::string::npos) << protocol.error().message;
    }
  }

 private:
  std::uint64_t incarnation_ = 0;
};

class NextParent : public Versions {
 protected:
  NextParent() : Versions({kNow, kNow + 1}) {}
};

class ParentAfterNext : public Versions {
 protected:
  ParentAfterNext() : Versions({kNow + 1, kNow + 2}) {}
};

TEST_F(Versions, AChildOfTheFirstVersionIsToldToBeUpdated) {
  run([this] {
    return expect_refused(1, 1,
                          "the child (fluvial other) speaks protocol 1, the parent (fluvial test) speaks protocol");
  });
}

TEST_F(Versions, AChildOfTheNextVersionSpeaksOurs) {
  run([this] { return expect_protocol(kNow, kNow + 1, kNow); });
}

TEST_F(Versions, AChildThatNoLongerSpeaksOursIsToldWhomToUpdate) {
  run([this] { return expect_refused(kNow + 1, kNow + 2, "update the parent first"); });
}

TEST_F(NextParent, SpeaksTheProtocolOfTodaysChildren) {
  run([this] { return expect_protocol(wire::kProtocolOldest, kNow, kNow); });
}

TEST_F(NextParent, SpeaksTheNewOneWithWhoeverHasIt) {
  run([this] { return expect_protocol(kNow, kNow + 1, kNow + 1); });
}

TEST_F(ParentAfterNext, SendsTodaysChildrenAway) {
  run([this] { return expect_refused(wire::kProtocolOldest, kNow, "update the child first"); });
}

// A message that this version does not know is a breach, whatever was agreed: who sends one has another protocol.
TEST_F(Versions, AMessageThatIsNotKnownEndsTheSessionWithAReason) {
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    const auto session = co_await connect(Role::kSite, 7);
    v1::Envelope unknown;
    unknown.mutable_ping();
    constexpr int kNobodys = 2'000;
    unknown.GetReflection()->MutableUnknownFields(&unknown)->AddLengthDelimited(kNobodys)->assign("new");
    unknown.clear_body();
    session->post({std::move(unknown), {}});
    const Error error = co_await end_of(session);
    EXPECT_EQ(error.code, Code::kDataLoss) << error.to_string();
    EXPECT_NE(error.message.find("known here"), std::string::npos) << error.message;
  });
}

}  // namespace
}  // namespace fluvial::tree
