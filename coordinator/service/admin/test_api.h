// The admin API for tests: the real root, journal and models, and no members.
#pragma once

#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "coordinator/service/admin/resources.h"
#include "coordinator/service/run_report.h"
#include "core/tree/test_runtime.h"

namespace fluvial::coordinator::admin {

class ApiTest : public testing::Test {
 protected:
  explicit ApiTest(std::initializer_list<void (*)(Router&)> resources) {
    journal_ = store::CoordinatorJournal::open(test_.files(), "/journal.sqlite").value();
    models_.emplace(store::ModelStore::open(test_.files(), "/models").value());
    report_.emplace(runtime_.metrics, telemetry::null_logger(), feed_, [](NodeId) { return std::string("somebody"); });
    root_.emplace(runtime_, tasks_, Root::Keeps{*journal_, *models_, journal_->next_epoch().value()}, *report_,
                  tree::HubOptions{}, FailoverSettings{});
    context_.emplace(runtime_, *journal_, *models_, *root_, feed_);
    router_.emplace(&*context_);
    for (const auto add : resources) add(*router_);
  }
  ~ApiTest() override {
    test_.on_strand([&] { root_->runs().stop(); });
    test_.run(join());
  }

  void begin() {  // once everybody is enrolled
    ASSERT_TRUE(root_->load().ok());
    test_.run(root_->runs().take_up());
  }
  net::HttpResponse ask(const std::string& method, const std::string& path, std::string body = {}) {
    net::HttpRequest request;
    request.method = method;
    request.path = path;
    request.body = std::move(body);
    return test_.run(router_->answer(std::move(request), {.access = Access::kFull}));
  }

  tree::TestRuntime test_{Role::kCoordinator};
  tree::Runtime& runtime_ = test_.get();
  net::TaskGroup tasks_{runtime_.strand};
  Feed feed_{runtime_.strand};
  std::unique_ptr<store::CoordinatorJournal> journal_;
  std::optional<store::ModelStore> models_;
  std::optional<RunReport> report_;
  std::optional<Root> root_;
  std::optional<Context> context_;
  std::optional<Router> router_;

 private:
  net::Awaitable<void> join() { co_await tasks_.join(); }
};

}  // namespace fluvial::coordinator::admin
