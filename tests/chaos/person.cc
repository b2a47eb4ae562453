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

// False, of a coordinator that is down: another time.
bool Person::command(const char* what) { return admin_.post(fmt::format("/v1/runs/{}/{}", run_, what)).ok(); }

Status Person::step() {
  const auto now = steady_clock::now();
  const auto& coordinator = disturber_.nodes().at("coordinator");
  // One that is stopped would keep the person, and with it the disturber, waiting.
  if (now < looks_at_ || coordinator.state != Disturber::State::kUp || coordinator.disk_fails) return {};
  looks_at_ = now + kLooksEvery;
  // What the process believes: its journal may not have taken that a disk has paused the run.
  const auto told = admin_.get("/v1/status");
  if (!told.ok()) return {};
  const cli::json::value* run = told->is_object() ? told->as_object().if_contains("run") : nullptr;
  if (run == nullptr || !run->is_object() || cli::count_member(*run, "id") != run_) return {};
  const std::string status = cli::text_member(*run, "status");
  if (status == "running") {
    tried_to_resume_ = false;
    if (now < changes_at_ || !pauses_) return {};
    if (has_paused_) {  // the open round has not closed yet, or a coordinator that died has forgotten it
      has_paused_ = false;
      changes_at_ = now + draw(5s, 20s);
    } else {
      has_paused_ = command("pause");
      paused_ += has_paused_ ? 1 : 0;
      changes_at_ = now + draw(200ms, 3s);
    }
    return {};
  }
  if (status != "paused" || (has_paused_ && pauses_ && now < changes_at_)) return {};
  changes_at_ = now + draw(5s, 20s);
  return mend(now);
}

Status Person::mend(Instant now) {
  if (!has_paused_ && !tried_to_resume_) ++mended_;
  if (!tried_to_resume_) {
    tried_to_resume_ = true;
    const bool resumed = command("resume");
    has_paused_ = has_paused_ && !resumed;
    looks_at_ = now + 1s;
    return {};
  }
  tried_to_resume_ = has_paused_ = false;
  return disturber_.restart("coordinator");
}

}  // namespace fluvial::chaos
