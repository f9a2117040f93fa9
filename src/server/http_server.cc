#include "server/http_server.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <thread>

#include "base/log.h"
#include "server/http_connection.h"
#include "server/http_exchange.h"

namespace kvasir {

namespace asio = boost::asio;
using asio::ip::tcp;

namespace {

class ConnectionExchange final : public HttpExchange {
 public:
  ConnectionExchange(std::shared_ptr<HttpServerState> state, std::shared_ptr<HttpConnection> connection,
                     uint64_t sequence, HttpRequest request)
      : state_(std::move(state)),
        connection_(std::move(connection)),
        sequence_(sequence),
        request_(std::move(request)) {}

  ~ConnectionExchange() override {
    state_->run_on_io_thread([c = std::move(connection_), n = sequence_] { c->abandon(n); });
  }

  const HttpRequest& request() const override { return request_; }

  void respond(HttpResponse response) override {
    run([r = std::move(response)](HttpConnection& c, uint64_t n) mutable { c.respond(n, std::move(r)); });
  }
  void start_stream(HttpResponse head, std::string idle) override {
    run([h = std::move(head), t = std::move(idle)](HttpConnection& c, uint64_t n) mutable {
      c.start_stream(n, std::move(h), std::move(t));
    });
  }
  void write(std::string bytes) override {
    run([b = std::move(bytes)](HttpConnection& c, uint64_t n) mutable { c.write(n, std::move(b)); });
  }
  void finish() override {
    run([](HttpConnection& c, uint64_t n) { c.finish(n); });
  }
  void on_disconnect(std::function<void()> callback) override {
    run([f = std::move(callback)](HttpConnection& c, uint64_t n) mutable {
      c.on_disconnect(n, std::move(f));
    });
  }
  void post(std::function<void()> function) override { state_->run_on_io_thread(std::move(function)); }

 private:
  template <class F>
  void run(F function) {
    if (state_->io.get_executor().running_in_this_thread()) return function(*connection_, sequence_);
    state_->run_on_io_thread(
        [c = connection_, n = sequence_, f = std::move(function)]() mutable { f(*c, n); });
  }

  std::shared_ptr<HttpServerState> state_;
  std::shared_ptr<HttpConnection> connection_;
  const uint64_t sequence_;
  const HttpRequest request_;
};

class AsioHttpServer final : public HttpServer {
 public:
  AsioHttpServer(const HttpServerConfig& config, HttpHandler& handler)
      : state_(std::make_shared<HttpServerState>(config, handler)),
        acceptor_(state_->io),
        sweep_timer_(state_->io),
        accept_timer_(state_->io) {}

  ~AsioHttpServer() override { stop(); }

  Status bind() {
    const HttpServerConfig& config = state_->config;
    const std::string where = fmt::format("{}:{}", config.host, config.port);
    boost::system::error_code ec;
    tcp::resolver resolver(state_->io);
    const auto found = resolver.resolve(config.host, std::to_string(config.port), tcp::resolver::passive, ec);
    if (ec || found.empty()) {
      return invalid_argument(fmt::format("cannot listen on {}: {}", where, ec.message()));
    }
    const tcp::endpoint endpoint = found.begin()->endpoint();
    acceptor_.open(endpoint.protocol(), ec);
    if (!ec) acceptor_.set_option(tcp::acceptor::reuse_address(true), ec);
    if (!ec) acceptor_.bind(endpoint, ec);
    if (!ec) acceptor_.listen(1024, ec);
    if (ec) return io_error(fmt::format("cannot listen on {}: {}", where, ec.message()));
    local_ = acceptor_.local_endpoint();
    return {};
  }

  uint16_t port() const override { return local_.port(); }
  std::string address() const override { return local_.address().to_string(); }
  bool loopback() const override { return local_.address().is_loopback(); }

  void start() override {
    accept();
    sweep();
    thread_ = std::thread([this] { state_->io.run(); });
  }

  void post(std::function<void()> function) override { state_->run_on_io_thread(std::move(function)); }

  void close_after_answers() override {
    state_->run_on_io_thread([this] { state_->closing = true; });
  }

  void stop() override {
    if (thread_.joinable()) {
      state_->run_on_io_thread([this] { close_all(); });
      thread_.join();
    }
    {
      const std::lock_guard lock(state_->post_mutex);
      state_->stopped = true;
    }
    state_->io.restart();
    state_->io.poll();  // what was posted while the thread ended
  }

  HttpServerCounters counters() const override {
    return {state_->connections, state_->exchanges, state_->accepted, state_->dropped_readers};
  }

 private:
  void accept() {
    acceptor_.async_accept([this](boost::system::error_code ec, tcp::socket socket) {
      if (stopping_) return;
      if (ec) return accept_later(ec);
      ++state_->accepted;
      auto connection = std::make_shared<HttpConnection>(state_, std::move(socket));
      connections_.push_back(connection);
      if (state_->connections > state_->config.max_connections)
        connection->refuse(503, "too many connections");
      else
        connection->start();
      accept();
    });
  }

  // Out of file descriptors, mostly: what is queued in the kernel waits a moment.
  void accept_later(boost::system::error_code ec) {
    spdlog::warn("cannot accept a connection: {}", ec.message());
    accept_timer_.expires_after(std::chrono::milliseconds(100));
    accept_timer_.async_wait([this](boost::system::error_code) {
      if (!stopping_) accept();
    });
  }

  std::chrono::milliseconds sweep_period() const {
    const HttpServerConfig& c = state_->config;
    auto shortest = std::min({c.head_time, c.body_time, c.idle_time, c.stall_time});
    if (c.quiet_time.count() > 0) shortest = std::min(shortest, c.quiet_time);
    return std::clamp(shortest / 4, std::chrono::milliseconds(5), std::chrono::milliseconds(250));
  }

  void sweep() {
    const auto now = HttpConnection::Clock::now();
    std::erase_if(connections_, [](const auto& weak) { return weak.expired(); });
    for (size_t i = 0; i < connections_.size(); ++i) {
      if (const auto connection = connections_[i].lock()) connection->sweep(now);
    }
    sweep_timer_.expires_after(sweep_period());
    sweep_timer_.async_wait([this](boost::system::error_code) {
      if (!stopping_) sweep();
    });
  }

  void close_all() {
    stopping_ = true;
    boost::system::error_code ignored;
    acceptor_.close(ignored);
    sweep_timer_.cancel();
    accept_timer_.cancel();
    for (const auto& weak : connections_) {
      if (const auto connection = weak.lock()) connection->close();
    }
  }

  std::shared_ptr<HttpServerState> state_;
  tcp::acceptor acceptor_;
  tcp::endpoint local_;
  asio::steady_timer sweep_timer_;
  asio::steady_timer accept_timer_;
  std::vector<std::weak_ptr<HttpConnection>> connections_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace

std::shared_ptr<HttpExchange> make_connection_exchange(std::shared_ptr<HttpServerState> state,
                                                       std::shared_ptr<HttpConnection> connection,
                                                       uint64_t sequence, HttpRequest request) {
  return std::make_shared<ConnectionExchange>(std::move(state), std::move(connection), sequence,
                                              std::move(request));
}

Result<std::unique_ptr<HttpServer>> HttpServer::listen(const HttpServerConfig& config, HttpHandler& handler) {
  auto server = std::make_unique<AsioHttpServer>(config, handler);
  KVASIR_RETURN_IF_ERROR(server->bind());
  return std::unique_ptr<HttpServer>(std::move(server));
}

}  // namespace kvasir
