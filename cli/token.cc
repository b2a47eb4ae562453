// fluvial token: one-time invitations to the federation.
#include "core/identity/token.h"

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
  std::uint64_t uses = 1;
  std::string access;
  std::string out;
};

int create(const Io& io, const CreateOptions& options) {
  const auto ttl_s = config::parse_seconds(options.ttl);
  if (!ttl_s.ok()) return fail(io, "token create", ttl_s.error(), kUsage);
  json::object body = {{"role", options.role}, {"name", options.name}, {"region", options.region}, {"ttl_s", *ttl_s}};
  if (options.role == "site") body["weight_max"] = options.weight_max;
  if (!options.access.empty()) body["access"] = options.access;
  if (options.uses != 1) body["uses"] = options.uses;
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
  const std::string times = options.uses == 1 ? "once" : fmt::format("{} times", options.uses);
  const bool is_person = options.role == "operator";
  const std::string advertised = options.role == "aggregator" ? " --advertise HOST:7410" : "";
  io.note(
      fmt::format("{} {}: valid {}, until {}. It is not shown again. At the {}:\n"
                  "  fluvial enroll --token-file FILE{}\n"
                  "To take it back: fluvial token revoke {}\n",
                  options.role, text_member(*token, "name", options.name), times,
                  format_time(text_member(*token, "expires_at")), is_person ? "operator's machine" : options.role,
                  is_person ? "" : " --data-dir /var/lib/fluvial" + advertised, text_member(*token, "id")));
  return kDone;
}

int list_tokens(const Io& io, const AdminOptions& options) {
  const auto tokens = options.client().get("/v1/tokens");
  if (!tokens.ok()) return fail(io, "token list", tokens.error());
  if (options.json) {
    io.print(pretty(*tokens));
    return kDone;
  }
  const Terminal terminal = io.terminal();
  Table table({{"ID"}, {"ROLE"}, {"NAME"}, {"REGION"}, {"STATE"}, {"USES", Align::kRight}, {"EXPIRES"}, {"USED"}});
  for (const json::value& token : array_member(*tokens, "tokens")) {
    const std::string region = text_member(token, "region");
    const std::string state = text_member(token, "state");
    table.add({text_member(token, "id"), text_member(token, "role"), text_member(token, "name"),
               region.empty() ? "-" : region,
               state == "valid"  ? terminal.green(state)
               : state == "used" ? state
                                 : terminal.yellow(state),
               fmt::format("{}/{}", count_member(token, "uses"), count_member(token, "uses_max")),
               format_time(text_member(token, "expires_at")), format_time(text_member(token, "used_at"))});
  }
  io.print(table.empty() ? "no tokens\n" : table.render(io.terminal()));
  return kDone;
}

int revoke_token(const Io& io, const AdminOptions& options, const std::string& id) {
  const auto done = options.client().post("/v1/tokens/" + url_encoded(id) + "/revoke");
  if (!done.ok()) {
    Error error = done.error();
    if (error.code == Code::kNotFound) error.message += "; see: fluvial token list";
    if (error.code == Code::kFailedPrecondition) error.message += "; fluvial nodes revoke NAME shuts the member out";
    return fail(io, "token revoke", error);
  }
  io.print(options.json ? pretty(*done) : fmt::format("token {} is revoked: nobody can enrol with it\n", id));
  return kDone;
}

void add_list(CLI::App& token, Commands& commands) {
  auto options = std::make_shared<AdminOptions>();
  CLI::App* listed = token.add_subcommand("list", "the tokens that were made, without their secrets");
  add_admin_options(*listed, *options);
  add_json_flag(*listed, *options);
  listed->footer(
      "A token is valid until it is used, expires or is revoked. USES: how often it was used, of how often it may be.");
  listed->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return list_tokens(commands.io, *options); }; });
}

void add_revoke(CLI::App& token, Commands& commands) {
  auto options = std::make_shared<AdminOptions>();
  auto id = std::make_shared<std::string>();
  CLI::App* revoked = token.add_subcommand("revoke", "take a token back that is not used up");
  revoked->add_option("ID", *id, "the token's, as fluvial token list shows it")->required();
  add_admin_options(*revoked, *options);
  add_json_flag(*revoked, *options);
  revoked->footer(
      "Members that have enrolled with it stay; fluvial nodes revoke shuts one out.\n"
      "Example:\n  fluvial token revoke 3f9c2a71b0de");
  revoked->callback([&commands, options, id] {
    commands.chosen = [&commands, options, id] { return revoke_token(commands.io, *options, *id); };
  });
}

}  // namespace

void add_token_commands(CLI::App& app, Commands& commands) {
  CLI::App* token = app.add_subcommand("token", "invitations to the federation");

  auto options = std::make_shared<CreateOptions>();
  CLI::App* created = token->add_subcommand("create", "make a token; its text is shown once");
  created
      ->add_option("--role", options->role, "site, aggregator, or operator: a person at the admin API over the network")
      ->check(one_of({"site", "aggregator", "operator"}))
      ->type_name("ROLE")
      ->capture_default_str();
  created->add_option("--name", options->name, "the new member's name, such as hospital-a")
      ->required()
      ->type_name("NAME")
      ->check(checked("1 to 63 characters: a lower-case letter or digit, then those, '.', '_' or '-'",
                      [](const std::string& text) { return identity::check_node_name(text); }));
  created
      ->add_option("--access", options->access,
                   "of an operator: read, to look and change nothing, or full (default: read)")
      ->type_name("ACCESS")
      ->check(one_of({"read", "full"}));
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
                   "write it to this new file, which only you can read (mode 0600), instead of "
                   "standard output")
      ->type_name("FILE");
  created
      ->add_option(
          "--uses", options->uses,
          "how many members may enrol with it, for an autoscaled region: each is called NAME- and 12 digits of its own")
      ->check(whole_number(1, identity::kTokenUsesMax))
      ->type_name("N")
      ->capture_default_str();
  add_admin_options(*created, *options);
  add_json_flag(*created, *options);
  created->footer(
      "Example:\n  fluvial token create --role site --name hospital-a --region eu-west --ttl 10m --out token.txt\n"
      "A token for several members is worth more to a thief: keep its time short, and take it back when all are in.\n"
      "  fluvial token create --name eu-worker --region eu/west --uses 20 --ttl 2h --out token.txt\n"
      "A person who looks from elsewhere (the coordinator's setting admin_listen):\n"
      "  fluvial token create --role operator --name anna --access read --out token.txt");
  created->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return create(commands.io, *options); }; });

  add_list(*token, commands);
  add_revoke(*token, commands);
}

}  // namespace fluvial::cli
