#include "edge/service/mapped_model.h"

#include "edge/service/test_support.h"

namespace fluvial::edge {
namespace {

TEST(MappedModelTest, IsHandedOnWhenItIsSealed) {
  TestRuntime runtime;
  const std::vector<float> values = draw(1, 100);
  const round::Schema schema = round::Schema::make({{"w", round::DType::kF32, {100}}}).value();
  const HeldModel whole = held_model(RunId(1), 1, schema, std::as_bytes(std::span(values)));
  const ByteSpan bytes = whole.bytes->bytes();
  std::optional<HeldModel> held;
  const std::shared_ptr<local::ModelMemory> memory = local::ModelMemory::make();
  MappedModel model(runtime.get().pool, memory, whole.ref, [] {}, [&](HeldModel done) { held = std::move(done); });
  ASSERT_TRUE(runtime.run(model.begin(schema)).ok());
  ASSERT_TRUE(model.append(bytes.first(250)).ok());
  ASSERT_TRUE(model.append(bytes.subspan(250)).ok());
  EXPECT_TRUE(net::same_bytes(model.bytes(), bytes));
  ASSERT_TRUE(model.seal().ok());
  EXPECT_FALSE(held);
  model.complete();
  ASSERT_TRUE(held);
  EXPECT_EQ(held->ref, whole.ref);
  EXPECT_EQ(held->schema.value_count(), 100U);
  EXPECT_TRUE(net::same_bytes(held->bytes->bytes(), bytes));
}

TEST(MappedModelTest, WhatComesInAnotherFormIsGatheredBeside) {
  TestRuntime runtime;
  const std::vector<float> values = draw(1, 100);
  const round::Schema schema = round::Schema::make({{"w", round::DType::kF32, {100}}}).value();
  const ByteSpan bytes = std::as_bytes(std::span(values));
  std::optional<HeldModel> held;
  const round::ModelRef ref{RunId(1), ModelVersion(1), {}, bytes.size()};
  MappedModel model(
      runtime.get().pool, local::ModelMemory::make(), ref, [] {}, [&](HeldModel done) { held = std::move(done); });
  ASSERT_TRUE(runtime.run(model.begin(schema)).ok());
  const round::ModelForm form{"fp16", 256, 204, {}};
  ASSERT_TRUE(model.begin_form(form).ok());
  ASSERT_TRUE(model.append_form(bytes.first(150)).ok());
  ASSERT_TRUE(model.begin_form(form).ok()) << "from the start";
  ASSERT_TRUE(model.append_form(bytes.first(100)).ok());
  ASSERT_TRUE(model.append_form(bytes.subspan(100, 104)).ok());
  EXPECT_TRUE(net::same_bytes(model.form_bytes().bytes, bytes.first(204)));
  ASSERT_EQ(model.room().size(), bytes.size());
  std::ranges::copy(bytes, model.room().begin());
  ASSERT_TRUE(model.seal().ok());
  model.complete();
  ASSERT_TRUE(held);
  EXPECT_TRUE(net::same_bytes(held->bytes->bytes(), bytes));
}

}  // namespace
}  // namespace fluvial::edge
