// Who may ask what of the admin API: the kernel says which user a connection to the socket is from, and over the
// network a certificate says who it is.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/logic/operators.h"
#include "core/base/result.h"
#include "core/net/http.h"
#include "core/store/audit_entry.h"

namespace fluvial::coordinator::admin {

using coordinator::Access;

// Who asks.
struct Caller {
  Access access = Access::kNone;
  std::optional<store::AuditUser> user = {};
  std::optional<identity::PeerIdentity> person = {};  // an operator, over the network
  std::string from = {};

  std::string who() const;  // what tells callers apart; empty: nobody in particular
};

// Immutable; thread safe.
class People {
 public:
  // `own` is the coordinator's user, who may do all as root may. The lists are the settings admin_users and
  // admin_readers. kInvalidArgument names what in them this machine does not know. Blocking.
  static Result<People> of(std::uint32_t own, const std::string& users, const std::string& readers);

  Access access_of(const net::UnixPeer& peer) const;
  bool are_more_than_own() const;  // others than the coordinator's user and root are allowed something

 private:
  struct List {
    std::vector<std::uint32_t> users;
    std::vector<std::uint32_t> groups;
    bool holds(const net::UnixPeer& peer) const;
    bool empty() const { return users.empty() && groups.empty(); }
  };
  static Result<List> parse(const char* setting, const std::string& text);

  List full_;
  List read_;
};

// kPermissionDenied: a page asks, as the browser says. One that holds an operator's certificate shows it for whatever
// page it has open.
Status check_no_page(const net::HttpRequest& request);

// kPermissionDenied, for people: why, and what would change that.
Error may_not_ask(const net::UnixPeer& peer);
Error may_not_change(const Caller& caller);

}  // namespace fluvial::coordinator::admin
