#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "server/http_server.h"
#include "server/raw_client.h"

namespace kvasir::testing {

using namespace std::chrono_literals;

// Answers /echo with the body at once, /hold when told to, /stream with an endless stream of `a`.
class TestHandler final : public HttpHandler {
 public:
  std::optional<HttpResponse> screen(const HttpRequest& head) override {
    if (head.path == "/refused") return transport_error(404, "refused");
    return std::nullopt;
  }
  void handle(std::shared_ptr<HttpExchange> exchange) override {
    const std::string path = exchange->request().path;
    if (path == "/echo") return exchange->respond({200, "text/plain", {}, exchange->request().body});
    if (path == "/dropped") return;
    exchange->on_disconnect([this] { ++disconnects; });
    if (path == "/stream" || path == "/quiet")
      exchange->start_stream({200, "text/event-stream", {}, ""}, ": ping\n\n");
    if (path == "/flood") {
      exchange->start_stream({200, "text/plain", {}, ""}, {});
      for (int i = 0; i < 64; ++i) exchange->write(std::string(16 << 10, 'a'));
    }
    const std::lock_guard lock(mutex);
    held.push_back(std::move(exchange));
  }
  HttpResponse transport_error(int status, std::string_view message) override {
    return {status, "application/json", {}, std::string(message)};
  }
  std::vector<HttpHeader> common_headers(const HttpRequest& request) override {
    return {{"X-Request-Id", request.id}};
  }
  void finished(const HttpRequest&, int status, double) override { last_status = status; }

  std::shared_ptr<HttpExchange> take_held() {
    for (int i = 0; i < 1000; ++i) {
      {
        const std::lock_guard lock(mutex);
        if (!held.empty()) {
          auto exchange = std::move(held.back());
          held.pop_back();
          return exchange;
        }
      }
      std::this_thread::sleep_for(2ms);
    }
    return nullptr;
  }

  std::atomic<int> disconnects{0};
  std::atomic<int> last_status{0};
  std::mutex mutex;
  std::vector<std::shared_ptr<HttpExchange>> held;
};

class HttpServerTest : public ::testing::Test {
 protected:
  void start(HttpServerConfig config = {}) {
    config.port = 0;
    auto server = HttpServer::listen(config, handler_);
    ASSERT_TRUE(server.ok()) << server.message();
    server_ = std::move(*server);
    server_->start();
  }
  RawClient::Answer ask(std::string_view bytes) {
    RawClient client(server_->port());
    EXPECT_TRUE(client.send(bytes));
    return client.receive_answer();
  }
  template <class Condition>
  bool eventually(Condition condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(2ms);
    }
    return false;
  }

  TestHandler handler_;
  std::unique_ptr<HttpServer> server_;
};

inline std::string post(std::string_view path, std::string_view body, std::string_view more = "") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n" + std::string(more) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

}  // namespace kvasir::testing
