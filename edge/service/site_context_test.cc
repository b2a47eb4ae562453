#include "edge/service/site_context.h"

#include <stdexcept>

#include "edge/service/test_support.h"

namespace fluvial::edge {
namespace {

net::Awaitable<void> throw_one() {
  throw std::runtime_error("no memory");
  co_return;
}

class FailureReport final : public SiteReport {
 public:
  void failed(std::string_view what, const Error& error) override {
    said_ += std::string(what) + ": " + error.message + "\n";
  }
  std::string said_;
};

// The machine waits for what such a task was to do: a site that goes on would never take part again.
TEST(SiteContextTest, ASiteEndsOnceByATaskThatThrows) {
  TestRuntime runtime;
  net::TaskGroup tasks(runtime.get().strand);
  WorkerOutcomes outcomes;
  FailureReport report;
  int stops = 0;
  SiteContext site{.runtime = runtime.get(),
                   .tasks = tasks,
                   .self = SiteId(7),
                   .store = runtime.open_store(),
                   .gpus = nullptr,
                   .report = report,
                   .outcomes = outcomes,
                   .request_stop = [&] { ++stops; },
                   .is_over = [](RunId) { return false; },
                   .stopped = net::AsyncSignal(runtime.get().strand)};
  for (const char* what : {"encode", "fold"}) {
    site.spawn(what, throw_one());
    runtime.threads().run(tasks.join());
  }
  EXPECT_EQ(stops, 1);
  EXPECT_EQ(report.said_, "task \"encode\": no memory\n");
  ASSERT_TRUE(site.failure);
  EXPECT_EQ(site.failure->code, Code::kInternal);
}

}  // namespace
}  // namespace fluvial::edge
