#include "server/http_connection.h"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/post.hpp>
#include <utility>

#include "server/http_exchange.h"
#include "server/request_id.h"

namespace kvasir {

namespace asio = boost::asio;

namespace {

constexpr size_t kMaxUnsentAnswers = 256 << 10;  // bytes; with more of them the next request is not begun
constexpr auto kLingerTime = std::chrono::seconds(2);
constexpr size_t kMinBodyBytesPerSecond = 1024;
constexpr size_t kBuffersPerWrite = 16;

}  // namespace

void HttpServerState::run_on_io_thread(std::function<void()> function) {
  const std::lock_guard lock(post_mutex);
  if (!stopped) asio::post(io, std::move(function));
}

HttpConnection::HttpConnection(std::shared_ptr<HttpServerState> state, asio::ip::tcp::socket socket)
    : state_(std::move(state)), socket_(std::move(socket)) {
  boost::system::error_code ignored;
  socket_.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket_.non_blocking(true, ignored);
  const auto peer = socket_.remote_endpoint(ignored);
  if (!ignored) remote_ = peer.address().to_string();
  phase_since_ = last_progress_ = last_write_ = Clock::now();
  ++state_->connections;
}

HttpConnection::~HttpConnection() {
  release_body_budget();
  --state_->connections;
}

void HttpConnection::start() {
  wait_readable();
}

// --- reading ---

void HttpConnection::wait_readable() {
  if (waiting_ || phase_ == Phase::kClosed || input_ended_) return;
  if (phase_ == Phase::kIdle && input_.size() >= state_->config.max_pipelined_bytes) return;
  waiting_ = true;
  socket_.async_wait(asio::ip::tcp::socket::wait_read,
                     [self = shared_from_this()](boost::system::error_code ec) { self->on_readable(ec); });
}

void HttpConnection::on_readable(boost::system::error_code ec) {
  waiting_ = false;
  if (phase_ == Phase::kClosed) return;
  size_t n = 0;
  if (!ec) n = socket_.read_some(asio::buffer(state_->read_buffer), ec);
  if (ec == asio::error::would_block || ec == asio::error::try_again) return wait_readable();
  if (ec == asio::error::eof) return on_end_of_input();
  if (ec) return leave();
  if (phase_ == Phase::kLingering) return wait_readable();
  input_.append(state_->read_buffer.data(), n);
  advance();
}

void HttpConnection::on_end_of_input() {
  input_ended_ = true;
  keep_alive_ = false;
  if (phase_ == Phase::kAnswering) return leave();
  if (out_.empty()) return close();
  close_when_sent_ = true;
}

// Parses what has been read, as far as one request at a time allows.
void HttpConnection::advance() {
  while (phase_ == Phase::kIdle || phase_ == Phase::kHead || phase_ == Phase::kBody) {
    if (phase_ == Phase::kIdle) {
      if (input_.empty() || out_bytes_ > kMaxUnsentAnswers) break;
      if (!parser_) parser_ = std::make_unique<HttpParser>(state_->config.limits);
    }
    const size_t used = parser_->feed(input_);
    if (phase_ == Phase::kBody) charge_body(used);
    input_.erase(0, used);
    if (phase_ == Phase::kIdle) {
      if (!parser_->begun()) break;  // an empty line after a body leaves the connection idle
      phase_ = Phase::kHead;
      phase_since_ = Clock::now();
    }
    const HttpParser::State parsed = parser_->state();
    if (parsed == HttpParser::State::kError)
      refuse(parser_->error_status(), parser_->error_message());
    else if (phase_ == Phase::kBody && state_->body_bytes > state_->config.inflight_body_bytes)
      refuse(503, "too many request bodies are being read; try again");
    else if (parsed == HttpParser::State::kHeadDone)
      on_head();
    else if (parsed == HttpParser::State::kDone)
      on_request();
    else
      break;
  }
  // Reading must go on while a request is answered, or the end of input would hide behind what is unread. So
  // there is an end to how much may come.
  if (phase_ == Phase::kAnswering && input_.size() > state_->config.max_pipelined_bytes) return leave();
  wait_readable();
}

// Bodies are charged as they arrive, not as they are announced: who sends slowly holds little.
void HttpConnection::charge_body(size_t bytes) {
  body_received_ += bytes;
  body_reserved_ += bytes;
  state_->body_bytes += bytes;
}

void HttpConnection::on_head() {
  HttpRequest& request = parser_->request();
  request.remote = remote_;
  request.id = request_id_or_fresh(request.header("X-Request-Id"));
  head_ = request;
  common_ = state_->handler.common_headers(head_);
  request_since_ = Clock::now();
  keep_alive_ = request.keep_alive && !state_->closing;
  if (auto refusal = state_->handler.screen(head_)) return refuse_request(std::move(*refusal));

  if (parser_->expects_continue() && parser_->has_body()) enqueue("HTTP/1.1 100 Continue\r\n\r\n");
  phase_ = Phase::kBody;
  phase_since_ = Clock::now();
  body_received_ = 0;
  parser_->read_body();
  if (parser_->state() == HttpParser::State::kDone) on_request();
}

void HttpConnection::on_request() {
  phase_ = Phase::kAnswering;
  ++sequence_;
  ++state_->exchanges;
  streaming_ = false;
  auto exchange =
      make_connection_exchange(state_, shared_from_this(), sequence_, std::move(parser_->request()));
  parser_.reset();
  state_->handler.handle(std::move(exchange));
}

// Before an answer to what is no request: the head of an earlier one must not shape it.
void HttpConnection::forget_head() {
  head_ = HttpRequest();
  head_.id = request_id_or_fresh("");
  common_ = state_->handler.common_headers(head_);
  request_since_ = Clock::now();
}

void HttpConnection::refuse_request(HttpResponse response) {
  if (!parser_ || parser_->state() != HttpParser::State::kHeadDone || parser_->has_body())
    keep_alive_ = false;
  phase_ = Phase::kAnswering;
  ++sequence_;
  ++state_->exchanges;
  respond(sequence_, std::move(response));
}

void HttpConnection::refuse(int status, std::string_view message) {
  if (phase_ != Phase::kBody) forget_head();
  keep_alive_ = false;
  HttpResponse response = state_->handler.transport_error(status, message);
  if (status == 503) response.headers.push_back({"Retry-After", "1"});
  refuse_request(std::move(response));
  wait_readable();
}

// --- answering ---

void HttpConnection::send_head(const HttpResponse& response, std::optional<size_t> length) {
  if (state_->closing) keep_alive_ = false;
  if (!length && head_.version < 11) keep_alive_ = false;
  status_ = response.status;
  chunked_ = !length && head_.version >= 11;
  enqueue(http_response_head(response, common_, head_.version, keep_alive_, length));
}

void HttpConnection::respond(uint64_t sequence, HttpResponse response) {
  if (!current(sequence) || streaming_) return;
  send_head(response, response.body.size());
  if (head_.method != "HEAD" && !response.body.empty()) enqueue(std::move(response.body));
  complete_answer();
}

void HttpConnection::start_stream(uint64_t sequence, HttpResponse head, std::string idle) {
  if (!current(sequence) || streaming_) return;
  streaming_ = true;
  idle_ = std::move(idle);
  send_head(head, std::nullopt);
}

void HttpConnection::write(uint64_t sequence, std::string bytes) {
  if (!current(sequence) || !streaming_ || bytes.empty()) return;
  if (out_bytes_ + bytes.size() > state_->config.max_unsent_bytes) {
    ++state_->dropped_readers;
    return leave();
  }
  enqueue(chunked_ ? http_chunk(bytes) : std::move(bytes));
}

void HttpConnection::finish(uint64_t sequence) {
  if (!current(sequence) || !streaming_) return;
  if (chunked_) enqueue(std::string(kHttpLastChunk));
  complete_answer();
}

void HttpConnection::on_disconnect(uint64_t sequence, std::function<void()> callback) {
  if (current(sequence))
    disconnect_ = std::move(callback);
  else
    state_->run_on_io_thread(std::move(callback));
}

void HttpConnection::abandon(uint64_t sequence) {
  if (!current(sequence)) return;
  if (streaming_) return leave();
  respond(sequence, state_->handler.transport_error(500, "the request was given up"));
}

void HttpConnection::complete_answer() {
  disconnect_ = nullptr;
  streaming_ = false;
  --state_->exchanges;
  release_body_budget();
  parser_.reset();
  phase_ = keep_alive_ ? Phase::kIdle : Phase::kLingering;
  phase_since_ = Clock::now();
  state_->handler.finished(head_, status_,
                           std::chrono::duration<double>(phase_since_ - request_since_).count());
  if (keep_alive_) {
    state_->run_on_io_thread([self = shared_from_this()] { self->advance(); });
  } else {
    close_when_sent_ = true;
    if (out_.empty()) linger();
  }
}

void HttpConnection::release_body_budget() {
  state_->body_bytes -= body_reserved_;
  body_reserved_ = 0;
}

// --- writing ---

void HttpConnection::enqueue(std::string bytes) {
  if (phase_ == Phase::kClosed) return;
  last_write_ = Clock::now();
  out_bytes_ += bytes.size();
  out_.push_back(std::move(bytes));
  if (!writing_) {
    last_progress_ = last_write_;
    write_some();
  }
}

void HttpConnection::write_some() {
  std::vector<asio::const_buffer> buffers;
  size_t offset = out_offset_;
  for (size_t i = 0; i < std::min(out_.size(), kBuffersPerWrite); ++i) {
    buffers.emplace_back(out_[i].data() + offset, out_[i].size() - offset);
    offset = 0;
  }
  writing_ = true;
  socket_.async_write_some(buffers, [self = shared_from_this()](boost::system::error_code ec, size_t n) {
    self->on_written(ec, n);
  });
}

void HttpConnection::on_written(boost::system::error_code ec, size_t bytes) {
  writing_ = false;
  if (phase_ == Phase::kClosed) return;
  if (ec) return leave();
  last_progress_ = Clock::now();
  out_bytes_ -= bytes;
  while (bytes > 0) {
    const size_t left = out_.front().size() - out_offset_;
    if (bytes < left) {
      out_offset_ += bytes;
      break;
    }
    bytes -= left;
    out_.pop_front();
    out_offset_ = 0;
  }
  if (!out_.empty()) return write_some();
  if (close_when_sent_) return linger();
  if (phase_ == Phase::kIdle) advance();
}

// Closing a socket with unread input would reset it and could take the answer away from the client: stop
// sending, read on for a moment, then close.
void HttpConnection::linger() {
  if (input_ended_) return close();
  boost::system::error_code ignored;
  socket_.shutdown(asio::ip::tcp::socket::shutdown_send, ignored);
  phase_ = Phase::kLingering;
  phase_since_ = Clock::now();
  input_.clear();
  wait_readable();
}

// --- ending ---

void HttpConnection::leave() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kAnswering) {
    --state_->exchanges;
    constexpr int kClientClosedRequest = 499;
    state_->handler.finished(head_, kClientClosedRequest,
                             std::chrono::duration<double>(Clock::now() - request_since_).count());
    if (disconnect_) state_->run_on_io_thread(std::exchange(disconnect_, nullptr));
    phase_ = Phase::kLingering;
  }
  close();
}

