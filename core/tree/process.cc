#include "core/tree/process.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/strand.hpp>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "core/config/named.h"
#include "core/tree/ask.h"
#include "core/tree/heap.h"
#include "core/tree/measured_files.h"
#include "core/tree/service_manager.h"
#include "core/tree/version.h"

namespace fluvial::tree {
namespace {

constexpr std::size_t kPoolQueueMax = 1 << 20;
constexpr std::chrono::seconds kMemoryLook{30};
constexpr int kStrangersNice = 10;  // whoever floods the enrolment port takes what rounds leave

std::size_t pool_threads(const config::CommonSettings& settings) {
  if (settings.compute_threads != 0) return settings.compute_threads;
  return std::max(1u, std::thread::hardware_concurrency());
}

// A thread for what must not share one with rounds.
class SideThread {
 public:
  SideThread() : work_(io_.get_executor()) {}
  ~SideThread() { stop(); }
  SideThread(const SideThread&) = delete;
  SideThread& operator=(const SideThread&) = delete;

  net::Executor executor() { return io_.get_executor(); }
  void start(int nice) {
    thread_ = std::thread([this, nice] {
      if (nice != 0) ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), nice);  // Linux: of this thread alone
      io_.run();
    });
  }
  void stop() {
    io_.stop();
    if (thread_.joinable()) thread_.join();
  }

 private:
  net::asio::io_context io_{1};
  net::asio::executor_work_guard<net::asio::io_context::executor_type> work_;
  std::thread thread_;
};

}  // namespace

std::string software_name() { return std::string("fluvial ") + kVersion; }

struct Process::Impl {
  Impl(const config::CommonSettings& given, Role role, store::FileSystem& disk, telemetry::Logger log)
      : settings(given),
        unready(role == Role::kCoordinator ? "not ready\n" : "not ready: no parent\n"),
        metrics(role, kVersion),
        files(disk, metrics, clock, given.data_dir),
        session_threads(io_threads(given, role, std::thread::hardware_concurrency())),
        io(static_cast<int>(session_threads)),
        pool(pool_threads(given), kPoolQueueMax),
        signals(io),
        manager(config::process_environment()),
        hooks(observing_hooks(metrics, std::move(log))) {}

  config::CommonSettings settings;
  std::string_view unready;  // what /readyz says of a node that is starting, stopping, or a member without a parent
  SystemClock clock;
  telemetry::Metrics metrics;
  MeasuredFiles files;
  SideThread health;                         // and metrics: they are answered whatever rounds and strangers do
  std::optional<SideThread> enrolment;       // of a coordinator
  std::optional<SideThread> administration;  // likewise
  IdleMemory memory{BufferPool::shared(), trim_heap};
  const std::size_t session_threads;
  net::asio::io_context io;  // goes before them: what waits in it may hold sockets of theirs
  net::ThreadPool pool;
  net::asio::signal_set signals;
  telemetry::Measuring measuring;
  ServiceManager manager;
  std::shared_ptr<net::NetHooks> hooks;
  std::shared_ptr<net::HttpServer> http;
  std::function<void()> stop;
  bool stopping = false;
};

Process::Process(const config::CommonSettings& settings, Role role, store::FileSystem& files, telemetry::Logger log)
    : impl_(std::make_unique<Impl>(settings, role, files, log)) {
  const net::Executor strand = net::asio::make_strand(impl_->io.get_executor());
  runtime_ = std::make_unique<Runtime>(Runtime{impl_->io.get_executor(), strand, impl_->pool, pool_threads(settings),
                                               impl_->clock, impl_->files, log, impl_->metrics, impl_->hooks,
                                               session_settings(settings.session), backoff_settings(settings.session)});
  impl_->metrics.gauge("pool_threads").set(static_cast<double>(impl_->pool.threads()));
  impl_->metrics.gauge("io_threads").set(static_cast<double>(impl_->session_threads));
  log.info("threads", {{"io_threads", impl_->session_threads}, {"compute_threads", impl_->pool.threads()}});
  impl_->measuring = impl_->metrics.before_render([pool = &impl_->pool, tasks = impl_->metrics.gauge("pool_tasks")] {
    tasks.set(static_cast<double>(pool->tasks()));
  });
  if (role == Role::kCoordinator) {
    runtime_->strangers = impl_->enrolment.emplace().executor();
    runtime_->administration = impl_->administration.emplace().executor();
  }
  runtime_->session.clock = &impl_->clock;
  tasks_ = std::make_unique<net::TaskGroup>(strand, [log](const std::string& task, const std::string& what) {
    log.error("task failed; the process goes on without it", {{"task", task}, {"reason", what}});
  });
}

