#include "core/net/outbox_budget.h"

#include <algorithm>
#include <utility>

namespace fluvial::net {
namespace {

constexpr Duration kMoment = std::chrono::milliseconds(100);  // between two looks in vain; messages of one are together

}  // namespace

OutboxBudget::Account::~Account() {
  const std::lock_guard lock(budget_->mutex_);
  budget_->end(*this);
  budget_->accounts_.erase(this);
}

void OutboxBudget::Account::close() {
  const std::lock_guard lock(budget_->mutex_);
  budget_->end(*this);
}

void OutboxBudget::Account::add(std::size_t bytes) {
  std::vector<std::function<void()>> ends;
  {
    const std::lock_guard lock(budget_->mutex_);
    if (has_ended_) return;
    const TimePoint now = budget_->clock_.now();
    if (waiting_.empty() || now - waiting_.back().since >= kMoment) waiting_.push_back({now, 0});
    waiting_.back().bytes += bytes;
    bytes_ += bytes;
    budget_->used_ += bytes;
    ends = budget_->end_some(now);
  }
  for (const auto& end : ends) end();
}

void OutboxBudget::Account::taken(std::size_t bytes) {
  const std::lock_guard lock(budget_->mutex_);
  bytes = std::min(bytes, bytes_);  // it may have ended meanwhile
  bytes_ -= bytes;
  budget_->used_ -= bytes;
  while (bytes > 0) {
    const std::size_t part = std::min(bytes, waiting_.front().bytes);
    bytes -= part;
    if ((waiting_.front().bytes -= part) == 0) waiting_.pop_front();
  }
}

std::shared_ptr<OutboxBudget::Account> OutboxBudget::open(End end) {
  auto account = std::make_shared<Account>(shared_from_this(), std::move(end));
  const std::lock_guard lock(mutex_);
  accounts_.insert(account.get());
  return account;
}

std::size_t OutboxBudget::bytes_used() const {
  const std::lock_guard lock(mutex_);
  return used_;
}

std::vector<std::function<void()>> OutboxBudget::end_some(TimePoint now) {
  std::vector<std::function<void()>> ends;
  while (used_ > bytes_max_ && now >= next_look_) {
    Account* most = nullptr;
    for (Account* account : accounts_) {
      if (account->waiting_.empty() || now - account->waiting_.front().since < kPatience) continue;
      if (most == nullptr || account->bytes_ > most->bytes_) most = account;
    }
    if (most == nullptr) {
      next_look_ = now + kMoment;
      break;
    }
    ends.emplace_back([tell = std::move(most->end_), bytes = most->bytes_] { tell(bytes); });
    end(*most);
  }
  return ends;
}

void OutboxBudget::end(Account& account) {
  account.has_ended_ = true;
  used_ -= account.bytes_;
  account.bytes_ = 0;
  account.waiting_.clear();
}

}  // namespace fluvial::net
