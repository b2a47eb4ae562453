#include "cli/authority_view.h"

#include <fmt/format.h>

#include "cli/format.h"
#include "cli/table.h"
#include "cli/waits.h"

namespace fluvial::cli {
namespace {

constexpr std::size_t kNamesMax = 20;  // told on a screen
constexpr std::size_t kColumns = 98;

std::string line(const std::string& text) { return wrapped(text, kColumns, 2) + "\n"; }

std::string names_of(const json::value& authority, const char* key) {
  std::string text;
  std::size_t told = 0;
  const auto& names = array_member(authority, key);
  for (const json::value& name : names) {
    if (!name.is_string()) continue;
    if (told == kNamesMax) return text + fmt::format(" and {} more", names.size() - told);
    text += (told++ == 0 ? "" : ", ") + std::string(name.as_string());
  }
  return text;
}

std::string begun_lines(const json::value& authority, const Terminal& terminal) {
  const std::size_t waiting = array_member(authority, "without").size();
  if (waiting == 0) {
    return terminal.green("rollover: every member trusts the next authority") +
           "\n  -> fluvial authority rollover issue\n";
  }
  return terminal.yellow(line(fmt::format("rollover: {} not trust the next authority yet: {}",
                                          waiting == 1 ? "1 member does" : fmt::format("{} members do", waiting),
                                          names_of(authority, "without")))) +
         "  -> they learn of it with the renewal of their certificates, or when they are started again\n";
}

std::string issuing_lines(const json::value& authority, const Terminal& terminal) {
  const std::size_t relying = array_member(authority, "relying").size();
  std::string text;
  if (relying == 0) {
    text =
        terminal.green("rollover: nobody relies on the authority before") + "\n  -> fluvial authority rollover end\n";
  } else {
    text = terminal.yellow(line(fmt::format("rollover: {} on the authority before: {}",
                                            relying == 1 ? "1 member relies" : fmt::format("{} members rely", relying),
                                            names_of(authority, "relying")))) +
           "  -> wait until their certificates are renewed or have ended\n";
  }
  const std::uint64_t tokens = count_member(authority, "open_tokens");
  if (tokens == 0) return text;
  return text + fmt::format("  {}: those made before the next one issued end with it\n",
                            tokens == 1 ? "1 token is open" : fmt::format("{} tokens are open", tokens));
}

}  // namespace

std::string rollover_lines(const json::value& authority, const Terminal& terminal) {
  const std::string phase = text_member(authority, "phase");
  if (phase == "begun") return begun_lines(authority, terminal);
  if (phase == "issuing") return issuing_lines(authority, terminal);
  return "";
}

std::string authority_screen(const json::value& authority, const Terminal& terminal) {
  Table table({{"STATE"}, {"SINCE"}, {"NAME"}, {"ISSUES UNTIL"}, {"PIN"}});
  for (const json::value& one : array_member(authority, "authorities")) {
    table.add({text_member(one, "state"), format_time(text_member(one, "since")), text_member(one, "name", "-"),
               format_time(text_member(one, "ends_at")), text_member(one, "pin")});
  }
  std::string text = table.render(terminal);
  const std::string lines = rollover_lines(authority, terminal);
  return text + (lines.empty() ? "no rollover is under way\n" : lines);
}

}  // namespace fluvial::cli
