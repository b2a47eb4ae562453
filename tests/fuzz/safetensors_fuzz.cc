// Model files: any bytes as a file, any text as a header, and headers written here whose tensors are right or a little
// wrong. What is accepted is what Boost.JSON alone reads in it, has its tensors side by side and whole, and is written
// and read again as the same. Also indexes of shards, and schemas as JSON, which journals and answers hold.
#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/parse.hpp>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/store/memory_file_system.h"
#include "core/store/model_source.h"
#include "core/store/plan_json.h"
#include "core/store/safetensors.h"
#include "tests/fuzz/errors.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {
namespace {

namespace json = boost::json;
using round::DType;

constexpr const char* kPath = "/m/model.safetensors";
constexpr std::string_view kDTypes[] = {"F32", "F16", "BF16", "F64", "I8", "I16", "I32", "I64", "U8", "BOOL"};

std::string_view view(const json::string& text) { return {text.data(), text.size()}; }

// By a reader of its own, without any check.
void compare(std::string_view text, const store::ModelHeader& header, std::uint64_t data_bytes) {
  json::parse_options options;
  options.max_depth = 64;
  const json::value parsed = json::parse(json::string_view(text.data(), text.size()), {}, options);
  const json::object& object = parsed.as_object();
  std::size_t tensors = object.size() - (object.contains("__metadata__") ? 1 : 0);
  FLUVIAL_CHECK(header.schema.tensors().size() == tensors, "a tensor was lost, or made up");
  for (std::size_t i = 0; i < tensors; ++i) {
    const round::Tensor& tensor = header.schema.tensors()[i];
    const json::object& said = object.at(json::string_view(tensor.name.data(), tensor.name.size())).as_object();
    FLUVIAL_CHECK(view(said.at("dtype").as_string()) == round::dtype_name(tensor.dtype), "another dtype");
    const json::array& shape = said.at("shape").as_array();
    FLUVIAL_CHECK(shape.size() == tensor.shape.size(), "another rank");
    for (std::size_t j = 0; j < shape.size(); ++j) {
      FLUVIAL_CHECK(shape[j].to_number<std::uint64_t>() == tensor.shape[j], "another dimension");
    }
    const json::array& offsets = said.at("data_offsets").as_array();
    FLUVIAL_CHECK(offsets.at(0).to_number<std::uint64_t>() == header.schema.tensor_offset_bytes(i), "another place");
  }
  FLUVIAL_CHECK(header.schema.model_bytes() == data_bytes, "bytes that belong to no tensor");
}

void read_header(std::string_view text, std::uint64_t data_bytes) {
  const auto header = store::parse_model_header(text, data_bytes, "model.safetensors");
  check_error(header);
  if (!header.ok()) return;
  compare(text, *header, data_bytes);
  const std::string own = store::format_model_header(header->schema, header->metadata);
  FLUVIAL_CHECK(own.size() % 8 == 0, "data that begins between two words");
  const auto again = store::parse_model_header(std::string_view(own).substr(8), data_bytes, "again");
  FLUVIAL_CHECK(again.ok() && again->schema == header->schema && again->metadata == header->metadata,
                "a header is read again as another");
}

// As what a run begins with: whatever it is made of, a model file is read of it, or an error names it.
void read_source(store::FileSystem& files, const std::string& path) {
  const auto file = store::open_model(files, path);
  check_error(file);
  if (!file.ok()) return;
  const auto model = store::read_model(**file, path);
  check_error(model);
  FLUVIAL_CHECK(!model.ok() || model->bytes.size() == model->schema.model_bytes(), "a model of another size");
  check_error(store::read_initial_model(files, path));
}

void read_index(ByteSpan bytes) {
  store::MemoryFileSystem files;
  FLUVIAL_CHECK(files.make_folder("/m").ok(), "a folder in memory");
  const ByteSpan parts[] = {bytes};
  FLUVIAL_CHECK(store::write_file_atomically(files, "/m/model.safetensors.index.json", parts).ok(), "a file in memory");
  FLUVIAL_CHECK(store::write_file_atomically(files, kPath, parts).ok(), "a file in memory");
  read_source(files, "/m/model.safetensors.index.json");
}

void read_file(ByteSpan bytes) {
  store::MemoryFileSystem files;
  FLUVIAL_CHECK(files.make_folder("/m").ok(), "a folder in memory");
  const ByteSpan parts[] = {bytes};
  FLUVIAL_CHECK(store::write_file_atomically(files, kPath, parts).ok(), "a file in memory");
  read_source(files, kPath);
  const std::unique_ptr<store::File> file = files.open(kPath, store::OpenMode::kRead).value();
  const auto header = store::read_model_header(*file, kPath);
  const auto model = store::read_model(files, kPath);
  check_error(header);
  check_error(model);
  FLUVIAL_CHECK(header.ok() == model.ok(), "the header of a model that cannot be read");
  if (!model.ok()) return;
  FLUVIAL_CHECK(model->bytes.size() == bytes.size() - header->data_offset, "a model of another size than its file's");
  FLUVIAL_CHECK(std::ranges::equal(model->bytes.span(), bytes.subspan(header->data_offset)), "other values");
  FLUVIAL_CHECK(store::write_model(files, kPath, model->schema, model->bytes.span(), model->metadata).ok(),
                "a model that was read is written");
  const auto again = store::read_model(files, kPath);
  FLUVIAL_CHECK(again.ok() && again->schema == model->schema && again->metadata == model->metadata &&
                    std::ranges::equal(again->bytes.span(), model->bytes.span()),
                "a model is read again as another");
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') out += '\\';
    out += static_cast<unsigned char>(c) < 0x20 || static_cast<unsigned char>(c) > 0x7e ? '_' : c;
  }
  return out + "\"";
}

