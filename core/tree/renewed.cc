#include "core/tree/renewed.h"

namespace fluvial::tree {

Status check_renewed(const identity::PeerIdentity& of_session, const identity::PeerIdentity& shown) {
  const bool same = shown.role == of_session.role && shown.node == of_session.node && shown.name == of_session.name &&
                    shown.key && shown.key.id() == of_session.key.id();
  if (same) return {};
  return Error{Code::kUnauthenticated, identity::describe(of_session) + " shows a certificate for " +
                                           identity::describe(shown) + ", or for another key than its session's"};
}

}  // namespace fluvial::tree
