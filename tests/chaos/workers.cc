#include "tests/chaos/workers.h"

#include <chrono>

#include "cli/bench_update.h"

namespace fluvial::chaos {
namespace {

constexpr std::uint64_t kWalksOutOneIn = 40;  // tasks that a worker leaves without an answer

}  // namespace

Workers::Workers(const std::vector<cli::LocalSite>& sites, std::uint64_t seed) : seed_(seed) {
  for (std::size_t i = 0; i < sites.size(); ++i) {
    indices_[sites[i].name] = i + 1;
  }
  for (std::size_t i = 0; i < sites.size(); ++i) {
    threads_.emplace_back([this, socket = sites[i].worker_socket, i] { run(socket, i + 1); });
  }
}

Workers::~Workers() {
  stop();
  for (std::thread& thread : threads_) thread.join();
}

void Workers::died(const std::string& site) {
  const std::lock_guard lock(mutex_);
  if (const auto found = indices_.find(site); found != indices_.end()) ++lives_[found->second].deaths;
}

void Workers::disk_fails(const std::string& site, bool fails) {
  const std::lock_guard lock(mutex_);
  const auto found = indices_.find(site);
  if (found == indices_.end()) return;
  ++lives_[found->second].troubles;
  if (fails) {
    in_trouble_.insert(found->second);
  } else {
    in_trouble_.erase(found->second);
  }
}

bool Workers::is_in_trouble(std::uint64_t site_index) const {
  const std::lock_guard lock(mutex_);
  return in_trouble_.contains(site_index);
}

Workers::Life Workers::life_of(std::uint64_t site_index) const {
  const std::lock_guard lock(mutex_);
  const auto found = lives_.find(site_index);
  return found == lives_.end() ? Life{} : found->second;
}

cli::Audit::Made Workers::made(std::uint64_t run, std::uint64_t site_index, std::uint64_t round,
                               std::uint64_t next) const {
  const Life now = life_of(site_index);
  const std::lock_guard lock(mutex_);
  const auto found = trained_.find({run, site_index, round});
  if (found == trained_.end()) return cli::Audit::Made::kNo;
  const auto made_next = trained_.find({run, site_index, next});
  const Life until = next == 0 || made_next == trained_.end() ? now : made_next->second;
  return found->second == until ? cli::Audit::Made::kYes : cli::Audit::Made::kPerhaps;
}

void Workers::run(std::string socket, std::uint64_t site_index) {
  Rng rng(seed_ ^ site_index);
  while (!stopping_) {
    const std::uint64_t deaths = life_of(site_index).deaths;
    auto client = local::WorkerClient::attach_with_retry(socket, {.name = "chaos"}, std::chrono::milliseconds(100));
    // A death in between: it is not known whose socket this is.
    if (client.ok() && life_of(site_index).deaths == deaths) serve(std::move(*client), site_index, deaths, rng);
  }
}

void Workers::serve(local::WorkerClient client, std::uint64_t site_index, std::uint64_t deaths, Rng& rng) {
  for (;;) {
    const auto task = client.next_task();
    if (!task.ok() || !*task) return;
    auto local = client.new_model();
    if (!local.ok()) return;
    const std::uint64_t round = (*task)->round.value();
    // As if it trained. Slowly while the disk fails: how many updates may be lost in a row is bounded by the audit.
    std::this_thread::sleep_for(std::chrono::milliseconds((is_in_trouble(site_index) ? 600 : 20) + rng.below(100)));
    if (rng.below(kWalksOutOneIn) == 0) {
      ++walked_out_;
      return;  // as one does that crashes
    }
    const cli::UpdateStream stream{.seed = seed_, .round = round, .site_index = site_index};
    const round::Schema& schema = (*task)->schema;
    std::vector<float> base(static_cast<std::size_t>(schema.value_count())), trained(base.size());
    std::vector<std::int64_t> integers(static_cast<std::size_t>(schema.integer_count()));
    round::split_model(schema, (*task)->model->bytes(), base, integers);
    cli::apply_update(stream, base, trained);
    for (std::size_t k = 0; k < integers.size(); ++k) integers[k] = cli::bench_integer(stream, k);
    const Status joined = round::join_model(schema, trained, integers, local->span());
    FLUVIAL_CHECK(joined.ok(), "integers that fit");
    {
      const std::lock_guard lock(mutex_);
      if (in_trouble_.contains(site_index)) ++lives_[site_index].troubles;
      trained_[{(*task)->run.value(), site_index, round}] = {deaths, lives_[site_index].troubles};
    }
    const Status answered = client.submit(std::move(*local), cli::bench_weight(site_index), {});
    (void)answered.ok();  // when the agent is gone next_task() says so
  }
}

}  // namespace fluvial::chaos
