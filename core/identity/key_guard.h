// Keeps a process' keys where no core dump, debugger or other process of its user finds them.
#pragma once

namespace fluvial::identity {

// Before the first key, while there is one thread: private keys and secret numbers of handshakes go into memory of
// their own, which is left out of core dumps and, as far as the limit on locked memory allows, is not swapped; what
// OpenSSL makes of them elsewhere is wiped when it is freed, if it has not been used before. And no core dump is
// written, and processes of the same user may not look into this one (ptrace, /proc/PID/mem): /proc/PID is root's.
// Once; does nothing when called again.
void guard_keys();

// The process may be looked into again, and leaves core dumps as its limits were before guard_keys(). Keys stay out of
// them.
void allow_dumps();

}  // namespace fluvial::identity
