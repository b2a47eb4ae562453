#include "core/store/safetensors.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/serialize.hpp>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/printable.h"
#include "core/digest/sha256.h"
#include "core/store/json.h"

namespace fluvial::store {
namespace {

namespace json = boost::json;

constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::size_t kMetadataBytes = 4096;               // of a header that is written here, at most
constexpr std::size_t kReadBytes = std::size_t{64} << 20;  // a chunk of reading

StoredAs stored_as(std::string_view dtype) {
  if (dtype == "F16") return StoredAs::kF16;
  if (dtype == "BF16") return StoredAs::kBF16;
  return dtype == "F64" ? StoredAs::kF64 : StoredAs::kPlain;
}

// kInvalidArgument when it is beyond what a model may hold (and before it overflows).
Result<std::uint64_t> size_of(const StoredTensor& entry) {
  std::uint64_t size = stored_bytes(entry);
  for (const std::uint64_t dimension : entry.tensor.shape) {
    if (dimension != 0 && size > round::kModelBytesMax / dimension) {
      return Error{Code::kInvalidArgument, "larger than 2^40 bytes"};
    }
    size *= dimension;
  }
  return size;
}

class HeaderParser {
 public:
  HeaderParser(std::string where, std::uint64_t data_bytes, bool of_others)
      : where_(std::move(where)), data_bytes_(data_bytes), of_others_(of_others) {}

  Result<StoredHeader> parse(std::string_view text) {
    FLUVIAL_ASSIGN(const json::value parsed, parse_json(text, where_));
    const json::object* object = parsed.if_object();
    if (object == nullptr) return bad("the header is no JSON object");
    if (object->size() > round::kTensorsMax + 1) return bad("more than 65536 tensors");
    StoredHeader header;
    for (const auto& [key, value] : *object) {
      const std::string_view name(key.data(), key.size());
      if (name == kMetadataKey) {
        FLUVIAL_ASSIGN(header.metadata, metadata(value));
        continue;
      }
      FLUVIAL_ASSIGN(StoredTensor entry, parse_entry(name, value));
      entry.position = header.tensors.size();
      header.tensors.push_back(std::move(entry));
    }
    FLUVIAL_TRY(check_layout(header.tensors));
    return header;
  }

  // Of a file whose tensors are a model's.
  Result<ModelHeader> parse_model(std::string_view text) {
    FLUVIAL_ASSIGN(StoredHeader stored, parse(text));
    std::vector<round::Tensor> tensors;
    for (StoredTensor& entry : stored.tensors) tensors.push_back(std::move(entry.tensor));
    Result<round::Schema> schema = round::Schema::make(std::move(tensors));
    if (!schema.ok()) return bad(schema.error().message);
    return ModelHeader{std::move(*schema), std::move(stored.metadata)};
  }

 private:
  Error bad(const std::string& what) const { return {Code::kInvalidArgument, where_ + ": " + what}; }
  Error bad(std::string_view tensor, const std::string& what) const {
    return bad("tensor '" + printable(tensor, round::kTensorNameBytesMax) + "': " + what);
  }

  Result<Metadata> metadata(const json::value& value) const {
    const json::object* object = value.if_object();
    if (object == nullptr) return bad("__metadata__: expected an object of texts");
    Metadata metadata;
    for (const auto& [key, text] : *object) {
      if (!text.is_string()) return bad("__metadata__: expected an object of texts");
      metadata.emplace(std::string(key.data(), key.size()),
                       std::string(text.get_string().data(), text.get_string().size()));
    }
    return metadata;
  }

  Result<std::vector<std::uint64_t>> numbers(std::string_view tensor, const json::object& object,
                                             std::string_view key) const {
    const json::value* value = object.if_contains(view(key));
    const json::array* array = value == nullptr ? nullptr : value->if_array();
    if (array == nullptr) return bad(tensor, std::string(key) + ": expected an array of whole numbers");
    std::vector<std::uint64_t> numbers;
    for (const json::value& item : *array) {
      json::error_code code;
      const bool whole = item.is_int64() || item.is_uint64();
      numbers.push_back(whole ? item.to_number<std::uint64_t>(code) : 0);
      if (!whole || code) return bad(tensor, std::string(key) + ": expected an array of whole numbers");
    }
    return numbers;
  }

