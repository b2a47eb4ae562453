#include "coordinator/service/admin/access.h"

#include <algorithm>
#include <string_view>

#include "coordinator/service/machine_users.h"

namespace fluvial::coordinator::admin {
namespace {

constexpr std::uint32_t kRoot = 0;
// Inside a user namespace (PrivateUsers=yes of a unit, a rootless container) the kernel shows every user and group that
// the namespace does not map under this number: who is listed by it is everybody.
constexpr std::uint32_t kNotMapped = 65534;

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

bool contains(const std::vector<std::uint32_t>& list, std::uint32_t id) {
  return std::ranges::find(list, id) != list.end();
}

}  // namespace

bool People::List::holds(const net::UnixPeer& peer) const {
  return contains(users, peer.uid) || contains(groups, peer.gid) ||
         std::ranges::any_of(peer.groups, [this](std::uint32_t group) { return contains(groups, group); });
}

Result<People::List> People::parse(const char* setting, const std::string& text) {
  List list;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view word = trim(rest.substr(0, rest.find(',')));
    rest.remove_prefix(
        std::min(rest.size(), rest.find(',') == std::string_view::npos ? rest.size() : rest.find(',') + 1));
    if (word.empty()) continue;
    const bool is_group = word.front() == '@';
    const std::string name(is_group ? word.substr(1) : word);
    const Result<std::uint32_t> id = is_group ? group_id(name) : user_id(name);
    if (!id.ok()) {
      const Code code = id.error().code == Code::kNotFound ? Code::kInvalidArgument : id.error().code;
      return Error{code, std::string(setting) + " = '" + text + "': " + id.error().message};
    }
    if (*id == kNotMapped) {
      return Error{Code::kInvalidArgument,
                   std::string(setting) + " = '" + text + "': '" + std::string(word) +
                       "' has the number 65534, which stands for every user that a user namespace does not map: "
                       "expected a user or group of its own"};
    }
    (is_group ? list.groups : list.users).push_back(*id);
  }
  return list;
}

Result<People> People::of(std::uint32_t own, const std::string& users, const std::string& readers) {
  People people;
  FLUVIAL_ASSIGN(people.full_, parse("admin_users", users));
  FLUVIAL_ASSIGN(people.read_, parse("admin_readers", readers));
  people.full_.users.insert(people.full_.users.begin(), {own, kRoot});
  return people;
}

Access People::access_of(const net::UnixPeer& peer) const {
  if (full_.holds(peer)) return Access::kFull;
  return read_.holds(peer) ? Access::kRead : Access::kNone;
}

bool People::are_more_than_own() const { return full_.users.size() > 2 || !full_.groups.empty() || !read_.empty(); }

std::string Caller::who() const {
  if (person) return "operator " + std::to_string(person->node.value());
  return user ? "user " + std::to_string(user->uid) : "";
}

Status check_no_page(const net::HttpRequest& request) {
  const std::string_view site = request.header("sec-fetch-site");
  if (request.header("origin").empty() && (site.empty() || site == "none")) return {};
  return Error{
      Code::kPermissionDenied,
      "a page in a browser asks: this port answers programs; fluvial console shows the federation in a browser"};
}

Error may_not_ask(const net::UnixPeer& peer) {
  if (peer.uid == kNotMapped) {
    return {Code::kPermissionDenied,
            "the coordinator cannot tell which user asks: the kernel shows the number 65534 for all whom the "
            "coordinator's user namespace does not map (PrivateUsers= in a unit of systemd, a rootless container); run "
            "the coordinator without such a namespace, or ask as root or as the coordinator's own user"};
  }
  return {Code::kPermissionDenied,
          "user " + std::to_string(peer.uid) +
              " may not administer this federation: its coordinator answers root, its own user, and those that its "
              "settings admin_users and admin_readers name"};
}

Error may_not_change(const Caller& caller) {
  if (caller.person) {
    return {Code::kPermissionDenied,
            "operator " + caller.person->name +
                " may look at this federation and change nothing: whoever may give more makes a token with --access "
                "full (fluvial token create --role operator --name " +
                caller.person->name + " --access full), and you enrol with it"};
  }
  return {Code::kPermissionDenied,
          "you may look at this federation and change nothing: the coordinator's setting admin_readers names you, "
          "and admin_users does not"};
}

}  // namespace fluvial::coordinator::admin
