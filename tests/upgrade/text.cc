// Frames and chunks as text: a line "SENDER HEX", a line "= MESSAGE" as protobuf's text format, for people and for the
// comparison, and where there is a payload a line "+ HEX". Of a chunk: "CODEC VALUES HEX SHA256".
#include <google/protobuf/text_format.h>

#include <charconv>
#include <sstream>

#include "tests/upgrade/recording.h"

namespace fluvial::upgrade {
namespace {

std::string message_text(const google::protobuf::Message& message) {
  google::protobuf::TextFormat::Printer printer;
  printer.SetSingleLineMode(true);
  std::string text;
  FLUVIAL_CHECK(printer.PrintToString(message, &text), "a message has a text");
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

Error bad_line(std::size_t number, const char* what) {
  return {Code::kDataLoss, "line " + std::to_string(number) + ": " + what};
}

Result<std::string> bytes_from_hex(std::string_view hex) {
  FLUVIAL_ASSIGN(const Buffer bytes, from_hex(hex));
  return std::string(as_text(bytes.span()));
}

// Calls back with sender, bytes, message and payload of each block.
template <typename Frame, typename Add>
Result<std::vector<Frame>> blocks(const std::string& text, const Add& add) {
  std::vector<Frame> frames;
  std::istringstream in(text);
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    if (line.starts_with("= ") || line == "=") {
      if (frames.empty() || !add(frames.back(), std::string_view(line).substr(1), true)) {
        return bad_line(number, "no message that this version knows");
      }
    } else if (line.starts_with("+ ")) {
      if (frames.empty() || !add(frames.back(), std::string_view(line).substr(2), false)) {
        return bad_line(number, "no payload");
      }
    } else {
      const std::size_t blank = line.find(' ');
      Result<std::string> bytes =
          bytes_from_hex(blank == std::string::npos ? "x" : std::string_view(line).substr(blank + 1));
      if (!bytes.ok()) return bad_line(number, "expected a sender and bytes");
      frames.push_back(Frame{line.substr(0, blank), std::move(*bytes), {}});
    }
  }
  return frames;
}

}  // namespace

std::string hex_of(std::string_view bytes) { return to_hex(as_byte_span(bytes)); }

std::string to_text(const std::vector<SessionFrame>& frames) {
  std::string text;
  for (const SessionFrame& frame : frames) {
    text += frame.sender + " " + hex_of(frame.head) + "\n= " + message_text(frame.header) + "\n";
    if (!frame.payload.empty()) text += "+ " + hex_of(frame.payload) + "\n";
  }
  return text;
}

std::string to_text(const std::vector<LocalFrame>& frames) {
  std::string text;
  for (const LocalFrame& frame : frames) {
    text += frame.sender + " " + hex_of(frame.bytes) + "\n= " + message_text(frame.message) + "\n";
  }
  return text;
}

std::string to_text(const std::vector<EncodedChunk>& chunks) {
  std::string text;
  for (const EncodedChunk& chunk : chunks) {
    text += chunk.codec + " " + std::to_string(chunk.value_count) + " " + hex_of(chunk.bytes) + " " +
            chunk.decoded_sha256 + "\n";
  }
  return text;
}

Result<std::vector<SessionFrame>> session_from_text(const std::string& text) {
  return blocks<SessionFrame>(text, [](SessionFrame& frame, std::string_view rest, bool message) {
    if (message) return google::protobuf::TextFormat::ParseFromString(std::string(rest), &frame.header);
    Result<std::string> payload = bytes_from_hex(rest);
    if (payload.ok()) frame.payload = std::move(*payload);
    return payload.ok();
  });
}

Result<std::vector<LocalFrame>> local_from_text(const std::string& text) {
  return blocks<LocalFrame>(text, [](LocalFrame& frame, std::string_view rest, bool message) {
    return message && google::protobuf::TextFormat::ParseFromString(std::string(rest), &frame.message);
  });
}

Result<std::vector<EncodedChunk>> chunks_from_text(const std::string& text) {
  std::vector<EncodedChunk> chunks;
  std::istringstream in(text);
  std::string line;
  for (std::size_t number = 1; std::getline(in, line); ++number) {
    std::istringstream words(line);
    EncodedChunk chunk;
    std::string hex;
    words >> chunk.codec >> chunk.value_count >> hex >> chunk.decoded_sha256;
    Result<std::string> bytes = bytes_from_hex(hex);
    if (!words || !bytes.ok()) return bad_line(number, "expected a codec, a number of values, bytes and a digest");
    chunk.bytes = std::move(*bytes);
    chunks.push_back(std::move(chunk));
  }
  return chunks;
}

}  // namespace fluvial::upgrade
