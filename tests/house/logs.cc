#include "tests/house/logs.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string_view>

namespace fluvial::house {
namespace {

constexpr std::array<std::string_view, 7> kCalls = {"debug", "info", "warn", "error", "log", "with", "as"};

bool is_of_word(char c) { return c == '_' || std::isalnum(static_cast<unsigned char>(c)) != 0; }

// From an opening quote to behind the closing one.
std::size_t end_of_literal(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// From an opening bracket to its closing one.
std::size_t end_of_brackets(std::string_view text, std::size_t at) {
  std::size_t depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = end_of_literal(text, at);
      continue;
    }
    if (c == '(' || c == '{' || c == '[') ++depth;
    if ((c == ')' || c == '}' || c == ']') && --depth == 0) return at;
    ++at;
  }
  return text.size();
}

// Whether what stands before the point is a logger by its name: log, log_, x.log, log_of(...), round_log(...).
bool is_logger(std::string_view before) {
  while (!before.empty() && std::isspace(static_cast<unsigned char>(before.back())) != 0) before.remove_suffix(1);
  if (before.ends_with(')')) {
    std::size_t depth = 0;
    while (!before.empty()) {
      depth += before.back() == ')' ? 1 : 0;
      const bool opens = before.back() == '(' && --depth == 0;
      before.remove_suffix(1);
      if (opens) break;
    }
  }
  std::size_t size = 0;
  while (size < before.size() && is_of_word(before[before.size() - 1 - size])) ++size;
  const std::string_view name = before.substr(before.size() - size);
  return name == "log" || name == "log_" || name == "log_of" || name.ends_with("_log");
}

struct Call {
  std::string_view name;
  std::size_t at = 0;  // of its arguments' bracket
  std::string_view arguments;
};

std::vector<Call> calls_of(std::string_view text) {
  std::vector<Call> calls;
  for (std::size_t dot = text.find('.'); dot != std::string_view::npos; dot = text.find('.', dot + 1)) {
    const std::string_view rest = text.substr(dot + 1);
    const std::size_t open = rest.find('(');
    if (open == std::string_view::npos) break;
    const auto known = std::ranges::find(kCalls, rest.substr(0, open));
    if (known == kCalls.end() || !is_logger(text.substr(0, dot))) continue;
    const std::size_t begin = dot + 1 + open;
    const std::size_t end = end_of_brackets(text, begin);
    calls.push_back({*known, begin, text.substr(begin + 1, end - begin - 1)});
  }
  return calls;
}

std::size_t end_of_argument(std::string_view arguments) {
  std::size_t at = 0;
  while (at < arguments.size() && arguments[at] != ',') {
    const char c = arguments[at];
    if (c == '"') {
      at = end_of_literal(arguments, at);
    } else if (c == '(' || c == '{' || c == '[') {
      at = end_of_brackets(arguments, at) + 1;
    } else {
      ++at;
    }
  }
  return std::min(at, arguments.size());
}

// The literals of an expression, those that stand side by side as one; and what is between them.
struct Message {
  std::vector<std::string> texts;
  std::string rest;
};

Message read_message(std::string_view expression) {
  Message message;
  bool is_behind_text = false;
  for (std::size_t at = 0; at < expression.size();) {
    const char c = expression[at];
    if (c == '"') {
      const std::size_t end = end_of_literal(expression, at);
      if (!is_behind_text) message.texts.emplace_back();
      message.texts.back() += expression.substr(at + 1, end - at - 2);
      at = end;
      is_behind_text = true;
      continue;
    }
    if (std::isspace(static_cast<unsigned char>(c)) == 0) {
      is_behind_text = false;
      message.rest += c;
    }
    ++at;
  }
  return message;
}

std::vector<std::string> keys_of(std::string_view arguments) {
  std::vector<std::string> keys;
  for (std::size_t at = arguments.find("{\""); at != std::string_view::npos; at = arguments.find("{\"", at + 1)) {
    const std::size_t end = end_of_literal(arguments, at + 1);
    if (end < arguments.size() && arguments[end] == ',') keys.emplace_back(arguments.substr(at + 2, end - at - 3));
  }
  return keys;
}

}  // namespace

std::set<std::string> fields_of(const TextFile& page) {
  std::set<std::string> fields;
  for (const std::string_view line : lines_of(page.text)) {
    if (!line.starts_with("| `")) continue;
    const std::size_t end = line.find('`', 3);
    if (end != std::string_view::npos) fields.emplace(line.substr(3, end - 3));
  }
  return fields;
}

std::vector<Finding> check_logs(const TextFile& source, const std::set<std::string>& fields) {
  std::vector<Finding> findings;
  const std::string_view text = source.text;
  for (const Call& call : calls_of(text)) {
    const std::size_t line = 1 + std::ranges::count(text.substr(0, call.at), '\n');
    const auto find = [&](std::string what) { findings.push_back({source.path, line, std::move(what)}); };
    for (const std::string& key : keys_of(call.arguments)) {
      if (!fields.contains(key)) find("the log field " + key + " is not in docs/operations/logs.md");
    }
    const bool has_message = call.name != "with" && call.name != "as" && call.name != "log";
    if (!has_message) continue;
    const Message message = read_message(call.arguments.substr(0, end_of_argument(call.arguments)));
    if (message.rest.find('+') != std::string::npos || message.rest.find("format") != std::string::npos) {
      find("a log message is constant: what varies is a field");
    }
    if (call.name != "warn" && call.name != "error") continue;
    for (const std::string& one : message.texts) {
      if (one.find("; ") == std::string::npos) find("\"" + one + "\" does not say after \"; \" what happens next");
    }
  }
  return findings;
}

}  // namespace fluvial::house