Process::~Process() = default;

void Process::spawn(std::string name, net::Awaitable<void> task) {
  tasks_->spawn(runtime_->strand, std::move(name), std::move(task));
}

void Process::spawn_vital(std::string name, net::Awaitable<void> task) {
  tasks_->spawn(runtime_->strand, std::move(name), std::move(task),
                [this](const std::string& of, const std::string& what) {
                  failure_ = Error{Code::kInternal, "task \"" + of + "\" failed: " + what};
                  runtime_->log.error("a task that the node is nothing without failed; the process ends",
                                      {{"task", of}, {"reason", what}});
                  request_stop();
                });
}

namespace {

// How long the strand took to answer.
net::Awaitable<Duration> measure_on_strand(Runtime* runtime) {
  const TimePoint asked = runtime->clock.now();
  co_return co_await ask(runtime->strand, [runtime, asked] {
    const Duration lag = runtime->clock.now() - asked;
    runtime->metrics.measure();
    return lag;
  });
}

net::Awaitable<net::HttpResponse> answer(Runtime* runtime, const std::atomic<bool>* ready, std::string unready,
                                         Process::HttpFacts facts, net::HttpRequest request) {
  if (request.method != "GET") co_return net::HttpResponse::text(405, "GET only\n");
  if (request.path == "/healthz") co_return net::HttpResponse::text(200, "ok\n");
  if (request.path == "/readyz") {
    if (!*ready) co_return net::HttpResponse::text(503, unready);
    const std::string fault = facts.fault ? co_await ask(runtime->strand, std::move(facts.fault)) : std::string();
    co_return fault.empty() ? net::HttpResponse::text(200, "ready\n")
                            : net::HttpResponse::text(503, "not ready: " + fault + "\n");
  }
  if (request.path == "/metrics") {
    const Duration lag = co_await measure_on_strand(runtime);
    runtime->metrics.gauge("strand_lag_seconds").set(std::chrono::duration<double>(lag).count());
    net::HttpResponse response = net::HttpResponse::text(200, runtime->metrics.render());
    response.content_type = telemetry::Metrics::kContentType;
    co_return response;
  }
  if (request.path == "/status") {
    std::string json = co_await ask(runtime->strand, std::move(facts.status));
    co_return net::HttpResponse::json(std::move(json));
  }
  co_return net::HttpResponse::text(404, "try /metrics, /healthz, /readyz or /status\n");
}

}  // namespace

Result<std::uint16_t> Process::open_http(HttpFacts facts) {
  const std::string note = store::join_path(impl_->settings.data_dir, kMetricsAddressFile);
  const std::string& listen = impl_->settings.metrics_listen;
  if (listen == "off") {
    const Status removed = runtime_->files.remove(note);  // of an earlier process
    if (!removed.ok() && removed.error().code != Code::kNotFound) return removed.error();
    return std::uint16_t{0};
  }
  const bool may_move = listen == config::kMetricsAuto;
  FLUVIAL_ASSIGN(const config::HostPort at, config::parse_host_port(may_move ? config::kMetricsFirst : listen));
  auto opened = net::HttpServer::open(impl_->health.executor(), net::TcpAddress{at.host, at.port}, {}, impl_->hooks);
  if (!opened.ok() && may_move) {
    opened = net::HttpServer::open(impl_->health.executor(), net::TcpAddress{at.host, 0}, {}, impl_->hooks);
  }
  if (!opened.ok()) return config::named_address(opened.error(), "metrics_listen");
  impl_->http = std::move(*opened);
  const std::string address = config::format_host_port({at.host, impl_->http->port()});
  if (impl_->http->port() != at.port) runtime_->log.info("metrics and health", {{"address", address}});
  const std::string line = address + "\n";
  const ByteSpan parts[] = {as_byte_span(line)};
  FLUVIAL_TRY(store::write_file_atomically(runtime_->files, note, parts));
  auto handler = [runtime = runtime_.get(), ready = &ready_, unready = std::string(impl_->unready),
                  facts = std::move(facts)](net::HttpRequest request) {
    return answer(runtime, ready, unready, facts, std::move(request));
  };
  spawn("http", impl_->http->run(handler));
  return impl_->http->port();
}

