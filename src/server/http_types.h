#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

struct HttpHeader {
  std::string name;
  std::string value;
};

// A request as it came off the wire. Header names keep their spelling; header() ignores case.
struct HttpRequest {
  std::string method;  // "GET"
  std::string target;  // as sent
  std::string path;    // percent-decoded, without query; "" when the target is malformed
  int version = 11;    // 10 or 11
  std::vector<HttpHeader> headers;
  std::string body;
  std::string remote;  // the peer's address
  std::string id;      // X-Request-Id: the client's own where it is sane, else a fresh one
  bool keep_alive = true;

  // The value of a header; "" when absent.
  std::string_view header(std::string_view name) const;
  bool has_header(std::string_view name) const;
};

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::vector<HttpHeader> headers;
  std::string body;
};

// One request being answered: exactly one respond(), or start_stream(), write()* and finish(). Every function
// may be called from any thread and never waits; what is sent after the client left is dropped. An exchange
// that is let go of unanswered becomes a 500, so that no client waits for ever.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;

  virtual void respond(HttpResponse response) = 0;

  // `idle` is sent whenever nothing else was for the configured time, so that proxies keep the connection;
  // "": nothing is.
  virtual void start_stream(HttpResponse head, std::string idle) = 0;
  virtual void write(std::string bytes) = 0;
  virtual void finish() = 0;

  // `callback` runs once, on the I/O thread, when the client leaves (or has left) before the answer is
  // complete.
  virtual void on_disconnect(std::function<void()> callback) = 0;

  // Runs a function on the I/O thread, after whatever was posted before.
  virtual void post(std::function<void()> function) = 0;
};

// What a server is asked to do. All functions run on the I/O thread and must not block.
class HttpHandler {
 public:
  virtual ~HttpHandler() = default;

  // Sees a request's head before its body is read; an answer here refuses it unread.
  virtual std::optional<HttpResponse> screen(const HttpRequest& head) = 0;
  virtual void handle(std::shared_ptr<HttpExchange> exchange) = 0;

  // The answer to something that is no request (malformed, too large, too slow, too many connections).
  virtual HttpResponse transport_error(int status, std::string_view message) = 0;

  // Headers that every answer to this request carries.
  virtual std::vector<HttpHeader> common_headers(const HttpRequest& request) = 0;

  // Called once per answered request; `head` is empty of everything when it could not be parsed.
  virtual void finished(const HttpRequest& head, int status, double seconds) = 0;
};

std::string_view http_reason(int status);

// ASCII only, as header names, schemes, media types and host names are compared.
std::string lower_case(std::string_view text);
bool equal_ignoring_case(std::string_view a, std::string_view b);

// A status line and headers, ready to send. `length` is the body's size; nullopt announces a chunked body,
// or, for HTTP/1.0, one that ends with the connection.
std::string http_response_head(const HttpResponse& response, const std::vector<HttpHeader>& common,
                               int version, bool keep_alive, std::optional<size_t> length);

// One chunk of a chunked body. `bytes` is not empty.
std::string http_chunk(std::string_view bytes);
inline constexpr std::string_view kHttpLastChunk = "0\r\n\r\n";

// The decoded path of a request target ("" when it is malformed, holds a NUL or is not absolute).
std::string http_target_path(std::string_view target);

}  // namespace kvasir
