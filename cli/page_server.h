// For the room's tests: a process that answers with given pages, at a port of its own or a Unix socket.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "core/net/http.h"
#include "core/net/test_support.h"

namespace fluvial::cli {

struct Page {
  int status = 200;
  std::string text;
};
using Pages = std::map<std::string, Page>;  // by path; what is not there is not found

class PageServer {
 public:
  explicit PageServer(Pages pages, const net::HttpAddress& at = net::TcpAddress{"127.0.0.1", 0}) {
    auto opened = net::HttpServer::open(threads_.executor(), at, {}, std::make_shared<net::RecordingHooks>());
    EXPECT_TRUE(opened.ok()) << opened.error().to_string();
    server_ = std::move(*opened);
    const auto answer = [pages = std::move(pages)](const net::HttpRequest& request) {
      const auto found = pages.find(request.path);
      return give(found == pages.end() ? Page{404, "no such page\n"} : found->second);
    };
    running_ = net::asio::co_spawn(threads_.executor(), server_->run(answer), net::asio::use_future);
  }
  ~PageServer() {
    server_->stop();
    running_.get();
  }
  PageServer(const PageServer&) = delete;
  PageServer& operator=(const PageServer&) = delete;
  std::uint16_t port() const { return server_->port(); }

 private:
  static net::Awaitable<net::HttpResponse> give(Page page) {
    co_return net::HttpResponse::text(page.status, std::move(page.text));
  }
  net::Threads threads_;
  std::shared_ptr<net::HttpServer> server_;
  std::future<void> running_;
};

}  // namespace fluvial::cli