void HttpConnection::close() {
  if (phase_ == Phase::kClosed) return;
  if (phase_ == Phase::kAnswering) return leave();
  phase_ = Phase::kClosed;
  release_body_budget();
  boost::system::error_code ignored;
  socket_.close(ignored);
}

void HttpConnection::sweep(Clock::time_point now) {
  const HttpServerConfig& config = state_->config;
  const auto in_phase = now - phase_since_;
  if (phase_ == Phase::kClosed) return;
  if (writing_ && now - last_progress_ > config.stall_time) {
    ++state_->dropped_readers;
    return leave();
  }
  switch (phase_) {
    case Phase::kIdle:
      if (out_.empty() && in_phase > config.idle_time) close();
      break;
    case Phase::kHead:
      if (in_phase > config.head_time) refuse(408, "the request headers took too long to arrive");
      break;
    case Phase::kBody: {
      const double seconds = std::chrono::duration<double>(in_phase).count();
      const bool slow = static_cast<double>(body_received_) < seconds * kMinBodyBytesPerSecond;
      if (in_phase > config.body_time && slow) refuse(408, "the request body took too long to arrive");
      break;
    }
    case Phase::kAnswering:
      if (streaming_ && config.quiet_time.count() > 0 && !idle_.empty() && out_.empty() &&
          now - last_write_ > config.quiet_time)
        write(sequence_, idle_);
      break;
    case Phase::kLingering:
      if (out_.empty() && in_phase > kLingerTime) close();
      break;
    case Phase::kClosed:
      break;
  }
}

}  // namespace kvasir
