#include "tests/chaos/person.h"

#include <fmt/format.h>

namespace fluvial::chaos {
namespace {

using namespace std::chrono_literals;
using std::chrono::steady_clock;

constexpr auto kLooksEvery = 500ms;

}  // namespace

Person::Person(cli::AdminClient admin, Disturber& disturber, std::uint64_t run, std::uint64_t seed)
    : admin_(std::move(admin)), disturber_(disturber), run_(run), rng_(seed), looks_at_(steady_clock::now()) {
  changes_at_ = looks_at_ + draw(5s, 20s);
}

std::chrono::milliseconds Person::draw(std::chrono::milliseconds least, std::chrono::milliseconds most) {
  return least + std::chrono::milliseconds(rng_.below(static_cast<std::uint64_t>((most - least).count()) + 1));
}

// Of a coordinator that is down or stopped: another time.
void Person::command(const char* what) {
  const auto done = admin_.post(fmt::format("/v1/runs/{}/{}", run_, what));
  (void)done.ok();
}

Status Person::step() {
  const auto now = steady_clock::now();
  const auto& coordinator = disturber_.nodes().at("coordinator");
  // One that is stopped would keep the person, and with it the disturber, waiting.
  if (now < looks_at_ || coordinator.state != Disturber::State::kUp || coordinator.disk_fails) return {};
  looks_at_ = now + kLooksEvery;
  const auto listed = admin_.get("/v1/runs");
  if (!listed.ok()) return {};
  std::string status;
  for (const cli::json::value& run : cli::array_member(*listed, "runs")) {
    if (cli::count_member(run, "id") == run_) status = cli::text_member(run, "status");
  }
  if (status == "running") {
    tried_to_resume_ = has_paused_ = false;
    if (pauses_ && now >= changes_at_) {
      command("pause");
      ++paused_;
      has_paused_ = true;
      changes_at_ = now + draw(200ms, 3s);
    }
    return {};
  }
  if (status != "paused") return {};
  if (has_paused_ && pauses_ && now < changes_at_) return {};
  changes_at_ = now + draw(5s, 20s);
  return mend(now);
}

Status Person::mend(Instant now) {
  if (!has_paused_) ++mended_;
  if (!tried_to_resume_) {
    tried_to_resume_ = true;
    command("resume");
    looks_at_ = now + 1s;
    return {};
  }
  tried_to_resume_ = has_paused_ = false;
  return disturber_.restart("coordinator");
}

}  // namespace fluvial::chaos
