#include "core/aggregate/shapes.h"

#include <gmock/gmock.h>

namespace fluvial::aggregate {
namespace {

using round::DType;
using testing::ElementsAre;
using testing::HasSubstr;

round::Schema schema_of(std::vector<round::Tensor> tensors) { return round::Schema::make(std::move(tensors)).value(); }

std::unique_ptr<kernels::Codec> codec_of(const char* text) {
  return std::move(kernels::make_codec(kernels::parse_codec(text).value())).value();
}

TEST(Shapes, AreOfTheAveragedTensorsInTheirPlaces) {
  const Shapes shapes(schema_of({{"a", DType::kF32, {30, 40}}, {"seen", DType::kI64, {3}}, {"b", DType::kF32, {7}}}),
                      100);
  EXPECT_EQ(shapes.layout(), (kernels::ChunkLayout{1207, 100}));
  const kernels::VectorSchema schema = shapes.schema();
  ASSERT_EQ(schema.tensors.size(), 2u);
  EXPECT_THAT(schema.tensors[0].dims, ElementsAre(30, 40));
  EXPECT_EQ(schema.tensors[0].offset_values, 0u);
  EXPECT_THAT(schema.tensors[1].dims, ElementsAre(7));
  EXPECT_EQ(schema.tensors[1].offset_values, 1200u);
}

// Of a matrix of 30 x 40 at rank 2, P has 2 columns of 30 values and Q 2 of 40; what is not cut travels with Q.
TEST(Shapes, SayWhatTravelsInEachPass) {
  const Shapes shapes(schema_of({{"a", DType::kF32, {30, 40}}, {"b", DType::kF32, {7}}}), 100);
  EXPECT_THAT(pass_values(*codec_of("powersgd:rank=2"), shapes).value(), ElementsAre(60, 87));
  EXPECT_TRUE(pass_values(*codec_of("topk"), shapes).value().empty());
  EXPECT_THAT(pass_values(*codec_of("onebit_adam"), shapes).value(), ElementsAre(shapes.layout().value_count))
      << "one pass, which begins with what the round before handed down";
}

TEST(Shapes, AModelWithoutAMatrixToCutIsRefused) {
  const Shapes shapes(schema_of({{"a", DType::kF32, {5, 5}}, {"b", DType::kF32, {7}}}), 100);
  const auto none = pass_values(*codec_of("powersgd:rank=2"), shapes);
  ASSERT_FALSE(none.ok());
  EXPECT_THAT(none.error().message, HasSubstr("travels in pass 1: no tensor is large enough"));
}

}  // namespace
}  // namespace fluvial::aggregate
