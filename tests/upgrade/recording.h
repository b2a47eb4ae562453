// What a version writes and sends, as fixtures: made from constants by this version's own code, the same bytes every
// time (fixtures/README.md). For tests alone.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/digest/sha256.h"
#include "fluvial/v1/local.pb.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::upgrade {

inline Digest digest_of(std::string_view text) { return sha256(as_byte_span(text)); }

// One frame of a session, or of an agent and its worker: as it crosses the wire, and as people read it.
struct SessionFrame {
  std::string sender;  // "child", "parent"
  std::string head;    // prefix and header
  v1::Envelope header;
  std::string payload;
};
struct LocalFrame {
  std::string sender;  // "worker", "agent"
  std::string bytes;
  v1::LocalMessage message;
};
// A chunk of a codec, and what it decodes to.
struct EncodedChunk {
  std::string codec;
  std::size_t value_count = 0;
  std::string bytes;
  std::string decoded_sha256;
};

// Every message of a session, with every field, as this version makes it; enrolment included.
std::vector<SessionFrame> session_of_this_version();
std::vector<LocalFrame> local_session_of_this_version();
std::vector<EncodedChunk> chunks_of_this_version();

// As files of text, a frame or chunk a block of lines. The other direction: kDataLoss says which line.
std::string to_text(const std::vector<SessionFrame>& frames);
std::string to_text(const std::vector<LocalFrame>& frames);
std::string to_text(const std::vector<EncodedChunk>& chunks);
Result<std::vector<SessionFrame>> session_from_text(const std::string& text);
Result<std::vector<LocalFrame>> local_from_text(const std::string& text);
Result<std::vector<EncodedChunk>> chunks_from_text(const std::string& text);

// A coordinator's and a site's folder, made through core/store with times and digests that are constants.
Status write_coordinator(const std::string& folder);
Status write_site(const std::string& folder);
// Opens a folder as a coordinator or a site does (which changes it: give it a copy), and says all that it holds.
Result<std::string> describe_coordinator(const std::string& folder);
Result<std::string> describe_site(const std::string& folder);

// Tables, and their rows if wanted, of an SQLite file that nobody has open, as SQL. Empty: it cannot be read.
std::string dump_database(const std::string& path, bool with_rows);
int format_of_database(const std::string& path);  // user_version
// Every database in the folder, of those that nobody has open, in pages of 1 KB: most of a page is empty, and the
// format does not depend on it.
Status compact_databases(const std::string& folder);

std::string hex_of(std::string_view bytes);

}  // namespace fluvial::upgrade
