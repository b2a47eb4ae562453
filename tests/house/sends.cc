#include "tests/house/sends.h"

#include <regex>
#include <string>

namespace fluvial::house {
namespace {

const std::string kSends = R"re(\b(send\w*|say\w*|tell|write|write_\w+|put_all|finish_writing)\()re";

struct Kept {
  std::string name;  // of what a send returned
  std::size_t line = 0;
};

constexpr std::size_t kNear = 6;  // lines in which it is looked at

bool matches(std::string_view line, const std::regex& pattern) {
  return std::regex_search(line.begin(), line.end(), pattern);
}

}  // namespace

std::vector<Finding> check_sends(const TextFile& file) {
  static const std::regex dropped(R"re((\(void\)|static_cast<void>\().*)re" + kSends);
  static const std::regex kept(R"re(\b(\w+) = (!?(::)?|co_await .*|\w+(\.|->))?)re" + kSends);
  static const std::regex assigned(R"re(\b(\w+) =( co_await)?$|\b(\w+) = co_await)re");
  static const std::regex sends(kSends);
  std::vector<Finding> findings;
  Kept last;
  std::string open;  // a name whose value is on the next line
  std::size_t number = 0;
  for (const std::string_view line : lines_of(file.text)) {
    ++number;
    const bool says = line.find("//") != std::string_view::npos;
    const bool may_drop = line.find("void") != std::string_view::npos;  // regular expressions are slow
    if (may_drop && !says && matches(line, dropped))
      findings.push_back({file.path, number, "a send whose failure is dropped"});
    std::match_results<std::string_view::const_iterator> found;
    const bool has_value = line.find(" =") != std::string_view::npos;
    if (has_value && std::regex_search(line.begin(), line.end(), found, kept)) {
      last = {found.str(1), number};
    } else if (!open.empty() && matches(line, sends)) {
      last = {open, number};
    }
    open.clear();
    if (has_value && std::regex_search(line.begin(), line.end(), found, assigned)) {
      open = found.str(1).empty() ? found.str(3) : found.str(1);
    }
    if (last.name.empty() || number - last.line > kNear || says) continue;
    const std::regex silent(R"re(\(void\))re" + last.name + R"re(\b|if \(!)re" + last.name +
                            R"re((\.ok\(\))?\) (co_)?return;)re");
    if (matches(line, silent)) findings.push_back({file.path, number, "what failed to be sent is told to nobody"});
  }
  return findings;
}

}  // namespace fluvial::house
