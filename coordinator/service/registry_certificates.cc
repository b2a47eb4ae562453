// Which certificates members have by now, and what a restore has forgotten of that.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "coordinator/service/registry.h"
#include "core/digest/sha256.h"
#include "core/store/audit_log.h"
#include "core/store/certificate_book.h"
#include "core/tree/denials.h"

namespace fluvial::coordinator {

Status Registry::load_current() {
  FLUVIAL_ASSIGN(const std::vector<store::CertificateRow> rows, store::CertificateBook(journal_).current());
  for (const store::CertificateRow& row : rows) current_[row.node] = {sha256(row.key), row.issued_at};
  return {};
}

// Somebody may have enrolled the member anew between the journal's word and here.
void Registry::renewed(NodeId node, const std::string& serial, const identity::DenyEntries::Current& current) {
  const auto known = current_.try_emplace(node, current).first;
  if (known->second.key != current.key) return;
  known->second = current;
  book_.certificate_changed(node, serial);
  refresh_deny_list();
}

net::Awaitable<void> Registry::came_with(const identity::PeerIdentity& peer, const store::CertificateSeen& seen) {
  const auto has = current_.find(peer.node);
  const bool newest =
      has == current_.end() || peer.issued >= std::chrono::floor<std::chrono::seconds>(has->second.issued);
  if (seen.adopted && newest) {
    current_[peer.node] = {peer.key.id(), peer.issued};
    book_.certificate_changed(peer.node, peer.serial_hex);
    runtime_.log.warn("a member shows a certificate that was issued after the backup; it is taken over, with its key",
                      {{"member", peer.name}, {"serial", peer.serial_hex}});
    const store::AuditEntry entry = about(store::AuditKind::kAdopted, peer.node);
    const WallTime when = runtime_.clock.wall_now();
    const Status kept = co_await runtime_.pool.run([&] { return store::AuditLog(journal_).append(entry, when); });
    if (!kept.ok()) {
      runtime_.log.error("the audit log does not say that a certificate was taken over; it is all the same",
                         {{"member", peer.name}, {"reason", kept.error().to_string()}});
    }
    refresh_deny_list();
  }
  // Of a member that enrolled before keys were kept: the journal has its key from now on.
  const auto node = book_.nodes().find(peer.node);
  if (peer.key && node != book_.nodes().end() && node->second.certificate_serial == peer.serial_hex &&
      current_.try_emplace(peer.node, identity::DenyEntries::Current{peer.key.id(), node->second.enrolled_at}).second) {
    refresh_deny_list();
  }
  if (seen.refuses_more) co_await refresh_refused();
}

// Of a history that a restore has ended; those of the present one come from here. Only what this coordinator has
// signed counts.
net::Awaitable<Status> Registry::take_over(v1::Denials denials) {
  if (!key_ || lineage_.empty()) co_return Status{};
  const Result<tree::Denied> said = tree::read_denials(denials, identity::PublicKey::of(*key_));
  if (!said.ok()) {
    runtime_.log.warn("an aggregator shows denials that this coordinator has not signed; they are left alone",
                      {{"reason", said.error().to_string()}});
    co_return Status{};
  }
  if (said->history == round::current_of(lineage_)) co_return Status{};
  const store::Refusals earlier{said->who.nodes, said->who.keys, said->who.refused_serials};
  const WallTime when = runtime_.clock.wall_now();
  const Result<bool> more = co_await runtime_.pool.run([&]() -> Result<bool> {
    store::CertificateBook certificates(journal_);
    FLUVIAL_ASSIGN(const WallTime restored, certificates.restored_at());
    return certificates.take_over(earlier, restored, when);
  });
  if (!more.ok()) co_return more.error();
  if (!*more) co_return Status{};
  runtime_.log.warn(
      "an aggregator still knows whom the history before refused; they are refused again",
      {{"members", earlier.nodes.size()}, {"keys", earlier.keys.size()}, {"certificates", earlier.serials.size()}});
  co_await refresh_refused();
  for (const NodeId node : earlier.nodes) {
    if (refused_.who.nodes.contains(node) && book_.nodes().contains(node)) book_.revoked(node, when, now());
  }
  refresh_deny_list();
  refused_changed_();
  co_return Status{};
}

}  // namespace fluvial::coordinator
