// When a node's process ends, and what it says then.
#include "core/tree/process.h"

#include <gmock/gmock.h>

#include <stdexcept>

#include "core/net/signal.h"
#include "core/store/memory_file_system.h"

namespace fluvial::tree {
namespace {

using ::testing::HasSubstr;

net::Awaitable<void> fail_at_once() {
  throw std::runtime_error("no memory");
  co_return;
}

net::Awaitable<void> until_told(net::AsyncSignal* stopped) { co_await stopped->wait(); }

class ProcessTest : public ::testing::Test {
 protected:
  static config::CommonSettings settings() {
    config::CommonSettings settings;
    settings.data_dir = "/node";
    settings.metrics_listen = "off";
    return settings;
  }
  Status run() {
    return process_.run([this] { stopped_.notify_all(); });
  }

  store::MemoryFileSystem files_;
  std::shared_ptr<telemetry::CaptureSink> log_ = std::make_shared<telemetry::CaptureSink>();
  Process process_{settings(), Role::kAggregator, files_, telemetry::Logger(log_)};
  net::AsyncSignal stopped_{process_.runtime().strand};
};

TEST_F(ProcessTest, EndsAndSaysWhyWhenSomethingVitalFails) {
  process_.spawn("others", until_told(&stopped_));
  process_.spawn_vital("sum", fail_at_once());
  const Status ended = run();
  ASSERT_FALSE(ended.ok());
  EXPECT_EQ(ended.error().code, Code::kInternal);
  EXPECT_THAT(ended.error().message, HasSubstr("\"sum\" failed: no memory"));
  EXPECT_TRUE(log_->contains("the process ends"));
}

TEST_F(ProcessTest, GoesOnWithoutWhatIsNot) {
  process_.spawn("others", until_told(&stopped_));
  process_.spawn("one connection", fail_at_once());
  process_.spawn("later", [](Process* process) -> net::Awaitable<void> {
    process->request_stop();
    co_return;
  }(&process_));
  EXPECT_TRUE(run().ok());
  EXPECT_TRUE(log_->contains("task failed; the process goes on without it"));
}

}  // namespace
}  // namespace fluvial::tree
