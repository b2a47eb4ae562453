#include "tests/house/sends.h"

#include <gtest/gtest.h>

namespace fluvial::house {
namespace {

std::size_t sends_found(const std::string& text) { return check_sends({"a.cc", text}).size(); }

TEST(Sends, AreNotCastToVoid) {
  EXPECT_EQ(sends_found("  (void)session->send(frame);\n"), 1u);
  EXPECT_EQ(sends_found("  (void)co_await session->send(frame);\n"), 1u);
  EXPECT_EQ(sends_found("  static_cast<void>(out->write_line(text));\n"), 1u);
  EXPECT_EQ(sends_found("  (void)!::sendto(fd, text.data(), text.size(), 0, to, size);\n"), 1u);
  EXPECT_EQ(sends_found("  (void)FrameWriter(body).write(socket);  // the owner's log has the reason\n"), 0u);
  EXPECT_EQ(sends_found("  (void)sleeper.wait();\n"), 0u);
}

TEST(Sends, DoNotEndAFunctionInSilence) {
  EXPECT_EQ(sends_found("const Status sent = co_await session->send(frame);\nif (!sent.ok()) co_return;\n"), 1u);
  EXPECT_EQ(
      sends_found("const Status sent =\n    co_await with_deadline(out->write_line(x), y);\nif (!sent.ok()) return;\n"),
      1u);
  EXPECT_EQ(sends_found("const Status told = co_await send_in_turn(a, b);\n(void)told;\n"), 1u);
  EXPECT_EQ(sends_found("const Status sent = co_await session->send(frame);\nif (!sent.ok()) co_return sent;\n"), 0u);
  EXPECT_EQ(
      sends_found("const Status sent = co_await session->send(frame);\nif (!sent.ok()) co_return;  // it is over\n"),
      0u);
  EXPECT_EQ(sends_found("const Status read = co_await session->receive();\nif (!read.ok()) co_return;\n"), 0u);
}

}  // namespace
}  // namespace fluvial::house
