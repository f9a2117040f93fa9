#include "server/http_fixture.h"

namespace kvasir::testing {
namespace {

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

TEST_F(HttpServerTest, EmptyLinesBetweenRequestsAreSkipped) {
  HttpServerConfig config;
  config.head_time = 40ms;
  start(config);
  RawClient client(server_->port());
  client.send("\r\n" + post("/echo", "first") + "\r\n");
  EXPECT_EQ(client.receive_answer().body, "first");
  EXPECT_FALSE(client.receive_some(150)) << "an empty line is not the beginning of a slow request";
  client.send(post("/echo", "second"));
  EXPECT_EQ(client.receive_answer().body, "second");
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

TEST_F(HttpServerTest, LeavingIsSeenBehindWhatWasPipelined) {
  start();
  RawClient client(server_->port());
  client.send(post("/hold", "") + std::string(60 << 10, 'x'));
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
}  // namespace kvasir::testing
