#include "server/http_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/beast/http/parser.hpp>
#include <boost/beast/http/string_body.hpp>
#include <optional>

namespace kvasir {

namespace http = boost::beast::http;

struct HttpParser::Impl {
  HttpLimits limits;
  http::request_parser<http::string_body> parser;
  State state = State::kHead;
  HttpRequest request;
  int error_status = 0;
  std::string error_message;

  void fail(int status, std::string message) {
    state = State::kError;
    error_status = status;
    error_message = std::move(message);
  }
  void fail(boost::beast::error_code ec, std::string_view unused);
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

namespace {

bool has_folded_line(std::string_view head) {
  return head.find("\r\n ") != std::string_view::npos || head.find("\r\n\t") != std::string_view::npos;
}

}  // namespace

HttpParser::HttpParser(const HttpLimits& limits) : impl_(std::make_unique<Impl>()) {
  impl_->limits = limits;
  impl_->parser.header_limit(static_cast<uint32_t>(limits.head_bytes));
  impl_->parser.body_limit(limits.body_bytes);
}

HttpParser::~HttpParser() = default;

size_t HttpParser::feed(std::string_view data) {
  Impl& p = *impl_;
  size_t used = 0;
  while (used < data.size() && (p.state == State::kHead || p.state == State::kBody)) {
    const std::string_view rest = data.substr(used);
    boost::beast::error_code ec;
    const size_t n = p.parser.put(boost::asio::buffer(rest.data(), rest.size()), ec);
    used += n;
    if (ec && ec != http::error::need_more) {
      p.fail(ec, rest);
    } else if (p.state == State::kHead && p.parser.is_header_done()) {
      if (has_folded_line(rest.substr(0, n)))
        p.fail(400, "malformed HTTP request: folded header line");
      else
        p.take_head();
    } else if (p.parser.is_done()) {
      p.request.body = std::move(p.parser.get().body());
      p.state = State::kDone;
    } else if (n == 0) {
      break;
    }
  }
  return used;
}

HttpParser::State HttpParser::state() const {
  return impl_->state;
}

void HttpParser::read_body() {
  impl_->state = State::kBody;
  impl_->parser.eager(true);
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
