#pragma once

#include <array>
#include <atomic>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "server/http_parser.h"
#include "server/http_server.h"
#include "server/http_types.h"

namespace kvasir {

// What the connections of one server share. Everything but the atomics belongs to the I/O thread.
struct HttpServerState {
  HttpServerState(const HttpServerConfig& c, HttpHandler& h) : config(c), handler(h) {}
  HttpServerConfig config;
  HttpHandler& handler;
  boost::asio::io_context io{1};
  std::array<char, 64 << 10> read_buffer;  // shared: bytes are taken over before the next read
  size_t body_bytes = 0;
  bool closing = false;

  // Runs a function on the I/O thread, at once when this is it; dropped once the server has stopped.
  void run_on_io_thread(std::function<void()> function);
  std::mutex post_mutex;
  bool stopped = false;  // guarded by post_mutex

  std::atomic<uint64_t> connections{0}, exchanges{0}, accepted{0}, dropped_readers{0};
};

// One client connection: reads requests, hands them to the handler one at a time, writes the answers. Lives
// on the I/O thread; kept alive by its pending operations and by the exchange in progress.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  using Clock = std::chrono::steady_clock;

  HttpConnection(std::shared_ptr<HttpServerState> state, boost::asio::ip::tcp::socket socket);
  ~HttpConnection();

  void start();
  void refuse(int status, std::string_view message);  // answers without reading on, and closes
  void sweep(Clock::time_point now);  // enforces the time limits; called a few times per second
  void close();                       // at once

  // The exchange's side; `sequence` names the request it answers, and anything for an earlier one is ignored.
  void respond(uint64_t sequence, HttpResponse response);
  void start_stream(uint64_t sequence, HttpResponse head, std::string idle);
  void write(uint64_t sequence, std::string bytes);
  void finish(uint64_t sequence);
  void on_disconnect(uint64_t sequence, std::function<void()> callback);
  void abandon(uint64_t sequence);  // nobody will answer

 private:
  enum class Phase : uint8_t { kIdle, kHead, kBody, kAnswering, kLingering, kClosed };

  void wait_readable();
  void on_readable(boost::system::error_code ec);
  void on_end_of_input();
  void advance();
  void on_head();
  void on_request();
  void forget_head();
  void refuse_request(HttpResponse response);
  void send_head(const HttpResponse& response, std::optional<size_t> length);
  void complete_answer();
  void enqueue(std::string bytes);
  void write_some();
  void on_written(boost::system::error_code ec, size_t bytes);
  void linger();
  void leave();  // the client is gone
  void charge_body(size_t bytes);
  void release_body_budget();
  bool current(uint64_t sequence) const { return sequence == sequence_ && phase_ == Phase::kAnswering; }

  std::shared_ptr<HttpServerState> state_;
  boost::asio::ip::tcp::socket socket_;
  std::string remote_;
  Phase phase_ = Phase::kIdle;
  bool waiting_ = false;  // a wait for input is pending
  bool input_ended_ = false;
  std::string input_;  // read, not yet used by the parser
  std::unique_ptr<HttpParser> parser_;
  size_t body_received_ = 0;
  size_t body_reserved_ = 0;
  Clock::time_point phase_since_;

  uint64_t sequence_ = 0;  // of the request being answered
  HttpRequest head_;       // of the same, without body
  std::vector<HttpHeader> common_;
  int status_ = 0;  // sent
  bool keep_alive_ = true;
  bool streaming_ = false;
  bool chunked_ = false;
  std::string idle_;
  std::function<void()> disconnect_;
  Clock::time_point request_since_;

  std::deque<std::string> out_;
  size_t out_offset_ = 0;  // sent of out_.front()
  size_t out_bytes_ = 0;
  bool writing_ = false;
  bool close_when_sent_ = false;
  Clock::time_point last_progress_;  // of writing
  Clock::time_point last_write_;     // something was queued
};

}  // namespace kvasir