  Result<StoredTensor> parse_entry(std::string_view name, const json::value& value) const {
    const json::object* object = value.if_object();
    if (object == nullptr || object->size() != 3) return bad(name, "expected dtype, shape and data_offsets");
    const json::value* dtype = object->if_contains("dtype");
    if (dtype == nullptr || !dtype->is_string()) return bad(name, "dtype: expected a text");
    StoredTensor entry;
    entry.tensor.name = name;
    const json::string& dtype_text = dtype->get_string();
    const std::string_view dtype_name(dtype_text.data(), std::min<std::size_t>(dtype_text.size(), 32));
    if (of_others_) entry.stored = stored_as(dtype_name);
    const Result<round::DType> known =
        round::dtype_from_name(entry.stored == StoredAs::kPlain ? dtype_name : std::string_view("F32"));
    if (!known.ok()) return bad(name, known.error().message);
    entry.tensor.dtype = *known;
    FLUVIAL_ASSIGN(entry.tensor.shape, numbers(name, *object, "shape"));
    FLUVIAL_ASSIGN(const std::vector<std::uint64_t> offsets, numbers(name, *object, "data_offsets"));
    if (offsets.size() != 2 || offsets[0] > offsets[1]) return bad(name, "data_offsets: expected begin and end");
    if (offsets[1] > data_bytes_) {
      return bad(name, "its data ends at byte " + std::to_string(offsets[1]) + " of " + std::to_string(data_bytes_));
    }
    entry.begin = offsets[0];
    entry.end = offsets[1];
    return entry;
  }

  // Sorts by offset; then each tensor starts where the one before ends, has its size, and the last ends the file.
  Status check_layout(std::vector<StoredTensor>& entries) const {
    std::sort(entries.begin(), entries.end(), [](const StoredTensor& a, const StoredTensor& b) {
      return std::tie(a.begin, a.end, a.position) < std::tie(b.begin, b.end, b.position);
    });
    std::uint64_t at = 0;
    for (const StoredTensor& entry : entries) {
      const std::string& name = entry.tensor.name;
      if (entry.begin < at) return bad(name, "its data overlaps the tensor before");
      if (entry.begin > at) return bad(name, "a gap of " + std::to_string(entry.begin - at) + " bytes before its data");
      const Result<std::uint64_t> size = size_of(entry);
      if (!size.ok()) return bad(name, size.error().message);
      if (*size != entry.end - entry.begin) {
        return bad(name, "data_offsets hold " + std::to_string(entry.end - entry.begin) + " bytes, its shape needs " +
                             std::to_string(*size));
      }
      at = entry.end;
    }
    if (at != data_bytes_) return bad(std::to_string(data_bytes_ - at) + " bytes behind the last tensor");
    return {};
  }

