#include "server/http_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

namespace kvasir {

namespace http = boost::beast::http;

namespace {

constexpr size_t kMaxEmptyLines = 4;  // before a request line
// A chunked body ends with "0\r\n\r\n" or more. Beast 1.81 asserts that it never sees less of a last chunk.
constexpr size_t kLeastChunkedEnd = 5;
constexpr size_t kFramingPerChunk = 16;  // bytes of a chunk's line that are no excess

bool has_folded_line(std::string_view head) {
  return head.find("\r\n ") != std::string_view::npos || head.find("\r\n\t") != std::string_view::npos;
}

// Whether what a chunked body has left unused holds a whole line. Then it is the last chunk's, with trailers
// that have not ended: any other line is used as soon as it is whole.
bool in_trailers(std::string_view unused) {
  if (unused.starts_with("\r\n")) unused.remove_prefix(2);  // the end of the chunk before
  return unused.find("\r\n") != std::string_view::npos;
}

}  // namespace

struct HttpParser::Impl {
  HttpLimits limits;
  http::request_parser<http::string_body> parser;
  State state = State::kHead;
  HttpRequest request;
  bool begun = false;
  size_t empty_lines = 0;
  size_t head_used = 0;  // of the head, by the parser
  size_t framing = 0;    // excess bytes of chunk lines
  int error_status = 0;
  std::string error_message;

