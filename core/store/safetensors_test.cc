#include "core/store/safetensors.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/digest/sha256.h"
#include "core/store/memory_file_system.h"
#include "core/store/model_store.h"

namespace fluvial::store {
namespace {

round::Schema small_schema() {
  return round::Schema::make(
             {{"w", round::DType::kF32, {2, 2}}, {"steps", round::DType::kI64, {}}, {"b", round::DType::kF32, {1}}})
      .value();
}

class Safetensors : public testing::Test {
 protected:
  Safetensors() { EXPECT_TRUE(files.make_folder("/m").ok()); }

  void write_raw(const std::string& bytes) {
    const ByteSpan parts[] = {as_byte_span(bytes)};
    ASSERT_TRUE(write_file_atomically(files, "/m/x", parts).ok());
  }
  static std::string with_header(const std::string& json, std::size_t data_bytes) {
    std::string out(8, '\0');
    store_le<std::uint64_t>(reinterpret_cast<std::byte*>(out.data()), json.size());
    return out + json + std::string(data_bytes, '\1');
  }
  std::string refusal(const std::string& bytes) {
    write_raw(bytes);
    const Result<Model> model = read_model(files, "/m/x");
    return model.ok() ? "(read)" : model.error().message;
  }
  MemoryFileSystem files;
};

TEST_F(Safetensors, GoldenBytes) {
  const round::Schema schema =
      round::Schema::make({{"w", round::DType::kF32, {2}}, {"n", round::DType::kI32, {1}}}).value();
  const unsigned char data[] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0, 7, 0, 0, 0};  // 1.0, -2.0, 7
  ASSERT_TRUE(write_model(files, "/m/g", schema, std::as_bytes(std::span(data)), {{"run", "1"}}).ok());
  const std::string json = R"({"__metadata__":{"run":"1"},"w":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
                           R"("n":{"dtype":"I32","shape":[1],"data_offsets":[8,12]}})";
  std::string expected = json;
  expected.resize((json.size() + 7) / 8 * 8, ' ');
  std::string length(8, '\0');
  length[0] = static_cast<char>(expected.size());
  const Buffer file = read_file(files, "/m/g", 1 << 20).value();
  EXPECT_EQ(as_text(file.span()), length + expected + std::string(as_text(std::as_bytes(std::span(data)))));
  EXPECT_EQ(to_hex(model_digest(std::as_bytes(std::span(data)))).size(), 64u);
}

TEST_F(Safetensors, NamesAndShapesHaveABoundAndTheErrorSaysIt) {
  const auto named = [](std::size_t tensors, std::size_t name_bytes) {
    std::vector<round::Tensor> list{{"w", round::DType::kF32, {1}}};
    for (std::size_t i = 0; i < tensors; ++i) {
      list.push_back({std::string(name_bytes, 'x') + std::to_string(i), round::DType::kF32, {0}});
    }
    return round::Schema::make(std::move(list)).value();
  };
  const char* const kAdvice = "of at most 16777216: give the tensors shorter names, or leave some of them out";
  EXPECT_TRUE(check_header_fits(named(30'000, 480)).ok()) << "15 MiB";
  EXPECT_NE(check_header_fits(named(31'000, 500)).error().message.find(kAdvice), std::string::npos);
  const std::string text((16 << 20) + 8, ' ');
  EXPECT_NE(refusal(with_header(text, 0)).find(kAdvice), std::string::npos) << "a header that is longer";
  std::string no_model = with_header(text, 0);
  no_model[5] = '\1';
  EXPECT_NE(refusal(no_model).find("not a safetensors file"), std::string::npos) << "no header at all";
}

TEST_F(Safetensors, RoundTripKeepsOrderBytesAndMetadata) {
  const round::Schema schema = small_schema();
  Buffer bytes(schema.model_bytes());
  for (std::size_t i = 0; i < bytes.size(); ++i) bytes.span()[i] = static_cast<std::byte>(i);
  const Metadata metadata = {{"run", "3"}, {"note", "quote \" and \n newline"}};
  ASSERT_TRUE(write_model(files, "/m/x", schema, bytes.span(), metadata).ok());
  const Model model = read_model(files, "/m/x").value();
  EXPECT_EQ(model.schema, schema);
  EXPECT_EQ(model.metadata, metadata);
  EXPECT_EQ(as_text(model.bytes.span()), as_text(bytes.span()));
  EXPECT_EQ(read_model_header(*files.open("/m/x", OpenMode::kRead).value(), "/m/x")->data_offset % 8, 0u);
}

TEST_F(Safetensors, SchemaOrderIsTheOrderOfTheData) {
  write_raw(with_header(R"({"z":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},)"
                        R"("a":{"dtype":"U8","shape":[3],"data_offsets":[8,11]},)"
                        R"("m":{"dtype":"F32","shape":[],"data_offsets":[4,8]},)"
                        R"("empty":{"dtype":"F32","shape":[0,5],"data_offsets":[4,4]}})",
                        11));
  const Model model = read_model(files, "/m/x").value();
  std::string order;
  for (const round::Tensor& tensor : model.schema.tensors()) order += tensor.name + " ";
  EXPECT_EQ(order, "z empty m a ");
}

TEST_F(Safetensors, ARefusalIsOneLineWhateverATensorIsCalled) {
  const std::string entry = R"({"dtype":"F64","shape":[2],"data_offsets":[0,8]})";
  const auto refused = parse_model_header("{\"a\\n\\u001b[2J\":" + entry + "}", 8, "x");
  ASSERT_FALSE(refused.ok());
  EXPECT_TRUE(refused.error().message.starts_with("x: tensor 'a  [2J': dtype 'F64'")) << refused.error().message;
}

TEST_F(Safetensors, HostileFilesAreRefusedByName) {
  const auto tensor = [](const std::string& body, std::size_t data) {
    return with_header("{\"w\":" + body + "}", data);
  };
  const std::string good = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  EXPECT_EQ(refusal(tensor(good, 8)), "(read)");
  const std::pair<std::string, std::string> cases[] = {
      {"", "not a safetensors file: 0 bytes"},
      {"1234567", "not a safetensors file: 7 bytes"},
      {"name = \"digits\"\nrounds = 3\n", "not a safetensors file"},
      {std::string("\xff\xff\xff\xff\xff\xff\xff\xff", 8), "not a safetensors file"},
      {std::string("\0\0\0\2\0\0\0\0", 8),
       "not a safetensors file: its first 8 bytes should be the size of its header, at most 16777216"},
      {std::string("\x40\0\0\0\0\0\0\0{}", 10), "cut short within the header"},
      {with_header("{\"w\":", 0), "not JSON at byte"},
      {with_header("{}", 0), "at least one tensor"},
      {with_header("[1]", 0), "no JSON object"},
      {with_header("{} x", 0), "not JSON"},
      {with_header(std::string(3000, '['), 0), "not JSON"},
      {with_header("{\"w\":" + good + ",\"w\":" + good + "}", 8), "the key 'w' appears twice"},
      {tensor("7", 8), "tensor 'w': expected dtype, shape and data_offsets"},
      {tensor(R"({"dtype":"F8","shape":[2],"data_offsets":[0,8]})", 8), "tensor 'w': dtype 'F8': expected F32"},
      {tensor(R"({"dtype":3,"shape":[2],"data_offsets":[0,8]})", 8), "tensor 'w': dtype: expected a text"},
      {tensor(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8), "tensor 'w': shape: expected"},
      {tensor(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})", 8), "tensor 'w': shape: expected"},
      {tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8), "tensor 'w': data_offsets: expected begin"},
      {tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8,8]})", 8), "data_offsets: expected begin"},
      {tensor(R"({"dtype":"F32","shape":[2],"data_offsets":[0,16]})", 8), "tensor 'w': its data ends at byte 16 of 8"},
      {tensor(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", 8), "tensor 'w': data_offsets hold 8 bytes"},
      {tensor(R"({"dtype":"F32","shape":[4294967296,4294967296,4],"data_offsets":[0,8]})", 8), "larger than 2^40"},
      {tensor(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})", 8), "more than 8 dimensions"},
      {tensor(R"({"dtype":"F32","shape":[1],"data_offsets":[4,8]})", 8), "tensor 'w': a gap of 4 bytes"},
      {tensor(good, 9), "1 bytes behind the last tensor"},
      {tensor(good, 7), "its data ends at byte 8 of 7"},
      {with_header("{\"w\":" + good + R"(,"v":{"dtype":"F32","shape":[1],"data_offsets":[4,8]}})", 8),
       "tensor 'v': its data overlaps"},
      {with_header(R"({"__metadata__":{"a":1},"w":)" + good + "}", 8), "__metadata__: expected an object of texts"},
  };
  for (const auto& [bytes, expected] : cases) {
    const std::string message = refusal(bytes);
    EXPECT_NE(message.find(expected), std::string::npos) << "got: " << message << "\nexpected: " << expected;
    EXPECT_NE(message.find("/m/x"), std::string::npos) << message;
    EXPECT_EQ(message.find('\n'), std::string::npos);
  }
}

class ModelStoreTest : public testing::Test {
 protected:
  ModelStoreTest() : store(ModelStore::open(files, "/models").value()) {}
  round::ModelKey ref(std::uint64_t version) const { return {RunId(1), ModelVersion(version)}; }
  Digest put(std::uint64_t version, bool with_state = true) {
    std::vector<float> model(4, static_cast<float>(version));
    const Digest digest = model_digest(std::as_bytes(std::span(model)));
    const std::vector<float> state(with_state ? 4 : 0, 0.5F);
    const Result<std::string> put = store.put(ref(version), schema, std::as_bytes(std::span(model)), digest, state);
    EXPECT_TRUE(put.ok());
    if (put.ok()) reference = *put;
    return digest;
  }
  std::vector<std::uint64_t> versions() const {
    std::vector<std::uint64_t> found;
    const std::vector<round::ModelKey> models = store.list().value();
    for (const round::ModelKey& model : models) found.push_back(model.version.value());
    return found;
  }
  round::Schema schema = round::Schema::make({{"w", round::DType::kF32, {4}}}).value();
  MemoryFileSystem files;
  ModelStore store;
  std::string reference;
};

TEST_F(ModelStoreTest, AModelIsWrittenInPiecesAndKeptOnceItIsWhole) {
  const std::vector<float> model = {1, 2, 3, 4};
  const ByteSpan bytes = std::as_bytes(std::span(model));
  const Digest digest = model_digest(bytes);
  for (const bool whole : {false, true}) {
    Result<ModelWriter> writer = store.begin(ref(3), schema);
    ASSERT_TRUE(writer.ok() && writer->write(8, bytes.subspan(8)).ok());
    if (whole) ASSERT_TRUE(writer->write(0, bytes.first(8)).ok());
    const Result<std::string> kept = store.keep(std::move(*writer), digest, {});
    EXPECT_EQ(kept.ok(), whole);
    if (!whole) EXPECT_TRUE(files.list("/models/run-1")->empty()) << "nothing is left of it";
  }
  files.restart(Unsynced::kLost);
  const Result<Model> loaded = store.load(ref(3), digest);
  ASSERT_TRUE(loaded.ok()) << loaded.error().to_string();
  EXPECT_TRUE(std::ranges::equal(loaded->bytes.span(), bytes));
}

TEST_F(ModelStoreTest, PutsAndLoadsModelAndOptimizerState) {
  const Digest digest = put(7);
  EXPECT_EQ(reference, "run-1/round-7.optimizer.safetensors");
  files.restart(Unsynced::kLost);
  const Model model = store.load(ref(7), digest).value();
  EXPECT_EQ(model.metadata.at("round"), "7");
  EXPECT_EQ(model.metadata.at("sha256"), to_hex(digest));
  EXPECT_EQ(store.load(ref(7), Digest{}).error().code, Code::kDataLoss);
  EXPECT_EQ(store.load_optimizer(reference, 4).value(), std::vector<float>(4, 0.5F));
  EXPECT_EQ(store.load_optimizer(reference, 5).error().code, Code::kDataLoss);
  EXPECT_EQ(store.load(ref(8), digest).error().code, Code::kNotFound);
  put(8, false);
  EXPECT_EQ(reference, "");
}

// Both are in one file, which a record, a backup and a sweep know by one name.
TEST_F(ModelStoreTest, ACodecsStateIsBesideTheOptimizersOrAlone) {
  const Digest digest = put(6);
  const std::vector<float> of_codec = {1, 2, 3};
  const ByteSpan state = std::as_bytes(std::span(of_codec));
  const Model model = store.load(ref(6), digest).value();
  for (const std::size_t vectors : {0, 2}) {
    const std::vector<float> optimizer(vectors, 0.25F);
    ModelWriter writer = store.begin(ref(7), model.schema).value();
    ASSERT_TRUE(writer.write(0, model.bytes.span()).ok());
    const std::string kept = store.keep(std::move(writer), digest, optimizer, {}, state).value();
    EXPECT_EQ(kept, "run-1/round-7.optimizer.safetensors");
    EXPECT_TRUE(std::ranges::equal(store.load_codec_state(kept, sha256(state))->span(), state));
    EXPECT_EQ(store.load_codec_state(kept, digest).error().code, Code::kDataLoss) << "of another round";
    EXPECT_EQ(store.load_optimizer(kept, vectors).value(), optimizer);
  }
  put(8);
  EXPECT_EQ(store.load_codec_state(reference, sha256(state)).error().code, Code::kDataLoss) << "there is none";
}

TEST_F(ModelStoreTest, SweepsWhatNoRecordNames) {
  for (std::uint64_t version = 0; version < 3; ++version) put(version);
  const ByteSpan nothing[] = {ByteSpan()};
  ASSERT_TRUE(write_temporary(files, store.path_of(ref(9)), nothing).ok());
  ASSERT_TRUE(write_file_atomically(files, "/models/run-1/README", nothing).ok());
  EXPECT_EQ(store.sweep({ref(0), ref(2)}).value(), 3u);
  EXPECT_EQ(versions(), (std::vector<std::uint64_t>{0, 2}));
  EXPECT_EQ(files.list("/models/run-1")->size(), 5u);  // the foreign file stays
}

TEST_F(ModelStoreTest, AModelThatWasNotCommittedIsSetAsideUntilItsRoundIs) {
  for (std::uint64_t version = 0; version < 3; ++version) put(version);
  const std::string aside = store.path_of(ref(2)) + ".aside";
  for (int start = 0; start < 3; ++start) {
    if (start == 1) put(2);  // and again: the newer one stays
    EXPECT_EQ(store.sweep({ref(0), ref(1)}).value(), 0u);
    EXPECT_EQ(versions(), (std::vector<std::uint64_t>{0, 1}));
    EXPECT_TRUE(files.exists(aside).value());
  }
  put(2);
  EXPECT_EQ(store.sweep({ref(0), ref(1), ref(2)}).value(), 2u);
  EXPECT_EQ(versions(), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_FALSE(files.exists(aside).value());
}

TEST_F(ModelStoreTest, AJournalOlderThanTheModelsRemovesNone) {
  for (std::uint64_t version = 0; version < 5; ++version) put(version);
  const std::size_t before = files.list("/models/run-1")->size();
  for (const std::set<round::ModelKey>& keep : {std::set{ref(0), ref(1), ref(2)}, std::set<round::ModelKey>{}}) {
    const auto swept = store.sweep(keep);
    ASSERT_FALSE(swept.ok());
    EXPECT_EQ(swept.error().code, Code::kFailedPrecondition);
    EXPECT_NE(swept.error().message.find("--restored"), std::string::npos) << swept.error().message;
    EXPECT_EQ(files.list("/models/run-1")->size(), before);
  }
  EXPECT_EQ(store.set_aside({ref(0), ref(1), ref(2)}, "aside-7").value(), 4u);  // two models, two optimizer files
  EXPECT_EQ(versions(), (std::vector<std::uint64_t>{0, 1, 2}));
  EXPECT_EQ(files.list("/models/aside-7/run-1")->size(), 4u);
  EXPECT_EQ(store.sweep({ref(0), ref(1), ref(2)}).value(), 0u);
  EXPECT_EQ(files.list("/models/aside-7/run-1")->size(), 4u);
}

TEST_F(ModelStoreTest, PruneKeepsTheNewestAndNeverTheFuture) {
  for (std::uint64_t version = 0; version < 6; ++version) put(version);
  ASSERT_TRUE(store.prune(RunId(1), ModelVersion(4), 2).ok());
  EXPECT_EQ(versions(), (std::vector<std::uint64_t>{3, 4, 5}));
  ASSERT_TRUE(store.prune(RunId(1), ModelVersion(4), 0).ok());
  EXPECT_EQ(versions(), (std::vector<std::uint64_t>{4, 5}));
}

// A difference is made of the last two models that sites trained from, however few models the plan keeps.
TEST_F(ModelStoreTest, OfTheModelsThatSitesTrainFromTheLastTwoStay) {
  const std::vector<float> model(4, 1.0F), trained(4, 2.0F);
  const ByteSpan bytes = std::as_bytes(std::span(trained));
  for (std::uint64_t version = 1; version <= 5; ++version) {
    ModelWriter writer = std::move(*store.begin(ref(version), schema));
    ASSERT_TRUE(writer.write(0, std::as_bytes(std::span(model))).ok());
    const Digest digest = model_digest(std::as_bytes(std::span(model)));
    ASSERT_TRUE(store.keep(std::move(writer), digest, {}, TrainedFile{bytes, model_digest(bytes)}).ok());
  }
  ASSERT_TRUE(store.prune(RunId(1), ModelVersion(4), 1, {ModelVersion(2)}).ok());
  EXPECT_EQ(versions(), (std::vector<std::uint64_t>{2, 4, 5}));
  const auto is_there = [&](std::uint64_t version) {
    return store.load(ref(version), model_digest(bytes), ModelFile::kTrained).ok();
  };
  EXPECT_FALSE(is_there(1));
  EXPECT_FALSE(is_there(2)) << "a label is one of the model that is kept";
  EXPECT_TRUE(is_there(3));
  EXPECT_TRUE(is_there(4));
  EXPECT_TRUE(is_there(5)) << "which is not committed yet";
  EXPECT_TRUE(store.sweep({ref(0), ref(1), ref(2), ref(3), ref(4)}).ok());
  EXPECT_FALSE(is_there(5)) << "set aside with its model";
  EXPECT_TRUE(is_there(4));
  EXPECT_FALSE(store.load(ref(4), model_digest(std::as_bytes(std::span(model))), ModelFile::kTrained).ok());
  EXPECT_EQ(ModelStore::name_of(ref(4), ModelFile::kTrained), "run-1/round-4.trained.safetensors");
  EXPECT_EQ(ModelStore::key_of("run-1/round-4.trained.safetensors", ModelFile::kTrained), ref(4));
  EXPECT_EQ(ModelStore::key_of("run-1/round-4.trained.safetensors"), std::nullopt);
}

TEST_F(ModelStoreTest, ACrashAnywhereInPutLeavesTheModelBeforeAndNoTornOne) {
  const Digest before = put(1);
  for (std::uint64_t n = 0;; ++n) {
    std::vector<float> model(4, 2.0F);
    const Digest digest = model_digest(std::as_bytes(std::span(model)));
    files.fail_at(n, Fault::kCrash);
    const Result<std::string> put = store.put(ref(2), schema, std::as_bytes(std::span(model)), digest, model);
    files.restart(Unsynced::kTorn, n);
    ASSERT_TRUE(store.load(ref(1), before).ok());
    if (put.ok()) {
      EXPECT_TRUE(store.load(ref(2), digest).ok());
      break;
    }
    ASSERT_TRUE(store.sweep({ref(1)}).ok());
    EXPECT_EQ(versions(), std::vector<std::uint64_t>{1});
    ASSERT_LT(n, 100u);
  }
}

}  // namespace
}  // namespace fluvial::store
