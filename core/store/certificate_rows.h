// The journal's certificates, within a transaction. Inside this room only.
#pragma once

#include <string>

#include "core/store/certificate_book.h"
#include "core/store/rows.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

// A row for the certificate that the node's own row names, if it has none: of a member from before format 7.
Status note_current_certificate(Database& database, NodeId node);
Status issue_certificate(Database& database, const NodeRow& node, const NewCertificate& issued);
// kUnauthenticated when a certificate of this key was revoked, or removed with its member.
Status check_new_key(Database& database, ByteSpan key);
// Every certificate of the node that is not refused for as strong a reason.
Status refuse_certificates(Database& database, NodeId node, const char* why, WallTime now);
Status bump_denials(Database& database);

}  // namespace fluvial::store
