#include "server/http_fixture.h"

namespace kvasir::testing {
namespace {

// --- what one client may take: bytes, time, connections ---

TEST_F(HttpServerTest, CountsChunkedBodiesAgainstTheLimit) {
  HttpServerConfig config;
  config.limits.body_bytes = 1000;
  start(config);
  std::string body;
  for (int i = 0; i < 20; ++i) body += "64\r\n" + std::string(100, 'x') + "\r\n";
  const auto answer =
      ask("POST /echo HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\n"
          "Transfer-Encoding: chunked\r\n\r\n" +
          body + "0\r\n\r\n");
  EXPECT_EQ(answer.status, 413);
  EXPECT_EQ(answer.header("X-Request-Id"), "mine");
}

TEST_F(HttpServerTest, TrailersHaveALimitOfTheirOwn) {
  start();
  std::string trailers;
  for (int i = 0; i < 2000; ++i) trailers += "T: 0123456789\r\n";
  for (const char* end : {"", "\r\n"}) {
    const auto answer =
        ask("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n" + trailers +
            end);
    EXPECT_EQ(answer.status, 431);
    EXPECT_EQ(answer.header("Connection"), "close");
  }
}

TEST_F(HttpServerTest, FloodBehindARequestEndsIt) {
  start();
  for (const bool streamed : {false, true}) {
    const int before = handler_.disconnects;
    RawClient client(server_->port());
    client.send(post(streamed ? "/stream" : "/hold", ""));
    auto held = handler_.take_held();
    ASSERT_TRUE(held);
    client.send(std::string(1 << 20, 'x'));  // the connection may be closed in the middle of it
    EXPECT_TRUE(eventually([&] { return handler_.disconnects == before + 1; }));
    EXPECT_EQ(handler_.last_status, 499);
    EXPECT_TRUE(client.receive_to_end());
  }
  EXPECT_EQ(server_->counters().exchanges, 0u);
}

TEST_F(HttpServerTest, PipelinedRequestsAreKeptUpToTheLimit) {
  HttpServerConfig config;
  config.max_pipelined_bytes = 1000;
  start(config);
  RawClient client(server_->port());
  client.send(post("/hold", ""));
  auto held = handler_.take_held();
  ASSERT_TRUE(held);
  client.send(post("/echo", std::string(900, 'x')));
  EXPECT_FALSE(client.receive_some(50));
  held->respond({});
  EXPECT_EQ(client.receive_answer().status, 200);
  EXPECT_EQ(client.receive_answer().body.size(), 900u);
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

TEST_F(HttpServerTest, RequestBeforeDoesNotShapeAnError) {
  HttpServerConfig config;
  config.head_time = 60ms;
  start(config);
  RawClient client(server_->port());
  client.send("HEAD /echo HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.receive_answer(false).status, 200);
  client.send("GET / HT");
  const auto late = client.receive_answer();
  EXPECT_EQ(late.status, 408);
  EXPECT_THAT(late.body, ::testing::HasSubstr("too long"));
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
  const auto told = c.receive_answer();
  EXPECT_EQ(told.status, 503);
  EXPECT_FALSE(told.header("Retry-After").empty());
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

}  // namespace
}  // namespace kvasir::testing
