// fluvial token: one-time invitations to the federation.
#include <fmt/format.h>

#include <memory>
#include <optional>

#include "cli/admin_client.h"
#include "cli/command.h"
#include "cli/format.h"
#include "cli/table.h"
#include "cli/token_file.h"
#include "core/config/settings.h"
#include "core/identity/names.h"

namespace fluvial::cli {
namespace {

struct CreateOptions : AdminOptions {
  std::string role = "site";
  std::string name;
  std::string region;
  std::string ttl = "1h";
  std::uint64_t weight_max = 1'000'000;
  std::string out;
};

int create(const Io& io, const CreateOptions& options) {
  const auto ttl_s = config::parse_seconds(options.ttl);
  if (!ttl_s.ok()) return fail(io, "token create", ttl_s.error(), kUsage);
  json::object body = {{"role", options.role}, {"name", options.name}, {"region", options.region}, {"ttl_s", *ttl_s}};
  if (options.role == "site") body["weight_max"] = options.weight_max;
  std::optional<TokenFile> file;
  if (!options.out.empty()) {
    auto made = TokenFile::make(options.out);
    if (!made.ok()) return fail(io, "token create", made.error());
    file.emplace(std::move(*made));
  }
  auto token = options.client().post("/v1/tokens", body);
  if (!token.ok()) return fail(io, "token create", token.error());
  if (file) {
    const Status written = file->write(text_member(*token, "token"));
    if (!written.ok()) return fail(io, "token create", written.error());
    token->as_object().erase("token");
    token->as_object()["token_file"] = options.out;
  }
  if (options.json) {
    io.print(pretty(*token));
    return kDone;
  }
  io.print((file ? "wrote " + options.out : text_member(*token, "token")) + "\n");
  io.note(
      fmt::format("{} {}: valid once, until {}. It is not shown again. At the {}:\n"
                  "  fluvial enroll --token-file FILE --data-dir /var/lib/fluvial\n",
                  options.role, options.name, format_time(text_member(*token, "expires_at")), options.role));
  return kDone;
}

int list(const Io& io, const AdminOptions& options) {
  const auto tokens = options.client().get("/v1/tokens");
  if (!tokens.ok()) return fail(io, "token list", tokens.error());
  if (options.json) {
    io.print(pretty(*tokens));
    return kDone;
  }
  Table table({{"ID"}, {"ROLE"}, {"NAME"}, {"REGION"}, {"EXPIRES"}, {"USED"}});
  for (const json::value& token : array_member(*tokens, "tokens")) {
    table.add({text_member(token, "id"), text_member(token, "role"), text_member(token, "name"),
               text_member(token, "region", "-"), format_time(text_member(token, "expires_at")),
               format_time(text_member(token, "used_at"))});
  }
  io.print(table.empty() ? "no tokens\n" : table.render(io.terminal()));
  return kDone;
}

}  // namespace

void add_token_commands(CLI::App& app, Commands& commands) {
  CLI::App* token = app.add_subcommand("token", "one-time invitations to the federation");

  auto options = std::make_shared<CreateOptions>();
  CLI::App* created = token->add_subcommand("create", "make a token; its text is shown once");
  created->add_option("--role", options->role, "site or aggregator")
      ->check(one_of({"site", "aggregator"}))
      ->type_name("ROLE")
      ->capture_default_str();
  created->add_option("--name", options->name, "the new member's name, such as hospital-a")
      ->required()
      ->type_name("NAME")
      ->check(checked("1 to 63 characters: a lower-case letter or digit, then those, '.', '_' or '-'",
                      [](const std::string& text) { return identity::check_node_name(text); }));
  created->add_option("--region", options->region, "where it stands: names joined by '/', such as eu/west")
      ->type_name("REGION")
      ->check(checked("1 to 8 names joined by '/', such as eu/west",
                      [](const std::string& text) { return identity::check_region(text); }));
  created->add_option("--ttl", options->ttl, "how long it may be used, such as 10m")
      ->type_name("TIME")
      ->capture_default_str()
      ->check(checked("a duration such as 30s, 10m, 2h or 7d", [](const std::string& text) -> Status {
        const auto seconds = config::parse_seconds(text);
        return seconds.ok() ? Status() : Status(seconds.error());
      }));
  created->add_option("--weight-max", options->weight_max, "the largest weight (training samples) a site may claim")
      ->check(whole_number(1, (1U << 29) - 1))
      ->type_name("N")
      ->capture_default_str();
  created
      ->add_option("--out", options->out,
                   "a new file for it, which nobody else may read (mode 0600), instead of "
                   "standard output")
      ->type_name("FILE");
  add_admin_options(*created, *options);
  add_json_flag(*created, *options);
  created->footer(
      "Example:\n  fluvial token create --role site --name hospital-a --region eu-west --ttl 10m --out token.txt");
  created->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return create(commands.io, *options); }; });

  auto list_options = std::make_shared<AdminOptions>();
  CLI::App* listed = token->add_subcommand("list", "the tokens that were made, without their secrets");
  add_admin_options(*listed, *list_options);
  add_json_flag(*listed, *list_options);
  listed->callback([&commands, list_options] {
    commands.chosen = [&commands, list_options] { return list(commands.io, *list_options); };
  });
}

}  // namespace fluvial::cli
