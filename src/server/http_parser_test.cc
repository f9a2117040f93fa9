#include "server/http_parser.h"

#include <gtest/gtest.h>

#include <string>

namespace kvasir {
namespace {

// Reads `bytes` in pieces, as a connection would, to the end of the first request.
HttpParser::State read(HttpParser& parser, std::string bytes, size_t piece) {
  std::string kept;
  while (!bytes.empty()) {
    kept += bytes.substr(0, piece);
    bytes.erase(0, piece);
    while (true) {
      const size_t used = parser.feed(kept);
      kept.erase(0, used);
      if (parser.state() == HttpParser::State::kHeadDone)
        parser.read_body();
      else if (used == 0 || kept.empty())
        break;
      if (parser.state() == HttpParser::State::kDone || parser.state() == HttpParser::State::kError) break;
    }
    if (parser.state() == HttpParser::State::kDone || parser.state() == HttpParser::State::kError) break;
  }
  return parser.state();
}

TEST(HttpParser, ReadsARequestHoweverItIsCut) {
  const std::string bytes =
      "POST /v1/chat%20x?q=1 HTTP/1.1\r\nHost: h\r\nX-A:  b c \r\nContent-Length: 5\r\n\r\nhello";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    HttpParser parser{HttpLimits{}};
    ASSERT_EQ(read(parser, bytes, piece), HttpParser::State::kDone) << piece;
    EXPECT_EQ(parser.request().method, "POST");
    EXPECT_EQ(parser.request().path, "/v1/chat x");
    EXPECT_EQ(parser.request().header("x-a"), "b c");
    EXPECT_EQ(parser.request().body, "hello");
    EXPECT_TRUE(parser.request().keep_alive);
  }
}

TEST(HttpParser, ReadsChunksHoweverTheyAreCut) {
  const std::string bytes =
      "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: "
      "chunked\r\n\r\n3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nT: v\r\n\r\n";
  for (size_t piece = 1; piece <= bytes.size(); ++piece) {
    HttpParser parser{HttpLimits{}};
    ASSERT_EQ(read(parser, bytes, piece), HttpParser::State::kDone) << piece;
    EXPECT_EQ(parser.request().body, "abc0123456789");
  }
}

// RFC 9112, section 2.2: what old clients send behind a body.
TEST(HttpParser, SkipsAFewEmptyLinesInFront) {
  const std::string request = "GET / HTTP/1.1\r\nHost: h\r\n\r\n";
  for (const size_t piece : {size_t{1}, size_t{2}, size_t{3}, size_t{1000}}) {
    for (const std::string lines : {"\r\n", "\r\n\r\n\r\n\r\n"}) {
      HttpParser parser{HttpLimits{}};
      EXPECT_EQ(read(parser, lines + request, piece), HttpParser::State::kDone);
    }
    std::string many;
    for (int i = 0; i < 100; ++i) many += "\r\n";
    HttpParser parser{HttpLimits{}};
    EXPECT_EQ(read(parser, many + request, piece), HttpParser::State::kError);
    EXPECT_EQ(parser.error_status(), 400);
  }
}

TEST(HttpParser, EmptyLinesBeginNothing) {
  HttpParser parser{HttpLimits{}};
  EXPECT_EQ(parser.feed("\r\n\r"), 2u);
  EXPECT_FALSE(parser.begun());
  EXPECT_EQ(parser.feed("\r\nGET"), 2u);
  EXPECT_TRUE(parser.begun());
}

// Fields that come one by one are used one by one.
TEST(HttpParser, HeadsAreLimitedInAll) {
  HttpLimits limits;
  limits.head_bytes = 1000;
  HttpParser parser{limits};
  std::string kept = "GET / HTTP/1.1\r\nHost: h\r\nA";
  for (int i = 0; i < 200 && parser.state() == HttpParser::State::kHead; ++i) {
    kept.erase(0, parser.feed(kept));
    kept += ": b\r\nA";
  }
  ASSERT_EQ(parser.state(), HttpParser::State::kError);
  EXPECT_EQ(parser.error_status(), 431);
}

TEST(HttpParser, FoldedLineIsSeenBeforeTheHeadEnds) {
  HttpParser parser{HttpLimits{}};
  parser.feed("GET / HTTP/1.1\r\nHost: h\r\nA: b\r\n c\r\nX");
  ASSERT_EQ(parser.state(), HttpParser::State::kError);
  EXPECT_EQ(parser.error_status(), 400);
}

TEST(HttpParser, SmallChunksAndSomeTrailersAreNoFlood) {
  std::string bytes = "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 10'000; ++i) bytes += "1\r\nx\r\n";
  bytes += "0\r\nT: " + std::string(10'000, 'v') + "\r\n\r\n";
  for (const size_t piece : {size_t{100}, size_t{7000}, bytes.size()}) {
    HttpParser parser{HttpLimits{}};
    ASSERT_EQ(read(parser, bytes, piece), HttpParser::State::kDone) << parser.error_message();
    EXPECT_EQ(parser.request().body.size(), 10'000u);
    EXPECT_EQ(parser.request().header("T"), "");
  }
}

TEST(HttpParser, KnowsWhenAConnectionIsKept) {
  const auto kept = [](const std::string& bytes) {
    HttpParser parser{HttpLimits{}};
    EXPECT_EQ(read(parser, bytes, 1000), HttpParser::State::kDone);
    return parser.request().keep_alive;
  };
  EXPECT_TRUE(kept("GET / HTTP/1.1\r\nHost: h\r\n\r\n"));
  EXPECT_FALSE(kept("GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"));
  EXPECT_FALSE(kept("GET / HTTP/1.0\r\n\r\n"));
  EXPECT_TRUE(kept("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"));
}

TEST(HttpTarget, DecodesPaths) {
  EXPECT_EQ(http_target_path("/a%2Fb?x"), "/a/b");
  EXPECT_EQ(http_target_path("http://h:1/a"), "/a");
  EXPECT_EQ(http_target_path("*"), "*");
  for (const char* bad : {"", "a", "/%zz", "/%00", "/\x01"}) EXPECT_EQ(http_target_path(bad), "") << bad;
}

TEST(HttpParser, BareLineFeedsMakeNoRequest) {
  for (const size_t piece : {size_t{1}, size_t{100}}) {
    HttpParser parser{HttpLimits{}};
    const auto state = read(parser, "GET / HTTP/1.1\nHost: x\n\n", piece);
    EXPECT_TRUE(state == HttpParser::State::kError || state == HttpParser::State::kHead);
  }
}

struct Malformed {
  const char* name;
  std::string bytes;
  int status;
};

class MalformedRequest : public ::testing::TestWithParam<Malformed> {};

TEST_P(MalformedRequest, IsRefusedHoweverItIsCut) {
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{16384}}) {
    HttpParser parser{HttpLimits{}};
    ASSERT_EQ(read(parser, GetParam().bytes, piece), HttpParser::State::kError);
    EXPECT_EQ(parser.error_status(), GetParam().status) << parser.error_message();
    EXPECT_FALSE(parser.error_message().empty());
  }
}

std::string many_fields() {
  std::string bytes = "GET /echo HTTP/1.1\r\nHost: x\r\n";
  for (int i = 0; i < 100; ++i) bytes += "A" + std::to_string(i) + ": b\r\n";
  return bytes + "\r\n";
}

std::string chunked(const std::string& body) {
  return "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + body;
}

std::string repeated(const std::string& text, int times) {
  std::string all;
  for (int i = 0; i < times; ++i) all += text;
  return all;
}

INSTANTIATE_TEST_SUITE_P(
    All, MalformedRequest,
    ::testing::Values(
        Malformed{"Garbage", "\x01\x02\x03garbage\r\n\r\n", 400},
        Malformed{"NoVersion", "GET /\r\n\r\n", 400},
        Malformed{"Version2", "GET / HTTP/2.0\r\nHost: x\r\n\r\n", 400},
        Malformed{"NoHost", "GET / HTTP/1.1\r\n\r\n", 400},
        Malformed{"TwoHosts", "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400},
        Malformed{"TwoLengths",
                  "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd",
                  400},
        Malformed{"LengthAndCoding",
                  "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: "
                  "chunked\r\n\r\n0\r\n\r\n",
                  400},
        Malformed{"CodingAndLength",
                  "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nContent-Length: "
                  "3\r\n\r\n0\r\n\r\n",
                  400},
        Malformed{"UnknownCoding",
                  "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501},
        Malformed{"NegativeLength", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n", 400},
        Malformed{"HugeLength",
                  "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9223372036854775808\r\n\r\n", 413},
        Malformed{"OverflowingLength",
                  "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999999999999999999\r\n\r\n", 400},
        Malformed{"TwoGigabytes", "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 2147483648\r\n\r\n",
                  413},
        Malformed{"BadChunk", "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
                  400},
        Malformed{"FoldedLine", "GET / HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n", 400},
        Malformed{"BadEscape", "GET /%zz HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        Malformed{"NulInPath", "GET /%00 HTTP/1.1\r\nHost: x\r\n\r\n", 400},
        Malformed{"LongTarget", "GET /" + std::string(9000, 'a') + " HTTP/1.1\r\nHost: x\r\n\r\n", 414},
        Malformed{"EndlessTarget", "GET /" + std::string(40'000, 'a'), 414},
        Malformed{"LongHeader", "GET / HTTP/1.1\r\nHost: x\r\nA: " + std::string(40'000, 'a'), 431},
        Malformed{"ManyFields", many_fields(), 431},
        Malformed{"LongTrailers", chunked("1\r\na\r\n0\r\n" + repeated("T: v\r\n", 4000) + "\r\n"), 431},
        Malformed{"EndlessTrailer", chunked("0\r\nT: " + std::string(40'000, 'v')), 431},
        Malformed{"EndlessChunkLine", chunked("1\r\na\r\n1;" + std::string(40'000, 'x')), 400},
        Malformed{"LongChunkLines", chunked(repeated("1;" + std::string(100, 'x') + "\r\na\r\n", 300)), 400}),
    [](const auto& test) { return std::string(test.param.name); });

}  // namespace
}  // namespace kvasir
