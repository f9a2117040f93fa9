#include "server/http_server.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>

#include "server/raw_client.h"

namespace kvasir {
namespace {

using testing::RawClient;
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
      exchange->start_stream({200, "text/plain", {}, ""}, "");
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

std::string post(std::string_view path, std::string_view body, std::string_view more = "") {
  return "POST " + std::string(path) + " HTTP/1.1\r\nHost: x\r\n" + std::string(more) +
         "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + std::string(body);
}

TEST_F(HttpServerTest, AnswersSeveralRequestsOnOneConnection) {
  start();
  RawClient client(server_->port());
  for (int i = 0; i < 3; ++i) {
    client.send(post("/echo", "hello" + std::to_string(i)));
    const auto answer = client.receive_answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "hello" + std::to_string(i));
    EXPECT_FALSE(answer.header("Date").empty());
  }
  EXPECT_EQ(server_->counters().accepted_total, 1u);
}

TEST_F(HttpServerTest, AnswersPipelinedRequestsInOrder) {
  start();
  RawClient client(server_->port());
  std::string all;
  for (int i = 0; i < 50; ++i) all += post("/echo", std::to_string(i));
  client.send(all);
  for (int i = 0; i < 50; ++i) EXPECT_EQ(client.receive_answer().body, std::to_string(i));
}

TEST_F(HttpServerTest, PipelinedRequestWaitsForTheOneBefore) {
  start();
  RawClient client(server_->port());
  client.send(post("/hold", "") + post("/echo", "second"));
  auto held = handler_.take_held();
  ASSERT_TRUE(held);
  EXPECT_FALSE(client.receive_some(50));
  held->respond({200, "text/plain", {}, "first"});
  EXPECT_EQ(client.receive_answer().body, "first");
  EXPECT_EQ(client.receive_answer().body, "second");
}

TEST_F(HttpServerTest, ReadsARequestByteByByte) {
  start();
  RawClient client(server_->port());
  for (const char c : post("/echo", "slow but sure")) client.send(std::string_view(&c, 1));
  EXPECT_EQ(client.receive_answer().body, "slow but sure");
}

TEST_F(HttpServerTest, ReadsChunkedBodies) {
  start();
  const auto answer =
      ask("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: "
          "chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n");
  EXPECT_EQ(answer.body, "abcde");
}

TEST_F(HttpServerTest, SendsContinueBeforeTheBody) {
  start();
  RawClient client(server_->port());
  client.send("POST /echo HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
  ASSERT_TRUE(client.receive_until("HTTP/1.1 100 Continue\r\n\r\n"));
  client.received().clear();
  client.send("ok");
  EXPECT_EQ(client.receive_answer().body, "ok");
}

TEST_F(HttpServerTest, RefusesBeforeReadingTheBody) {
  start();
  RawClient client(server_->port());
  client.send("POST /refused HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 5000000\r\n\r\n");
  const auto answer = client.receive_answer();
  EXPECT_EQ(answer.status, 404);
  EXPECT_EQ(answer.header("Connection"), "close");
  EXPECT_TRUE(client.receive_to_end());
}

TEST_F(HttpServerTest, HeadHasNoBody) {
  start();
  RawClient client(server_->port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n" + post("/echo", "next"));
  EXPECT_EQ(client.receive_answer(false).status, 200);
  EXPECT_EQ(client.receive_answer().body, "next");
}

TEST_F(HttpServerTest, Http10ClosesAfterTheAnswer) {
  start();
  RawClient client(server_->port());
  client.send("GET /echo HTTP/1.0\r\n\r\n");
  EXPECT_EQ(client.receive_answer().status, 200);
  EXPECT_TRUE(client.receive_to_end());
}

TEST_F(HttpServerTest, Http10StreamsWithoutChunks) {
  start();
  RawClient client(server_->port());
  client.send("GET /stream HTTP/1.0\r\n\r\n");
  auto held = handler_.take_held();
  ASSERT_TRUE(held);
  held->write("data");
  held->finish();
  ASSERT_TRUE(client.receive_to_end());
  EXPECT_THAT(client.received(), ::testing::EndsWith("\r\n\r\ndata"));
}

TEST_F(HttpServerTest, MalformedRequestIsAnsweredAndTheServerLives) {
  start();
  RawClient client(server_->port());
  client.send("\x16\x03\x01garbage\r\n\r\n");
  EXPECT_EQ(client.receive_answer().status, 400);
  EXPECT_TRUE(client.receive_to_end());
  EXPECT_EQ(ask(post("/echo", "alive")).body, "alive");
}

TEST_F(HttpServerTest, CountsChunkedBodiesAgainstTheLimit) {
  HttpServerConfig config;
  config.limits.body_bytes = 1000;
  start(config);
  std::string body;
  for (int i = 0; i < 20; ++i) body += "64\r\n" + std::string(100, 'x') + "\r\n";
  EXPECT_EQ(
      ask("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body + "0\r\n\r\n").status,
      413);
}

TEST_F(HttpServerTest, LeavingIsSeenWhileAnswering) {
  start();
  for (const bool streamed : {false, true}) {
    for (const bool reset : {false, true}) {
      const int before = handler_.disconnects;
      RawClient client(server_->port());
      client.send(post(streamed ? "/stream" : "/hold", ""));
      auto held = handler_.take_held();
      ASSERT_TRUE(held);
      if (reset)
        client.reset();
      else
        client.close();
      EXPECT_TRUE(eventually([&] { return handler_.disconnects == before + 1; }));
      held->write("nobody hears this");
      held->finish();
    }
  }
  EXPECT_TRUE(eventually([&] { return server_->counters().connections == 0; }));
  EXPECT_EQ(server_->counters().exchanges, 0u);
}

TEST_F(HttpServerTest, HalfCloseCountsAsLeaving) {
  start();
  RawClient client(server_->port());
  client.send(post("/hold", ""));
  auto held = handler_.take_held();
  client.half_close();
  EXPECT_TRUE(eventually([&] { return handler_.disconnects == 1; }));
}

TEST_F(HttpServerTest, HalfCloseAfterAnInstantAnswerStillGetsIt) {
  start();
  RawClient client(server_->port());
  client.send(post("/echo", "bye"));
  client.half_close();
  EXPECT_EQ(client.receive_answer().body, "bye");
  EXPECT_TRUE(client.receive_to_end());
}

TEST_F(HttpServerTest, LeavingIsSeenEvenBehindAFullInput) {
  start();
  RawClient client(server_->port());
  client.send(post("/hold", "") + std::string(100 << 10, 'x'));
  auto held = handler_.take_held();
  ASSERT_TRUE(held);
  client.close();
  EXPECT_TRUE(eventually([&] { return handler_.disconnects == 1; }));
}

TEST_F(HttpServerTest, UnansweredExchangeBecomesAnError) {
  start();
  EXPECT_EQ(ask(post("/dropped", "")).status, 500);
}

TEST_F(HttpServerTest, SilentStreamsGetIdleText) {
  HttpServerConfig config;
  config.quiet_time = 20ms;
  start(config);
  RawClient client(server_->port());
  client.send("GET /quiet HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_TRUE(client.receive_until(": ping\n\n"));
  auto held = handler_.take_held();
  held->finish();
  EXPECT_TRUE(client.receive_until("0\r\n\r\n"));
}

TEST_F(HttpServerTest, SlowReaderIsDropped) {
  HttpServerConfig config;
  config.stall_time = 100ms;
  start(config);
  RawClient client(server_->port(), 4096);
  client.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  auto held = handler_.take_held();
  ASSERT_TRUE(held);
  for (int i = 0; i < 64; ++i) held->write(std::string(32 << 10, 'b'));
  EXPECT_TRUE(eventually([&] { return handler_.disconnects == 1; }));
  EXPECT_EQ(server_->counters().dropped_readers_total, 1u);
}

TEST_F(HttpServerTest, TooMuchUnsentIsDropped) {
  HttpServerConfig config;
  config.max_unsent_bytes = 8 << 20;
  start(config);
  RawClient client(server_->port(), 4096);
  client.send("GET /flood HTTP/1.1\r\nHost: x\r\n\r\n");
  auto held = handler_.take_held();
  ASSERT_TRUE(held);
  for (int i = 0; i < 1024 && handler_.disconnects == 0; ++i) held->write(std::string(32 << 10, 'b'));
  EXPECT_TRUE(eventually([&] { return handler_.disconnects == 1; }));
}

TEST_F(HttpServerTest, SlowHeadersAndBodiesTimeOut) {
  HttpServerConfig config;
  config.head_time = config.body_time = 60ms;
  start(config);
  RawClient head(server_->port()), body(server_->port());
  head.send("GET / HTTP/1.1\r\nHo");
  body.send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\na");
  EXPECT_EQ(head.receive_answer().status, 408);
  EXPECT_EQ(body.receive_answer().status, 408);
}

TEST_F(HttpServerTest, IdleConnectionsAreClosed) {
  HttpServerConfig config;
  config.idle_time = 40ms;
  start(config);
  RawClient client(server_->port());
  EXPECT_TRUE(client.receive_to_end());
}

TEST_F(HttpServerTest, OneConnectionTooManyIsTold) {
  HttpServerConfig config;
  config.max_connections = 2;
  start(config);
  RawClient a(server_->port()), b(server_->port());
  a.send(post("/echo", "a"));
  b.send(post("/echo", "b"));
  EXPECT_EQ(a.receive_answer().body, "a");
  EXPECT_EQ(b.receive_answer().body, "b");
  RawClient c(server_->port());
  EXPECT_EQ(c.receive_answer().status, 503);
}

TEST_F(HttpServerTest, BodyBudgetIsShared) {
  HttpServerConfig config;
  config.inflight_body_bytes = 150;
  start(config);
  RawClient first(server_->port());
  first.send(post("/hold", std::string(100, 'x')));
  auto held = handler_.take_held();
  ASSERT_TRUE(held);
  const auto busy = ask(post("/echo", std::string(100, 'y')));
  EXPECT_EQ(busy.status, 503);
  EXPECT_EQ(busy.header("Retry-After"), "1");
  held->respond({});
  EXPECT_EQ(first.receive_answer().status, 200);
  EXPECT_EQ(ask(post("/echo", std::string(100, 'y'))).status, 200);
}

// A chunk's line that never ends is refused, and what its connection was charged is given back with it.
TEST_F(HttpServerTest, EndlessChunkLinesCostNobodyElse) {
  HttpServerConfig config;
  config.inflight_body_bytes = 100'000;
  start(config);
  for (int i = 0; i < 8; ++i) {
    RawClient flood(server_->port());
    flood.send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n8000\r\n" +
               std::string(0x8000, 'x') + "\r\n1d;" + std::string(70'000, 'a'));
    EXPECT_EQ(flood.receive_answer().status, 400);
  }
  EXPECT_EQ(ask(post("/echo", std::string(90'000, 'y'))).status, 200);
}

TEST_F(HttpServerTest, PortInUseIsAnError) {
  start();
  HttpServerConfig config;
  config.port = server_->port();
  const auto second = HttpServer::listen(config, handler_);
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(second.message(), ::testing::HasSubstr(std::to_string(config.port)));
}

TEST_F(HttpServerTest, StopWithOpenStreams) {
  start();
  RawClient client(server_->port());
  client.send("GET /stream HTTP/1.1\r\nHost: x\r\n\r\n");
  auto held = handler_.take_held();
  ASSERT_TRUE(held);
  server_->stop();
  held->write("late");
  held->finish();
  held.reset();
  EXPECT_TRUE(client.receive_to_end());
}

}  // namespace
}  // namespace kvasir
