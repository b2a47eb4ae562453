// fluvial authority: who issues members' certificates, and from one authority to the next.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <filesystem>
#include <memory>

#include "cli/admin_client.h"
#include "cli/authority_view.h"
#include "cli/command.h"
#include "core/identity/files.h"
#include "core/identity/issuer.h"
#include "core/identity/names.h"

namespace fluvial::cli {
namespace {

int show(const Io& io, const AdminOptions& options) {
  const auto authority = options.client().get("/v1/authority");
  if (!authority.ok()) return fail(io, "authority show", authority.error());
  io.print(options.json ? pretty(*authority) : authority_screen(*authority, io.terminal()));
  return kDone;
}

struct StepOptions : AdminOptions {
  std::string certificate;
  std::string key;
  std::string root;
  bool force = false;
};

// The coordinator reads them, wherever it runs from.
std::string absolute_or_none(const std::string& path) {
  return path.empty() ? path : std::filesystem::absolute(path).lexically_normal().string();
}

int step(const Io& io, const StepOptions& options, const std::string& name) {
  json::object body;
  if (options.force) body["force"] = true;
  if (!options.certificate.empty()) {
    body["certificate"] = absolute_or_none(options.certificate);
    body["key"] = absolute_or_none(options.key);
    body["root"] = absolute_or_none(options.root);
  }
  const auto authority = options.client().post("/v1/authority/rollover/" + name, body);
  if (!authority.ok()) return fail(io, "authority rollover " + name, authority.error());
  io.print(options.json ? pretty(*authority) : authority_screen(*authority, io.terminal()));
  return kDone;
}

struct RequestOptions {
  std::string federation;
  std::string key;
  std::string out;
};

// An existing key is asked for again: a request that was lost is made anew.
Result<identity::PrivateKey> load_or_make(const std::string& path) {
  auto key = identity::PrivateKey::load(path);
  if (key.ok() || key.error().code != Code::kNotFound) return key;
  FLUVIAL_ASSIGN(identity::PrivateKey made, identity::PrivateKey::generate());
  FLUVIAL_TRY(made.save(path));
  return made;
}

Status make_request(const RequestOptions& options) {
  FLUVIAL_ASSIGN(const identity::PrivateKey key, load_or_make(options.key));
  FLUVIAL_ASSIGN(const std::string pem, identity::make_authority_request(key, options.federation));
  return identity::write_file(options.out, pem, 0644);
}

int request(const Io& io, const RequestOptions& options) {
  const Status made = make_request(options);
  if (!made.ok()) return fail(io, "authority request", made.error());
  io.print(fmt::format("wrote {} and {}\n", options.key, options.out));
  io.note(fmt::format(
      "The key stays here. The holder of the root signs the request as an authority, with no authority below it:\n"
      "  printf 'basicConstraints=critical,CA:TRUE,pathlen:0\\nkeyUsage=critical,keyCertSign,cRLSign\\n"
      "subjectKeyIdentifier=hash\\nauthorityKeyIdentifier=keyid:always\\n' > authority.ext\n"
      "  openssl x509 -req -in {} -CA root.pem -CAkey root-key.pem -CAcreateserial -days 1825 -sha256 -extfile "
      "authority.ext "
      "-out authority.pem\n",
      options.out));
  return kDone;
}

void add_show(CLI::App& authority, Commands& commands) {
  auto options = std::make_shared<AdminOptions>();
  CLI::App* shown = authority.add_subcommand("show", "who issues, whom members trust, and where a rollover stands");
  add_admin_options(*shown, *options);
  add_json_flag(*shown, *options);
  shown->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return show(commands.io, *options); }; });
}

void add_request(CLI::App& authority, Commands& commands) {
  auto options = std::make_shared<RequestOptions>();
  CLI::App* asked = authority.add_subcommand(
      "request", "make a key, and the request by which the holder of an existing root certifies it as an authority");
  asked->add_option("--federation", options->federation, "its name, which the certificate is to state")
      ->required()
      ->type_name("NAME")
      ->check(checked("1 to 63 characters: a lower-case letter or digit, then those, '.', '_' or '-'",
                      [](const std::string& text) { return identity::check_node_name(text); }));
  asked->add_option("--key", options->key, "a new file for the private key (mode 0600), or the one of a request before")
      ->required()
      ->type_name("FILE");
  asked->add_option("--out", options->out, "the file for the request (PEM)")->required()->type_name("FILE");
  asked->footer(
      "Typed at the coordinator, before its first start or before a rollover. The signed certificate, the key and the\n"
      "root then go into the settings authority.certificate, authority.key and authority.root, or to\n"
      "fluvial authority rollover begin.\n"
      "Example:\n  fluvial authority request --federation clinics --key authority-key.pem --out authority.csr");
  asked->callback(
      [&commands, options] { commands.chosen = [&commands, options] { return request(commands.io, *options); }; });
}

CLI::App* add_step(CLI::App& rollover, Commands& commands, const std::string& name, const std::string& what,
                   const std::shared_ptr<StepOptions>& options) {
  CLI::App* added = rollover.add_subcommand(name, what);
  add_admin_options(*added, *options);
  add_json_flag(*added, *options);
  added->callback([&commands, options, name] {
    commands.chosen = [&commands, options, name] { return step(commands.io, *options, name); };
  });
  return added;
}

void add_rollover(CLI::App& authority, Commands& commands) {
  CLI::App* rollover = authority.add_subcommand("rollover", "from one authority to the next, while rounds go on");
  rollover->require_subcommand(1);
  rollover->footer(
      "begin, then issue when every member trusts both, then end when nobody relies on the one before. Make a backup\n"
      "after each step: fluvial backup.");
  auto begin = std::make_shared<StepOptions>();
  CLI::App* begun =
      add_step(*rollover, commands, "begin", "tell members of the next authority; they trust both", begin);
  CLI::Option* certificate =
      begun->add_option("--certificate", begin->certificate,
                        "of an existing PKI: the certificate that will issue (PEM); without it the coordinator makes "
                        "an authority of its own");
  CLI::Option* key = begun->add_option("--key", begin->key, "its private key; mode 0600");
  CLI::Option* root = begun->add_option("--root", begin->root, "the root above it, which members will trust");
  for (CLI::Option* option : {certificate, key, root}) option->type_name("FILE");
  certificate->needs(key, root);
  key->needs(certificate);
  root->needs(certificate);
  add_step(*rollover, commands, "undo", "take the next authority back, as long as it issues nothing",
           std::make_shared<StepOptions>());
  auto issue = std::make_shared<StepOptions>();
  add_step(*rollover, commands, "issue", "the next authority issues; new tokens name it", issue)
      ->add_flag("--force", issue->force, "although members are named that do not trust it yet");
  auto end = std::make_shared<StepOptions>();
  add_step(*rollover, commands, "end", "the authority before is trusted no more", end)
      ->add_flag("--force", end->force, "although members are named that rely on it: they need a new token");
}

}  // namespace

void add_authority_commands(CLI::App& app, Commands& commands) {
  CLI::App* authority = app.add_subcommand("authority", "who issues members' certificates");
  authority->require_subcommand(1);
  add_show(*authority, commands);
  add_request(*authority, commands);
  add_rollover(*authority, commands);
}

}  // namespace fluvial::cli
