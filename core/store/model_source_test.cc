#include "core/store/model_source.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "core/store/memory_file_system.h"

namespace fluvial::store {
namespace {

using testing::HasSubstr;

constexpr const char* kIndex = "/m/model.safetensors.index.json";

class ModelSource : public ::testing::Test {
 protected:
  ModelSource() { EXPECT_TRUE(files.make_folder("/m").ok()); }
  void write(const std::string& path, const std::string& bytes) {
    const ByteSpan parts[] = {as_byte_span(bytes)};
    ASSERT_TRUE(write_file_atomically(files, path, parts).ok());
  }
  void write(const std::string& path, const std::string& json, const std::string& data) {
    std::string length(8, '\0');
    store_le<std::uint64_t>(reinterpret_cast<std::byte*>(length.data()), json.size());
    write(path, length + json + data);
  }
  Result<Model> read(const std::string& path) {
    FLUVIAL_ASSIGN(const std::unique_ptr<File> file, open_model(files, path));
    return read_model(*file, path);
  }
  std::string refusal(const std::string& weight_map) {
    write(kIndex, R"({"metadata":{"total_size":1},"weight_map":)" + weight_map + "}");
    const Result<Model> model = read(kIndex);
    return model.ok() ? "(read)" : model.error().message;
  }
  // 1.5 and -2 as BF16; 7; 0.5, 65504 and the smallest of F16; 0.1, 1e300 and -1e300 as F64.
  void write_shards() {
    write(
        "/m/a.safetensors",
        R"({"w":{"dtype":"BF16","shape":[2],"data_offsets":[0,4]},"n":{"dtype":"I8","shape":[],"data_offsets":[4,5]}})",
        std::string("\xc0\x3f\x00\xc0\x07", 5));
    const double wide[] = {0.1, 1e300, -1e300};
    write(
        "/m/b.safetensors",
        R"({"h":{"dtype":"F16","shape":[3],"data_offsets":[0,6]},"e":{"dtype":"F16","shape":[0],"data_offsets":[6,6]},)"
        R"("d":{"dtype":"F64","shape":[3],"data_offsets":[6,30]}})",
        std::string("\x00\x38\xff\x7b\x01\x00", 6) + std::string(as_text(std::as_bytes(std::span(wide)))));
  }
  MemoryFileSystem files;
};

TEST_F(ModelSource, ShardsAreOneModelInFp32) {
  write_shards();
  write(kIndex, R"({"weight_map":{"d":"b.safetensors","w":"a.safetensors","h":"b.safetensors","e":"b.safetensors",)"
                R"("n":"a.safetensors"}})");
  const Result<Model> model = read(kIndex);
  ASSERT_TRUE(model.ok()) << model.error().message;
  ASSERT_EQ(model->schema.tensors().size(), 5u);
  EXPECT_EQ(model->schema.tensors()[1].name, "n");
  std::vector<float> values(8);
  std::vector<std::int64_t> integers(1);
  round::split_model(model->schema, model->bytes.span(), values, integers);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  EXPECT_EQ(values, (std::vector<float>{1.5F, -2.0F, 0.5F, 65504.0F, 0x1p-24F, 0.1F, kInfinity, -kInfinity}));
  EXPECT_EQ(integers, (std::vector<std::int64_t>{7}));
}

TEST_F(ModelSource, AnyPieceOfItIsReadAsTheWhole) {
  write_shards();
  const std::unique_ptr<File> file = open_model(files, "/m/b.safetensors").value();
  Buffer whole(file->size().value());
  ASSERT_TRUE(read_exactly(*file, 0, whole.span(), "b").ok());
  for (std::size_t begin = 0; begin < whole.size(); ++begin) {
    for (const std::size_t count : {1, 3, 10}) {
      Buffer piece(count);
      const std::size_t there = file->read_at(begin, piece.span()).value();
      ASSERT_EQ(there, std::min(count, whole.size() - begin));
      ASSERT_TRUE(std::ranges::equal(piece.span().first(there), whole.span().subspan(begin, there))) << begin;
    }
  }
}

TEST_F(ModelSource, AnIndexThatIsWrongSaysWhat) {
  write_shards();
  EXPECT_THAT(refusal(R"({"w":"../a.safetensors"})"),
              HasSubstr("tensor 'w' is in '../a.safetensors', expected the name"));
  EXPECT_THAT(refusal(R"({"w":"/m/a.safetensors"})"), HasSubstr("expected the name of a .safetensors file"));
  EXPECT_THAT(refusal(R"({"w":"pytorch_model.bin"})"), HasSubstr("expected the name of a .safetensors file"));
  EXPECT_THAT(refusal(R"({"w":3})"), HasSubstr("expected the name of a .safetensors file"));
  EXPECT_THAT(refusal(R"({"w":"c.safetensors"})"), HasSubstr("c.safetensors"));
  EXPECT_THAT(refusal(R"({"w":"a.safetensors"})"), HasSubstr("tensor 'n' is in it as well"));
  EXPECT_THAT(refusal(R"({"w":"a.safetensors","n":"a.safetensors","x":"a.safetensors"})"),
              HasSubstr("'x' is not in it"));
  EXPECT_THAT(refusal(R"({"w":"a.safetensors","w":"b.safetensors"})"), HasSubstr("'w'"));
  EXPECT_THAT(refusal(R"([])"), HasSubstr("expected a weight_map"));
  EXPECT_THAT(refusal(R"({})"), HasSubstr("at least one tensor"));
}

TEST_F(ModelSource, WhatIsSentIsTheFileAsItIsAndShardsAsOne) {
  write_shards();
  EXPECT_EQ(open_to_send(files, "/m/a.safetensors").value()->size().value(),
            files.open("/m/a.safetensors", OpenMode::kRead).value()->size().value());
  write(kIndex, R"({"weight_map":{"w":"a.safetensors","n":"a.safetensors"}})");
  EXPECT_EQ(read_model(*open_to_send(files, kIndex).value(), kIndex)->schema.value_count(), 2u);
}

TEST_F(ModelSource, AModelWithoutFiniteValuesIsNoneToBeginWith) {
  write_shards();
  EXPECT_EQ(read_initial_model(files, "/m/b.safetensors").error().message,
            "/m/b.safetensors: tensor 'd', value 1 is inf, expected a finite number: leave out what is not trained, as "
            "save_model(..., only=[\"*\", \"!d\"]) does");
  EXPECT_TRUE(read_initial_model(files, "/m/a.safetensors").ok());
}

}  // namespace
}  // namespace fluvial::store
