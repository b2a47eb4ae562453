// The cipher of a session's records alone, without TLS around it: what `fluvial bench bound` prices a byte with.
#pragma once

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace fluvial::net {

inline constexpr std::size_t kRecordBytes = 16'384;  // of plaintext, the most that TLS 1.3 puts into a record

// AES-128-GCM, the first choice of our contexts (core/identity), record by record in place, each with its tag, under a
// key of zeros. `open` undoes what `seal` did; tags stand behind each other in `tags`, record_tag_bytes() of them.
// Calls may run side by side on different memory. kInternal: OpenSSL refused; kDataLoss: a tag does not fit.
std::size_t record_tag_bytes(std::size_t bytes);
Status seal_records(MutableByteSpan bytes, MutableByteSpan tags);
Status open_records(MutableByteSpan bytes, ByteSpan tags);

}  // namespace fluvial::net
