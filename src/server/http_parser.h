#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/http_types.h"

namespace kvasir {

struct HttpLimits {
  size_t target_bytes = 8 << 10;
  size_t head_bytes = 16 << 10;  // request line and headers
  size_t fields = 64;
  size_t body_bytes = 8 << 20;
};

// Reads one HTTP/1.1 request (RFC 9112) from bytes as they come. Framing that two parsers could read
// differently (Content-Length beside Transfer-Encoding, differing lengths, folded lines, unknown codings) is
// an error.
class HttpParser {
 public:
  enum class State : uint8_t { kHead, kHeadDone, kBody, kDone, kError };

  explicit HttpParser(const HttpLimits& limits);
  ~HttpParser();

  // Reads from the front of `data` and returns how many bytes were used; call again with the rest and more.
  // While the head is incomplete nothing may be used: the caller keeps the bytes. Stops at kHeadDone until
  // read_body().
  size_t feed(std::string_view data);
  State state() const;
  void read_body();

  // The head from kHeadDone on, the body at kDone.
  HttpRequest& request();
  bool expects_continue() const;
  bool has_body() const;

  // What is wrong, at kError.
  int error_status() const;
  const std::string& error_message() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kvasir
