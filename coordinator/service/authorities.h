// The certificate authority of the federation, and the way from one to the next. What it is stands in the journal
// (store/authority_book.h), the keys lie in the folder ca/: each step is one transaction there, made when the key that
// it needs is on the disk. So a process that is killed at any moment goes on in the phase before or after.
//
//   ca/ca-key.pem, ca.pem       who issues; written last, from the others, so that tools find it
//   ca/authority-ID-key.pem     the keys of a rollover's authorities, by the first 16 digits of their key's SHA-256
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/logic/rollover.h"
#include "coordinator/service/authority_folder.h"
#include "core/identity/authority.h"
#include "core/identity/issuer.h"
#include "core/store/audit_entry.h"
#include "core/store/authority_book.h"
#include "core/store/journal.h"
#include "core/telemetry/log.h"

namespace fluvial::coordinator {

inline constexpr const char* kAuthorityFolder = "ca";  // in the data folder

struct AuthorityOptions {
  std::string data_dir;
  std::string federation;
  std::optional<identity::IssuerFiles> files = {};         // of an existing PKI; none: the coordinator makes its own
  std::chrono::seconds validity = std::chrono::hours(24);  // of members' certificates
  std::chrono::seconds grace = std::chrono::days(30);      // for how long a certificate that has ended may be renewed
  std::shared_ptr<AuthorityFolder> folder = {};            // none: kAuthorityFolder in data_dir
};

// How things stand, for people.
struct AuthorityView {
  struct One {
    store::AuthorityState state = store::AuthorityState::kIssuing;
    WallTime since;
    std::string pin;   // of the authority that members trust
    std::string name;  // whom its certificate names
    bool below_root = false;
    WallTime ends_at;       // the first of its certificates
    WallTime root_ends_at;  // the authority's own
  };
  RolloverPhase phase = RolloverPhase::kNone;
  std::uint64_t trust = 0;
  std::vector<One> authorities;      // that are trusted: those that issued before, the issuing one, the next
  std::vector<std::string> without;  // kBegun: members that do not trust the next one yet
  std::vector<std::string> relying;  // kIssuing: members that rely on the one before
  std::uint64_t open_tokens = 0;     // kIssuing: that may still be used, whichever authority they name
};

// Thread safe. Blocking but for live().
class Authorities {
 public:
  // Once, before anything is issued. Makes an authority at the first start, or takes that of the files; a later
  // certificate there, below the same root, is taken over. kFailedPrecondition: they name one that members do not
  // trust.
  static Result<std::unique_ptr<Authorities>> open(store::CoordinatorJournal& journal, const AuthorityOptions& options,
                                                   const telemetry::Logger& log, WallTime now);

  const std::shared_ptr<identity::LiveAuthority>& live() const { return live_; }
  Result<AuthorityView> view(WallTime now);

  // The steps (logic/rollover.h); `entry` says who takes it, for the audit log. live() has changed when they return.
  Status begin(const std::optional<identity::IssuerFiles>& files, store::AuditEntry entry, WallTime now);
  Status undo(store::AuditEntry entry, WallTime now);
  Status issue(bool force, store::AuditEntry entry, WallTime now);
  Status end(bool force, store::AuditEntry entry, WallTime now);

  // A member came with this list of authorities.
  Status shown(NodeId node, std::uint64_t trust) { return store::AuthorityBook(journal_).shown(node, trust); }

 private:
  struct Known {
    store::AuthorityRow row;
    std::vector<identity::Certificate> chain;
  };
  Authorities(store::CoordinatorJournal& journal, const AuthorityOptions& options, const telemetry::Logger& log);

  Status take_first(WallTime now);
  Status take_files(WallTime now);
  Status read();
  Status settle();  // the files follow the journal
  void remove_keys_but(const std::set<std::string>& kept) const;
  Status publish(WallTime now);
  Status write(const std::vector<store::AuthorityRow>& rows, bool list_changed, const store::AuditEntry& entry,
               WallTime now);
  Result<identity::PrivateKey> key_of(const Known& known) const;
  const Known* find(store::AuthorityState state) const;
  std::vector<identity::Certificate> trusted() const;
  RolloverPhase phase() const;
  Result<std::vector<std::string>> without() const;
  Result<std::vector<std::string>> relying(WallTime now) const;
  std::optional<bool> is_leaving(ByteSpan issuer) const;

  store::CoordinatorJournal& journal_;
  const AuthorityOptions options_;
  const std::shared_ptr<AuthorityFolder> folder_;
  telemetry::Logger log_;
  mutable std::mutex mutex_;
  std::vector<Known> known_;  // every one that ever was
  std::uint64_t trust_ = 0;
  std::shared_ptr<identity::LiveAuthority> live_;
};

// As view() has it, from what members are told alone: does not block.
RolloverPhase phase_of(const identity::CertificateAuthority& authority);

// "issuing", "next" and so on.
std::string_view state_name(store::AuthorityState state);

}  // namespace fluvial::coordinator
