// fluvial nodes: who is in the federation.
#include <fmt/format.h>

#include <memory>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/table.h"
#include "cli/waits.h"

namespace fluvial::cli {
namespace {

struct NodesOptions : AdminOptions {
  bool all = false;
};

// Its parent, and the one that it should have where that is another.
std::string parent_words(const json::value& node) {
  const std::string parent = text_member(node, "parent");
  const std::string wished = text_member(node, "parent_wished");
  if (parent.empty()) return "-";
  return wished.empty() || wished == parent ? parent : fmt::format("{} (wished: {})", parent, wished);
}

int list_nodes(const Io& io, const NodesOptions& options) {
  const auto nodes = options.client().get(options.all ? "/v1/nodes?all=1" : "/v1/nodes");
  if (!nodes.ok()) return fail(io, "nodes list", nodes.error());
  if (options.json) {
    io.print(pretty(*nodes));
    return kDone;
  }
  const Terminal terminal = io.terminal();
  const std::string today = utc_now();
  Table table({{"ID", Align::kRight, 6},
               {"NAME"},
               {"ROLE", Align::kLeft, 2},
               {"REGION", Align::kLeft, 3},
               {"PARENT"},
               {"STATE"},
               {"WORKERS", Align::kRight},
               {"DOING", Align::kLeft, 1},
               {"CERTIFICATE ENDS", Align::kLeft, 4},
               {"WEIGHT MAX", Align::kRight, 7},
               {"ROUND P50", Align::kRight, 5},
               {"ENROLLED", Align::kLeft, 8}});
  std::string reasons;
  std::string ahead_of_us;
  std::string detours;
  for (const json::value& node : array_member(*nodes, "nodes")) {
    const bool connected = bool_member(node, "connected");
    std::string state = connected ? terminal.green("connected")
                                  : terminal.yellow("away since " + format_since(text_member(node, "since"), today));
    if (bool_member(node, "quarantined")) {
      state = terminal.red("quarantined");
      reasons += text_member(node, "name") + ": " + text_member(node, "quarantine_reason") + "\n";
    }
    if (const std::string ahead = text_member(node, "ahead"); !ahead.empty()) {
      state = terminal.red("refused");
      ahead_of_us += text_member(node, "name") + ": " + ahead + "\n";
    }
    if (bool_member(node, "revoked")) state = terminal.red(bool_member(node, "removed") ? "removed" : "revoked");
    const json::value* past = node.is_object() ? node.as_object().if_contains("past") : nullptr;
    if (past != nullptr && past->is_object()) {
      state += ", " + terminal.yellow("past " + text_member(*past, "aggregator"));
      detours += text_member(node, "name") + ": " + text_member(*past, "aggregator") + " " +
                 text_member(*past, "reason") + "\n";
    }
    const json::value* pace = node.is_object() ? node.as_object().if_contains("pace") : nullptr;
    const bool timed = pace != nullptr && pace->is_object();
    if (timed && bool_member(*pace, "straggler")) state += ", " + terminal.yellow("straggler");
    const std::string expected = text_member(node, "expected", "yes");
    if (expected != "yes") state += ", " + terminal.yellow(expected);
    const std::string region = text_member(node, "region");
    const std::string parent = parent_words(node);
    const json::value& workers = member(node, "workers");
    const std::uint64_t weight_max = count_member(node, "weight_max");
    table.add({std::to_string(count_member(node, "id")), text_member(node, "name"), text_member(node, "role"),
               region.empty() ? "-" : region, parent, state,
               workers.is_null() ? "-" : std::to_string(count_member(node, "workers")), doing_words(node),
               format_time(text_member(node, "certificate_ends_at")).substr(0, 10),
               weight_max == 0 ? "-" : format_count(weight_max),
               timed ? format_seconds(number_member(*pace, "p50_s", 0)) : "-",
               format_time(text_member(node, "enrolled_at"))});
  }
  io.print(table.empty() ? "no members yet; fluvial token create invites one\n" : table.render(terminal));
  if (!detours.empty()) io.print("\nPast their aggregator:\n" + detours);
  if (!reasons.empty()) io.print("\nIn quarantine until `fluvial nodes clear NAME`:\n" + reasons);
  if (!ahead_of_us.empty()) io.print("\nRefused, because they know more than the coordinator:\n" + ahead_of_us);
  return kDone;
}

int revoke_node(const Io& io, const AdminOptions& options, const std::string& name) {
  const auto done = options.client().post("/v1/nodes/" + url_encoded(name) + "/revoke");
  if (!done.ok()) return fail(io, "nodes revoke", done.error());
  io.print(options.json ? pretty(*done) : fmt::format("{} is revoked: its sessions end and it cannot return\n", name));
  return kDone;
}

int remove(const Io& io, const AdminOptions& options, const std::string& name) {
  const auto done = options.client().post("/v1/nodes/" + url_encoded(name) + "/remove");
  if (!done.ok()) return fail(io, "nodes remove", done.error());
  io.print(options.json ? pretty(*done)
                        : fmt::format("{} is removed: its certificate is good for nothing, and it is listed only by "
                                      "fluvial nodes list --all\n",
                                      name));
  return kDone;
}

int clear(const Io& io, const AdminOptions& options, const std::string& name) {
  const auto done = options.client().post("/v1/nodes/" + url_encoded(name) + "/clear");
  if (!done.ok()) return fail(io, "nodes clear", done.error());
  io.print(options.json ? pretty(*done) : fmt::format("{} may take part again\n", name));
  return kDone;
}

// A command that is given a member's name.
void add_by_name(CLI::App& nodes, Commands& commands, const char* command, const char* help, const char* footer,
                 int (*action)(const Io&, const AdminOptions&, const std::string&)) {
  auto options = std::make_shared<AdminOptions>();
  auto name = std::make_shared<std::string>();
  CLI::App* added = nodes.add_subcommand(command, help);
  added->add_option("NAME", *name, "the member")->required();
  add_admin_options(*added, *options);
  add_json_flag(*added, *options);
  added->footer(footer);
  added->callback([&commands, options, name, action] {
    commands.chosen = [&commands, options, name, action] { return action(commands.io, *options, *name); };
  });
}

}  // namespace

void add_node_commands(CLI::App& app, Commands& commands) {
  CLI::App* nodes = app.add_subcommand("nodes", "the federation's members");

  auto list_options = std::make_shared<NodesOptions>();
  CLI::App* listed = nodes->add_subcommand("list", "every member, its parent and whether it is connected");
  listed->add_flag("--all", list_options->all, "also those that were removed");
  add_admin_options(*listed, *list_options);
  add_json_flag(*listed, *list_options);
  listed->footer(
      "\"past X\": the member is connected, but not below X, the aggregator of its region; the reason stands below.");
  listed->callback([&commands, list_options] {
    commands.chosen = [&commands, list_options] { return list_nodes(commands.io, *list_options); };
  });

  add_by_name(*nodes, commands, "clear", "lift a site's quarantine", "", clear);
  add_by_name(
      *nodes, commands, "revoke", "shut a member out, for good",
      "Its sessions end and its certificate is good for nothing. A new token for the same name lets it back in, "
      "with a new key.",
      revoke_node);
  add_by_name(
      *nodes, commands, "remove", "take a member off the list that will not come back; it is shut out as well",
      "For members that are away or revoked. Past rounds still name it. A new token for the same name makes it a "
      "member again;\nthe certificates it had before stay void.\nExample:\n  fluvial nodes remove hospital-a",
      remove);
}

}  // namespace fluvial::cli