  std::string where_;
  std::uint64_t data_bytes_;
  bool of_others_;
};

Error too_long(const std::string& where, std::uint64_t header_bytes) {
  return {Code::kInvalidArgument, where + ": the names and shapes of its tensors take " + std::to_string(header_bytes) +
                                      " bytes of a model file's header, of at most " +
                                      std::to_string(kSafetensorsHeaderBytesMax) +
                                      ": give the tensors shorter names, or leave some of them out"};
}

// The header's text, and where the data begins.
Result<std::pair<Buffer, std::uint64_t>> read_header(File& file, std::uint64_t size, const std::string& path) {
  std::byte length_field[8];
  if (size < sizeof(length_field))
    return Error{Code::kDataLoss, path + ": not a safetensors file: " + std::to_string(size) + " bytes"};
  FLUVIAL_TRY(read_exactly(file, 0, length_field, path));
  const auto length = load_le<std::uint64_t>(length_field);
  if (length > kSafetensorsHeaderBytesMax) {
    if (length <= size - sizeof(length_field)) return too_long(path, length);
    return Error{Code::kInvalidArgument, path +
                                             ": not a safetensors file: its first 8 bytes should be the size of its "
                                             "header, at most " +
                                             std::to_string(kSafetensorsHeaderBytesMax)};
  }
  if (length > size - sizeof(length_field)) {
    return Error{Code::kDataLoss, path + ": cut short within the header (" + std::to_string(size) + " bytes)"};
  }
  Buffer text(length);
  FLUVIAL_TRY(read_exactly(file, sizeof(length_field), text.span(), path));
  return std::pair(std::move(text), sizeof(length_field) + length);
}

}  // namespace

std::size_t stored_bytes(const StoredTensor& tensor) {
  if (tensor.stored == StoredAs::kPlain) return round::dtype_bytes(tensor.tensor.dtype);
  return tensor.stored == StoredAs::kF64 ? 8 : 2;
}

Result<ModelHeader> parse_model_header(std::string_view text, std::uint64_t data_bytes, const std::string& where) {
  return HeaderParser(where, data_bytes, false).parse_model(text);
}

std::string format_model_header(const round::Schema& schema, const Metadata& metadata) {
  json::object header;
  if (!metadata.empty()) {
    json::object texts;
    for (const auto& [key, value] : metadata) texts[view(key)] = view(value);
    header[view(kMetadataKey)] = std::move(texts);
  }
  for (std::size_t i = 0; i < schema.tensors().size(); ++i) {
    const round::Tensor& tensor = schema.tensors()[i];
    const std::uint64_t begin = schema.tensor_offset_bytes(i);
    json::object entry;
    entry["dtype"] = view(round::dtype_name(tensor.dtype));
    entry["shape"] = json::array(tensor.shape.begin(), tensor.shape.end());
    entry["data_offsets"] = {begin, begin + schema.tensor_values(i) * round::dtype_bytes(tensor.dtype)};
    header[view(tensor.name)] = std::move(entry);
  }
  std::string text = json::serialize(header);
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string out(8, '\0');
  store_le<std::uint64_t>(reinterpret_cast<std::byte*>(out.data()), text.size());  // NOLINT: bytes as text
  return out + text;
}

Status check_header_fits(const round::Schema& schema) {
  const std::size_t bytes = format_model_header(schema, {}).size() + kMetadataBytes;
  return bytes > kSafetensorsHeaderBytesMax ? Status(too_long("the model", bytes)) : Status();
}

Result<ModelHeader> read_model_header(File& file, const std::string& path) {
  FLUVIAL_ASSIGN(const std::uint64_t size, file.size());
  FLUVIAL_ASSIGN(const auto text, read_header(file, size, path));
  FLUVIAL_ASSIGN(ModelHeader header, parse_model_header(as_text(text.first.span()), size - text.second, path));
  header.data_offset = text.second;
  return header;
}

Result<StoredHeader> read_stored_header(File& file, const std::string& path) {
  FLUVIAL_ASSIGN(const std::uint64_t size, file.size());
  FLUVIAL_ASSIGN(const auto text, read_header(file, size, path));
  FLUVIAL_ASSIGN(StoredHeader header, HeaderParser(path, size - text.second, true).parse(as_text(text.first.span())));
  header.data_offset = text.second;
  return header;
}

Result<Model> read_model(FileSystem& files, const std::string& path) {
  FLUVIAL_ASSIGN(const std::unique_ptr<File> file, files.open(path, OpenMode::kRead));
  return read_model(*file, path);
}

Result<Model> read_model(File& file, const std::string& path) {
  FLUVIAL_ASSIGN(ModelHeader header, read_model_header(file, path));
  Model model{std::move(header.schema), Buffer(0), std::move(header.metadata)};
  model.bytes = Buffer(model.schema.model_bytes());  // no more than the file holds: checked with the offsets
  for (std::size_t at = 0; at < model.bytes.size(); at += kReadBytes) {
    const std::size_t count = std::min(kReadBytes, model.bytes.size() - at);
    FLUVIAL_TRY(read_exactly(file, header.data_offset + at, model.bytes.span().subspan(at, count), path));
  }
  return model;
}

Status write_model(FileSystem& files, const std::string& path, const round::Schema& schema, ByteSpan bytes,
                   const Metadata& metadata) {
  FLUVIAL_CHECK(bytes.size() == schema.model_bytes(), "a model that does not fit its schema");
  const std::string header = format_model_header(schema, metadata);
  const ByteSpan parts[] = {as_byte_span(header), bytes};
  return write_file_atomically(files, path, parts);
}

Digest model_digest(ByteSpan model) { return sha256(model); }

}  // namespace fluvial::store