// One tensor after the other, and now and then one that is not where or what it should be.
void made_header(Input& input) {
  std::string text = "{";
  std::uint64_t at = 0;
  const std::size_t tensors = 1 + input.below(6);
  for (std::size_t i = 0; i < tensors; ++i) {
    const std::size_t dtype = input.below(std::size(kDTypes));
    const auto known = round::dtype_from_name(kDTypes[dtype]);
    std::uint64_t bytes = known.ok() ? round::dtype_bytes(*known) : kDTypes[dtype] == "F64" ? 8 : 2;
    std::string shape;
    for (std::size_t rank = input.below(10); rank > 0; --rank) {
      const std::uint64_t dimension = input.below(32) == 0 ? input.number<std::uint64_t>() : input.below(6);
      shape += (shape.empty() ? "" : ",") + std::to_string(dimension);
      bytes *= dimension;
    }
    std::uint64_t begin = at;
    if (input.below(32) == 0) begin += input.byte();
    std::uint64_t end = begin + bytes;
    if (input.below(32) == 0) end = input.number<std::uint64_t>();
    const std::string name = input.flag() ? "t" + std::to_string(i) : input.text();
    text += (i == 0 ? "" : ",") + quoted(name) + ":{\"dtype\":\"" + std::string(kDTypes[dtype]) + "\",\"shape\":[" +
            shape + "],\"data_offsets\":[" + std::to_string(begin) + "," + std::to_string(end) + "]}";
    at = end;
  }
  if (input.flag()) text += ",\"__metadata__\":{\"format\":" + quoted(input.text()) + "}";
  text += "}";
  read_header(text, input.below(16) == 0 ? input.number<std::uint64_t>() : at);
  std::string file(8, '\0');
  store_le<std::uint64_t>(reinterpret_cast<std::byte*>(file.data()), text.size());  // NOLINT: bytes as text
  file += text + std::string(std::min<std::uint64_t>(at, 4096), 'x');
  read_file(as_byte_span(file));
}

void read_schema(std::string_view text) {
  const auto schema = store::schema_from_json(text);
  check_error(schema);
  if (!schema.ok()) return;
  const std::string own = store::schema_to_json(*schema);
  const auto again = store::schema_from_json(own);
  FLUVIAL_CHECK(again.ok() && *again == *schema && store::schema_to_json(*again) == own,
                "a schema is read again as another");
}

void run(ByteSpan bytes) {
  Input input(bytes);
  switch (input.below(5)) {
    case 4: return read_index(input.rest());
    case 0: return read_file(input.rest());
    case 1: {
      const std::uint64_t data_bytes = input.number<std::uint16_t>();
      return read_header(as_text(input.rest()), data_bytes);
    }
    case 2: return read_schema(as_text(input.rest()));
    default: return made_header(input);
  }
}

}  // namespace
}  // namespace fluvial::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  fluvial::fuzz::run(std::as_bytes(std::span(data, size)));
  return 0;
}