void Process::set_ready(bool ready) {
  if (ready_.exchange(ready) == ready) return;
  impl_->manager.tell(ready ? "STATUS=ready" : "STATUS=" + std::string(impl_->unready));
}

void Process::set_certificate_end(WallTime not_after) {
  const auto since_1970 = std::chrono::duration<double>(not_after.time_since_epoch());
  impl_->metrics.gauge("certificate_expiry_timestamp_seconds").set(since_1970.count());
}

void Process::request_stop() {
  net::asio::post(runtime_->strand, [this] {
    if (impl_->stopping) return;
    impl_->stopping = true;
    impl_->manager.tell("STOPPING=1\nSTATUS=draining");
    ready_ = false;
    if (impl_->http) impl_->http->stop();
    if (impl_->stop) impl_->stop();
  });
}

namespace {

net::Awaitable<void> wait_and_stop(net::TaskGroup* tasks, net::asio::io_context* io) {
  co_await tasks->join();
  io->stop();
}

// On the node's strand: a node whose strand stands still falls silent.
void beat(net::asio::steady_timer* timer, const ServiceManager* manager) {
  manager->tell("WATCHDOG=1");
  timer->expires_after(*manager->heartbeat());
  timer->async_wait([timer, manager](const boost::system::error_code& error) {
    if (!error) beat(timer, manager);
  });
}

// On the node's strand. The work itself is the pool's.
void look_at_memory(net::asio::steady_timer* timer, IdleMemory* memory, net::WorkerPool* pool) {
  timer->expires_after(kMemoryLook);
  timer->async_wait([timer, memory, pool](const boost::system::error_code& error) {
    if (error) return;
    (void)pool->enqueue([memory] { (void)memory->look(); });  // a full queue is not idle
    look_at_memory(timer, memory, pool);
  });
}

}  // namespace

Status Process::run(std::function<void()> stop) {
  impl_->stop = std::move(stop);
  impl_->signals.add(SIGTERM);
  impl_->signals.add(SIGINT);
  impl_->signals.async_wait([this](const boost::system::error_code& error, int) {
    if (error) return;
    request_stop();
    impl_->signals.async_wait([](const boost::system::error_code& again, int) {
      if (!again) std::_Exit(1);
    });
  });
  net::asio::steady_timer heartbeat(runtime_->strand);
  if (impl_->manager.heartbeat()) {
    net::asio::post(runtime_->strand, [timer = &heartbeat, manager = &impl_->manager] { beat(timer, manager); });
  }
  net::asio::steady_timer memory_look(runtime_->strand);
  net::asio::post(runtime_->strand,
                  [this, timer = &memory_look] { look_at_memory(timer, &impl_->memory, &impl_->pool); });
  impl_->manager.tell(ready_ ? "READY=1\nSTATUS=ready" : "READY=1\nSTATUS=" + std::string(impl_->unready));
  net::asio::co_spawn(runtime_->strand, wait_and_stop(tasks_.get(), &impl_->io), [](std::exception_ptr) {});
  impl_->health.start(0);
  if (impl_->enrolment) impl_->enrolment->start(kStrangersNice);
  if (impl_->administration) impl_->administration->start(kStrangersNice);
  std::vector<std::thread> threads;
  for (std::size_t i = 1; i < impl_->session_threads; ++i) threads.emplace_back([this] { impl_->io.run(); });
  impl_->io.run();
  for (std::thread& thread : threads) thread.join();
  impl_->health.stop();
  if (impl_->enrolment) impl_->enrolment->stop();
  if (impl_->administration) impl_->administration->stop();
  return failure_;
}

}  // namespace fluvial::tree
