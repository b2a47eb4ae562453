// fluvial audit: who did what to the federation, and whether the log of it is as it was written.
#include <fmt/format.h>

#include <boost/json/serialize.hpp>
#include <deque>
#include <memory>
#include <thread>

#include "cli/admin_client.h"
#include "cli/audit_view.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/table.h"
#include "core/store/backup_manifest.h"

namespace fluvial::cli {
namespace {

using store::AuditRow;

constexpr std::uint64_t kPage = 1'000;

struct ShowOptions : AdminOptions {
  AuditFilter filter;
  std::string since;
  std::uint64_t last = 50;
  bool follow = false;
};

struct VerifyOptions : AdminOptions {
  std::uint64_t from = 0;
  std::string chain;
};

using Visit = std::function<Status(const AuditRow&)>;

Result<std::uint64_t> read_page(const AdminClient& client, std::uint64_t after, const Visit& visit) {
  FLUVIAL_ASSIGN(const json::value page, client.get(fmt::format("/v1/audit?after={}&limit={}", after, kPage)));
  std::uint64_t count = 0;
  for (const json::value& entry : array_member(page, "entries")) {
    FLUVIAL_ASSIGN(const AuditRow row, audit_row_of(entry));
    FLUVIAL_TRY(visit(row));
    after = row.number;
    ++count;
  }
  return count == 0 ? 0 : after;
}

// Of the coordinator that answers, or of the journal in its folder when none does.
Status read_log(const Commands& commands, const AdminOptions& options, const Visit& visit) {
  const AdminClient client = options.client();
  std::uint64_t after = 0;
  for (;;) {
    const Result<std::uint64_t> next = read_page(client, after, visit);
    if (!next.ok() && next.error().code == Code::kUnavailable && after == 0) {
      const std::string journal = store::join_path(options.data_dir, std::string(store::kBackupJournal));
      const Status read = store::read_audit_log(commands.files, journal, visit);
      if (!read.ok() && read.error().code == Code::kNotFound) return next.error();
      return read;
    }
    if (!next.ok()) return next.error();
    if (*next == 0) return {};
    after = *next;
  }
}

std::string audit_line(const AuditLine& line, bool as_json) {
  if (as_json) return json::serialize(audit_object(line)) + "\n";
  return fmt::format("{}  {}  {}  {}  {}  {}  {}\n", line.row.number, format_time(audit_time(line.row.at)), line.kind,
                     audit_what(line), audit_by(line), line.text("from", "-"), line.text("detail", "-"));
}

// What comes after that entry, until Ctrl-C.
int follow(const Io& io, const ShowOptions& options, std::uint64_t after) {
  const AdminClient client = options.client();
  const auto tell = [&](const AuditRow& row) -> Status {
    const AuditLine line = audit_line_of(row);
    if (is_shown(options.filter, line)) io.print(audit_line(line, options.json));
    return {};
  };
  bool answers = true;
  for (;;) {
    const Result<std::uint64_t> next = read_page(client, after, tell);
    if (!next.ok() && next.error().code != Code::kUnavailable) return fail(io, "audit show", next.error());
    if (answers && !next.ok()) io.note(next.error().message + "; asking again. Ctrl-C leaves\n");
    answers = next.ok();
    if (answers && *next != 0) {
      after = *next;
    } else {
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
}

int show(const Commands& commands, ShowOptions options) {
  const Io& io = commands.io;
  if (!options.since.empty()) {
    const auto since = audit_since(options.since, SystemClock().wall_now());
    if (!since.ok()) return fail(io, "audit show", since.error(), kUsage);
    options.filter.since = *since;
  }
  std::deque<AuditLine> lines;
  std::uint64_t newest = 0;
  const Status read = read_log(commands, options, [&](const AuditRow& row) -> Status {
    newest = row.number;
    AuditLine line = audit_line_of(row);
    if (!is_shown(options.filter, line)) return {};
    lines.push_back(std::move(line));
    if (options.last > 0 && lines.size() > options.last) lines.pop_front();
    return {};
  });
  if (!read.ok()) return fail(io, "audit show", read.error());
  if (options.follow) {
    for (const AuditLine& line : lines) io.print(audit_line(line, options.json));
    return follow(io, options, newest);
  }
  if (options.json) {
    json::array entries;
    for (const AuditLine& line : lines) entries.push_back(audit_object(line));
    io.print(pretty(json::object{{"entries", std::move(entries)}}));
    return kDone;
  }
  Table table({{"NUMBER", Align::kRight}, {"TIME"}, {"KIND"}, {"WHAT"}, {"BY"}, {"FROM", Align::kLeft, 1}, {"DETAIL"}});
  for (const AuditLine& line : lines) {
    table.add({std::to_string(line.row.number), format_time(audit_time(line.row.at)), line.kind, audit_what(line),
               audit_by(line), line.text("from", "-"), line.text("detail", "-")});
  }
  io.print(table.empty() ? "no such entries\n" : table.render(io.terminal()));
  return kDone;
}

int verify(const Commands& commands, const VerifyOptions& options) {
  const Io& io = commands.io;
  store::AuditChain chain;
  if (options.from != 0) {
    const auto known = digest_from_hex(options.chain);
    if (!known.ok())
      return fail(io, "audit verify", {Code::kInvalidArgument, "--chain: expected 64 hex digits"}, kUsage);
    chain = store::AuditChain({options.from, *known});
  }
  Status whole = read_log(commands, options, [&](const AuditRow& row) { return chain.next(row); });
  if (whole.ok()) whole = chain.finish();
  if (!whole.ok() && whole.error().code != Code::kDataLoss) return fail(io, "audit verify", whole.error(), kUsage);
  const store::AuditHead& head = chain.head();
  if (options.json) {
    io.print(pretty(json::object{{"whole", whole.ok()},
                                 {"reason", whole.ok() ? "" : whole.error().message},
                                 {"checked", chain.checked()},
                                 {"number", head.number},
                                 {"chain", to_hex(head.chain)}}));
    return whole.ok() ? kDone : kFailed;
  }
  if (!whole.ok()) return fail(io, "audit verify", whole.error());
  io.print(fmt::format("{} entries are as they were written; the last is\n  --from {} --chain {}\n", chain.checked(),
                       head.number, to_hex(head.chain)));
  return kDone;
}

void declare_show(CLI::App& audit, Commands& commands) {
  const auto options = std::make_shared<ShowOptions>();
  std::vector<std::string> kinds;
  for (const store::AuditKindInfo& info : store::audit_kinds()) kinds.emplace_back(info.name);
  CLI::App* app = audit.add_subcommand("show", "the entries, the newest last");
  app->add_option("--since", options->since,
                  "not older than this: 30m, 12h, 7d, or a time such as 2026-01-31T12:00:00Z")
      ->type_name("TIME");
  app->add_option("--kind", options->filter.kinds, "only these kinds; may be given more than once")
      ->type_name("KIND")
      ->check(one_of(kinds));
  app->add_option("--member", options->filter.member, "only about this member")->type_name("NAME");
  app->add_option("--last", options->last, "at most this many, the newest; 0: all")
      ->type_name("N")
      ->check(whole_number(0))
      ->capture_default_str();
  app->add_flag("--follow", options->follow, "then go on with each entry as it is written, a line each, until Ctrl-C");
  add_admin_options(*app, *options);
  add_json_flag(*app, *options);
  app->footer(
      "Of the coordinator that runs, or of the journal in --data-dir when none does.\n"
      "Example:\n  fluvial audit show --since 7d --kind revoked --kind enrolled");
  app->callback([&commands, options] { commands.chosen = [&commands, options] { return show(commands, *options); }; });
}

void declare_verify(CLI::App& audit, Commands& commands) {
  const auto options = std::make_shared<VerifyOptions>();
  CLI::App* app = audit.add_subcommand("verify", "whether every entry is as it was written");
  CLI::Option* from = app->add_option("--from", options->from, "an entry that is known from before")
                          ->type_name("NUMBER")
                          ->check(whole_number(1));
  CLI::Option* chain =
      app->add_option("--chain", options->chain, "its chain, as verify printed it then")->type_name("HEX");
  from->needs(chain);
  chain->needs(from);
  add_admin_options(*app, *options);
  add_json_flag(*app, *options);
  app->footer(
      "It names the first entry that was changed, taken out or moved. Keep what it prints elsewhere, and give it the "
      "next time:\nonly so a log is found out whose end was cut off, or that was written anew from some entry on.\n"
      "Of the coordinator that runs, or of the journal in --data-dir (also a restored backup's, or a copy's) when none "
      "does.\n"
      "Exit status: 0 whole, 1 not, 2 it could not be read.\n"
      "Example:\n  fluvial audit verify --data-dir /srv/restored");
  app->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return verify(commands, *options); }; });
}

}  // namespace

void add_audit_commands(CLI::App& app, Commands& commands) {
  CLI::App* audit = app.add_subcommand("audit", "the log of who did what to the federation");
  declare_show(*audit, commands);
  declare_verify(*audit, commands);
}

}  // namespace fluvial::cli
