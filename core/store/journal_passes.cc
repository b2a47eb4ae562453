#include "core/store/journal_passes.h"

#include <string>

#include "core/round/pass.h"

namespace fluvial::store {
namespace {

Status check_within(const round::ContributorSet& in, const round::ContributorSet& before, std::size_t pass) {
  for (const auto& [site, entry] : in.entries()) {
    if (before.contains(site)) continue;
    return Error{Code::kFailedPrecondition, "site " + std::to_string(site.value()) + " is in " +
                                                round::pass_name(pass) + " and not in the one before"};
  }
  return {};
}

Result<round::ContributorSet> contributors_of(Database& database, const round::CommitRecord& commit, std::uint64_t pass,
                                              const round::MadeFrom& from) {
  round::ContributorSet set;
  FLUVIAL_TRY(
      database.query("SELECT site, lease, weight, digest, probe FROM pass_contributions WHERE run = ? AND round = ? "
                     "AND pass = ? ORDER BY site",
                     {commit.run, commit.round, pass}, [&](const SqlRow& row) -> Status {
                       round::Contribution entry;
                       entry.site = row.id<SiteId>(0);
                       entry.lease = row.id<Epoch>(1);
                       entry.weight = row.number(2);
                       FLUVIAL_ASSIGN(entry.digest, row.digest(3));
                       entry.probe = row.integer(4);
                       entry.from = from;
                       return set.add(std::move(entry));
                     }));
  return set;
}

}  // namespace

round::MadeFrom made_from(const round::CommitRecord& commit) {
  if (commit.passes.empty()) return {};
  return {static_cast<std::uint32_t>(commit.passes.size()), commit.passes.back().mean.digest};
}

Status check_passes(const round::CommitRecord& commit) {
  for (std::size_t pass = 1; pass < commit.passes.size(); ++pass) {
    FLUVIAL_TRY(check_within(commit.passes[pass].contributors, commit.passes[pass - 1].contributors, pass));
  }
  if (commit.passes.empty()) return {};
  return check_within(commit.contributors, commit.passes.back().contributors, commit.passes.size());
}

Status write_passes(Database& database, const round::CommitRecord& commit) {
  std::uint64_t number = 0;
  for (const round::PassRecord& pass : commit.passes) {
    FLUVIAL_TRY(database.run("INSERT INTO passes VALUES (?, ?, ?, ?, ?)",
                             {commit.run, commit.round, number, pass.mean.digest, pass.mean.bytes}));
    for (const auto& [site, entry] : pass.contributors.entries()) {
      FLUVIAL_TRY(
          database.run("INSERT INTO pass_contributions VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                       {commit.run, commit.round, number, site, entry.lease, entry.weight, entry.digest, entry.probe}));
    }
    ++number;
  }
  if (!commit.codec_state) return {};
  return database.run("INSERT INTO codec_states VALUES (?, ?, ?, ?)",
                      {commit.run, commit.round, commit.codec_state->digest, commit.codec_state->bytes});
}

Status read_passes(Database& database, round::CommitRecord* commit) {
  commit->passes.clear();
  FLUVIAL_TRY(database.query("SELECT mean, mean_bytes FROM passes WHERE run = ? AND round = ? ORDER BY pass",
                             {commit->run, commit->round}, [&](const SqlRow& row) -> Status {
                               round::PassRecord& pass = commit->passes.emplace_back();
                               FLUVIAL_ASSIGN(pass.mean.digest, row.digest(0));
                               pass.mean.bytes = row.number(1);
                               return {};
                             }));
  FLUVIAL_TRY(database.query("SELECT epoch FROM attempts WHERE run = ? AND round = ? AND attempt = ?",
                             {commit->run, commit->round, commit->attempt}, [&](const SqlRow& row) -> Status {
                               commit->epoch = row.id<Epoch>(0);
                               return {};
                             }));
  round::MadeFrom from;
  for (std::size_t pass = 0; pass < commit->passes.size(); ++pass) {
    FLUVIAL_ASSIGN(commit->passes[pass].contributors, contributors_of(database, *commit, pass, from));
    from = {static_cast<std::uint32_t>(pass + 1), commit->passes[pass].mean.digest};
  }
  return {};
}

}  // namespace fluvial::store
