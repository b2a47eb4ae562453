#include "core/store/authority_book.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "core/store/journal.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

constexpr std::array<std::pair<AuthorityState, std::string_view>, 5> kNames = {{{AuthorityState::kNext, "next"},
                                                                                {AuthorityState::kIssuing, "issuing"},
                                                                                {AuthorityState::kOld, "old"},
                                                                                {AuthorityState::kRenewed, "renewed"},
                                                                                {AuthorityState::kGone, "gone"}}};

std::string_view name_of(AuthorityState state) {
  return std::ranges::find(kNames, state, &std::pair<AuthorityState, std::string_view>::first)->second;
}

Result<AuthorityState> state_of(const std::string& name) {
  const auto* const found = std::ranges::find(kNames, name, &std::pair<AuthorityState, std::string_view>::second);
  if (found != kNames.end()) return found->first;
  return Error{Code::kDataLoss, "the journal has an authority that is '" + name + "'"};
}

}  // namespace

Result<std::vector<AuthorityRow>> AuthorityBook::all() {
  const std::lock_guard lock(journal_.mutex_);
  std::vector<AuthorityRow> found;
  FLUVIAL_TRY(journal_.database_->query("SELECT key, chain, state, since FROM authorities ORDER BY number", {},
                                        [&](const SqlRow& row) -> Status {
                                          AuthorityRow next;
                                          FLUVIAL_ASSIGN(next.key, row.digest(0));
                                          next.chain = row.text(1);
                                          FLUVIAL_ASSIGN(next.state, state_of(row.text(2)));
                                          next.since = row.time(3);
                                          found.push_back(std::move(next));
                                          return {};
                                        }));
  return found;
}

Result<std::uint64_t> AuthorityBook::trust() {
  const std::lock_guard lock(journal_.mutex_);
  FLUVIAL_ASSIGN(const auto value, journal_.database_->scalar("SELECT value FROM counters WHERE name = 'trust'"));
  return static_cast<std::uint64_t>(value.value_or(0));
}

Status AuthorityBook::put(const std::vector<AuthorityRow>& rows, std::optional<WallTime> changed) {
  const std::lock_guard lock(journal_.mutex_);
  Database& database = *journal_.database_;
  return journal_.change([&]() -> Status {
    for (const AuthorityRow& row : rows) {
      FLUVIAL_TRY(
          database.run("INSERT INTO authorities (key, chain, state, since) VALUES (?, ?, ?, ?) ON CONFLICT (key) DO "
                       "UPDATE SET chain = "
                       "excluded.chain, state = excluded.state, since = excluded.since",
                       {row.key, row.chain, name_of(row.state), row.since}));
    }
    if (!changed) return {};
    return database.run(
        "INSERT INTO counters VALUES ('trust', max(1, ?)) ON CONFLICT (name) DO UPDATE SET value = max(value + 1, "
        "excluded.value)",
        {*changed});
  });
}

Status AuthorityBook::shown(NodeId node, std::uint64_t trust) {
  const std::lock_guard lock(journal_.mutex_);
  Database& database = *journal_.database_;
  FLUVIAL_ASSIGN(const auto known, database.scalar("SELECT trust FROM nodes WHERE id = ?", {node}));
  if (!known || static_cast<std::uint64_t>(*known) == trust) return {};
  return journal_.change([&] { return database.run("UPDATE nodes SET trust = ? WHERE id = ?", {trust, node}); });
}

Result<std::map<NodeId, std::uint64_t>> AuthorityBook::shown() {
  const std::lock_guard lock(journal_.mutex_);
  std::map<NodeId, std::uint64_t> found;
  FLUVIAL_TRY(journal_.database_->query("SELECT id, trust FROM nodes", {}, [&](const SqlRow& row) -> Status {
    found.emplace(row.id<NodeId>(0), row.number(1));
    return {};
  }));
  return found;
}

}  // namespace fluvial::store
