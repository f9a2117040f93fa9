#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "server/http_parser.h"
#include "server/http_types.h"

namespace kvasir {

struct HttpServerConfig {
  std::string host = "127.0.0.1";  // an address or a name
  uint16_t port = 8000;            // 0: any free one
  HttpLimits limits;
  size_t max_connections = 4096;           // one more is answered 503 and closed
  size_t max_pipelined_bytes = 64 << 10;   // sent behind a request being answered; more ends the connection
  size_t inflight_body_bytes = 256 << 20;  // of all request bodies being read or answered
  size_t max_unsent_bytes = 4 << 20;  // of one streamed answer; more means the reader is gone for all we know
  std::chrono::milliseconds head_time{10'000};
  std::chrono::milliseconds body_time{30'000};   // afterwards at least 1 KiB/s
  std::chrono::milliseconds idle_time{75'000};   // of a kept-alive connection
  std::chrono::milliseconds stall_time{30'000};  // a reader that takes nothing for so long is dropped
  std::chrono::milliseconds quiet_time{10'000};  // of a stream, until its idle text is sent; 0: it never is
};

struct HttpServerCounters {
  uint64_t connections = 0;  // open now
  uint64_t exchanges = 0;    // being answered now
  uint64_t accepted_total = 0;
  uint64_t dropped_readers_total = 0;  // slow readers
};

// HTTP/1.1 on one I/O thread (Asio). The loop never waits for a handler; a connection is read from even while
// its request is being answered, so that a client's leaving is seen at once. End of input counts as leaving:
// a client that half-closes and still waits for a streamed answer is not served. So does a flood: pipelined
// requests are answered in order, but only so many bytes of them are kept.
class HttpServer {
 public:
  // Binds and listens, so that the port is known, but serves nothing before start(). `handler` outlives the
  // server.
  static Result<std::unique_ptr<HttpServer>> listen(const HttpServerConfig& config, HttpHandler& handler);
  virtual ~HttpServer() = default;  // stops

  virtual uint16_t port() const = 0;
  virtual std::string address() const = 0;  // of the bound socket, e.g. "127.0.0.1"
  virtual bool loopback() const = 0;
  virtual void start() = 0;

  // Runs a function on the I/O thread.
  virtual void post(std::function<void()> function) = 0;

  // From now on every answer ends its connection.
  virtual void close_after_answers() = 0;

  // Closes every connection and joins the thread. Exchanges still held by others stay usable and do nothing.
  virtual void stop() = 0;

  virtual HttpServerCounters counters() const = 0;  // thread-safe
};

}  // namespace kvasir