  void fail(int status, std::string message) {
    state = State::kError;
    error_status = status;
    error_message = std::move(message);
  }
  void fail(boost::beast::error_code ec, std::string_view unused);
  size_t feed_head(std::string_view rest);
  size_t feed_body(std::string_view rest);
  void check_framing(std::string_view rest, size_t used, size_t data);
  void take_head();
};

void HttpParser::Impl::fail(boost::beast::error_code ec, std::string_view unused) {
  if (ec == http::error::header_limit) {
    const bool in_request_line = parser.get().target().empty() &&
                                 unused.substr(0, limits.head_bytes).find("\r\n") == std::string_view::npos;
    if (in_request_line)
      fail(414, fmt::format("the request target is longer than {} bytes", limits.target_bytes));
    else
      fail(431, fmt::format("the request headers are larger than {} bytes", limits.head_bytes));
  } else if (ec == http::error::body_limit) {
    fail(413, fmt::format("the request body is larger than {} bytes", limits.body_bytes));
  } else if (ec == http::error::bad_version) {
    fail(400, "malformed HTTP request, or a version other than HTTP/1.1 and HTTP/1.0");
  } else {
    fail(400, fmt::format("malformed HTTP request: {}", ec.message()));
  }
}

void HttpParser::Impl::take_head() {
  const auto& message = parser.get();
  request.method = std::string(message.method_string());
  request.target = std::string(message.target());
  request.version = static_cast<int>(message.version());
  request.keep_alive = message.keep_alive();
  for (const auto& field : message) {
    request.headers.push_back({std::string(field.name_string()), std::string(field.value())});
  }
  if (request.target.size() > limits.target_bytes) {
    return fail(414, fmt::format("the request target is longer than {} bytes", limits.target_bytes));
  }
  if (request.headers.size() > limits.fields) {
    return fail(431, fmt::format("the request has more than {} header fields", limits.fields));
  }
  if (request.version == 11 &&
      std::count_if(request.headers.begin(), request.headers.end(),
                    [](const HttpHeader& h) { return boost::beast::iequals(h.name, "host"); }) != 1) {
    return fail(400, "an HTTP/1.1 request has exactly one Host header");
  }
  const bool coded = request.has_header("Transfer-Encoding");
  const bool chunked = boost::beast::iequals(request.header("Transfer-Encoding"), "chunked");
  if (coded && (!chunked || request.version == 10)) {
    return fail(501, "the only transfer coding understood is chunked");
  }
  request.path = http_target_path(request.target);
  if (request.path.empty()) return fail(400, "malformed request target");
  state = State::kHeadDone;
}

// The parser's own limit is of one call; a head that comes line by line is added up here.
size_t HttpParser::Impl::feed_head(std::string_view rest) {
  if (!begun && empty_lines < kMaxEmptyLines) {
    if (rest == "\r") return 0;
    if (rest.starts_with("\r\n")) {
      ++empty_lines;
      return 2;
    }
  }
  begun = true;
  boost::beast::error_code ec;
  const size_t n = parser.put(boost::asio::buffer(rest.data(), rest.size()), ec);
  head_used += n;
  const size_t unfinished = parser.is_header_done() ? 0 : rest.size() - n;
  if (ec && ec != http::error::need_more)
    fail(ec, rest);
  else if (has_folded_line(rest.substr(0, n)))
    fail(400, "malformed HTTP request: folded header line");
  else if (head_used + unfinished > limits.head_bytes)
    fail(http::error::header_limit, rest);
  else if (parser.is_header_done())
    take_head();
  return n;
}

size_t HttpParser::Impl::feed_body(std::string_view rest) {
  if (parser.chunked() && rest.starts_with('0') && rest.size() < kLeastChunkedEnd) return 0;
  const size_t body_before = parser.get().body().size();
  boost::beast::error_code ec;
  const size_t n = parser.put(boost::asio::buffer(rest.data(), rest.size()), ec);
  if (ec && ec != http::error::need_more) {
    fail(ec, rest);
    return n;
  }
  if (parser.chunked()) check_framing(rest, n, parser.get().body().size() - body_before);
  if (state == State::kBody && parser.is_done()) {
    request.body = std::move(parser.get().body());
    state = State::kDone;
  }
  return n;
}

// One step of the parser uses data, or a chunk's line, or the last line with all trailers; or nothing, when
// one of the latter two is not whole yet. Trailers have the limit of a head. So have the excess bytes of all
// chunk lines together: extensions could carry any amount past the limit of the body.
void HttpParser::Impl::check_framing(std::string_view rest, size_t used, size_t data) {
  const size_t bytes = used == 0 ? rest.size() : used - data;
  if (framing + bytes > limits.head_bytes) {
    const bool trailers = parser.is_done() || (used == 0 && in_trailers(rest));
    if (!trailers) return fail(400, "malformed HTTP request: the chunks' lines are too long");
    if (bytes > limits.head_bytes)
      return fail(431, fmt::format("the request trailers are larger than {} bytes", limits.head_bytes));
  }
  if (used == 0) return;
  framing += bytes;
  if (data > 0) framing -= std::min(framing, kFramingPerChunk + 2 * data);
}

HttpParser::HttpParser(const HttpLimits& limits) : impl_(std::make_unique<Impl>()) {
  impl_->limits = limits;
  impl_->parser.header_limit(static_cast<uint32_t>(limits.head_bytes));
  impl_->parser.body_limit(limits.body_bytes);
}

HttpParser::~HttpParser() = default;

size_t HttpParser::feed(std::string_view data) {
  size_t used = 0;
  while (used < data.size() && (impl_->state == State::kHead || impl_->state == State::kBody)) {
    const std::string_view rest = data.substr(used);
    const size_t n = impl_->state == State::kHead ? impl_->feed_head(rest) : impl_->feed_body(rest);
    if (n == 0) break;
    used += n;
  }
  return used;
}

HttpParser::State HttpParser::state() const {
  return impl_->state;
}

bool HttpParser::begun() const {
  return impl_->begun;
}

void HttpParser::read_body() {
  impl_->state = State::kBody;
  if (impl_->parser.is_done()) impl_->state = State::kDone;
}

HttpRequest& HttpParser::request() {
  return impl_->request;
}

bool HttpParser::expects_continue() const {
  return impl_->request.version == 11 &&
         boost::beast::iequals(impl_->request.header("Expect"), "100-continue");
}

bool HttpParser::has_body() const {
  return impl_->parser.chunked() || impl_->parser.content_length().value_or(0) > 0;
}

int HttpParser::error_status() const {
  return impl_->error_status;
}
const std::string& HttpParser::error_message() const {
  return impl_->error_message;
}

}  // namespace kvasir
