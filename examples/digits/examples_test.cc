#include "examples/digits/examples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>

#include "examples/digits/test_files.h"

namespace fluvial::digits {
namespace {

using ::testing::HasSubstr;

std::string csv_line(const std::string& first, const std::string& label) {
  std::string line = first;
  for (int i = 1; i < 64; ++i) line += ",0";
  return line + "," + label + "\n";
}

TEST(DigitsCsv, ReadsPixelsAndLabels) {
  const TestFiles files;
  for (const auto& path :
       {files.plain("a.csv", csv_line("16", "3") + csv_line("4", "9")),
        files.packed("a.csv.gz", csv_line("16", "3") + csv_line("4", "9")),
        files.plain("windows.csv", "16" + csv_line("", "3").replace(127, 3, "3\r\n") + csv_line("4", "9"))}) {
    const Result<Examples> examples = read_digits_csv(path);
    ASSERT_TRUE(examples.ok()) << examples.error().message;
    EXPECT_EQ(examples->inputs, 64u);
    ASSERT_EQ(examples->count(), 2u);
    EXPECT_EQ(examples->labels, (std::vector<std::uint8_t>{3, 9}));
    EXPECT_EQ(examples->image(0)[0], 1.0F);
    EXPECT_EQ(examples->image(1)[0], 0.25F);
    EXPECT_EQ(examples->image(1)[63], 0.0F);
  }
}

TEST(DigitsCsv, NamesTheLineItRefuses) {
  const TestFiles files;
  const std::string good = csv_line("1", "1");
  for (const std::string& bad :
       {csv_line("17", "1"), csv_line("-1", "1"), csv_line("1.5", "1"), csv_line("", "1"), csv_line(" 1", "1"),
        csv_line("x", "1"), csv_line("99999999999999999999", "1"), csv_line("1", "10"), csv_line("1", ""),
        csv_line("1", "1,"), csv_line("1", "1 "), csv_line("1,1", "1"), std::string("1,2,3\n"), std::string("\n")}) {
    const Result<Examples> examples = read_digits_csv(files.plain("bad.csv", good + bad + good));
    ASSERT_FALSE(examples.ok()) << bad;
    EXPECT_EQ(examples.error().code, Code::kInvalidArgument);
    EXPECT_THAT(examples.error().message, HasSubstr("bad.csv:2:")) << bad;
  }
}

TEST(DigitsCsv, RefusesWhatIsNoFileOfImages) {
  const TestFiles files;
  EXPECT_EQ(read_digits_csv(files.folder() / "none.csv").error().code, Code::kNotFound);
  EXPECT_EQ(read_digits_csv(files.plain("empty.csv", "")).error().code, Code::kInvalidArgument);
  std::string content;
  for (int i = 0; i < 50; ++i) content += csv_line(std::to_string(i % 17), std::to_string(i % 10));
  const auto cut = files.packed("cut.csv.gz", content);
  std::filesystem::resize_file(cut, std::filesystem::file_size(cut) / 2);
  EXPECT_EQ(read_digits_csv(cut).error().code, Code::kInvalidArgument);
}

std::string be(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}
std::string idx_images(std::uint32_t count, std::uint32_t rows, std::uint32_t columns, const std::string& pixels) {
  return be(0x803) + be(count) + be(rows) + be(columns) + pixels;
}
std::string idx_labels(std::uint32_t count, const std::string& labels) { return be(0x801) + be(count) + labels; }

const std::string kPixels = {'\0', '\xff', '\x33', '\0', '\xff', '\xff'};  // 3 images of 2 x 1
const std::string kLabels = {'\7', '\0', '\x9'};

TEST(DigitsIdx, ReadsImagesAndLabels) {
  const TestFiles files;
  const Result<Examples> examples =
      read_idx(files.packed("images.gz", idx_images(3, 2, 1, kPixels)), files.plain("labels", idx_labels(3, kLabels)));
  ASSERT_TRUE(examples.ok()) << examples.error().message;
  EXPECT_EQ(examples->inputs, 2u);
  EXPECT_EQ(examples->labels, (std::vector<std::uint8_t>{7, 0, 9}));
  EXPECT_EQ(examples->pixels, (std::vector<float>{0, 1, 0.2F, 0, 1, 1}));
}

TEST(DigitsIdx, RefusesImagesThatDoNotFitTheirHeader) {
  const TestFiles files;
  const auto labels = files.plain("labels", idx_labels(3, kLabels));
  const std::string good = idx_images(3, 2, 1, kPixels);
  for (const std::string& bad : {
           std::string(),
           good.substr(0, 15),
           good.substr(0, good.size() - 1),
           good + "x",  // cut short, or goes on
           be(0x801) + good.substr(4),
           be(0x03080000) + good.substr(4),  // another magic number
           idx_images(0, 2, 1, ""),
           idx_images(3, 0, 1, ""),
           idx_images(3, 2, 0, ""),  // nothing
           idx_images(0xffffffff, 1, 1, kPixels),
           idx_images(1, 0xffffffff, 0xffffffff, kPixels),  // far too much
           idx_images(1'000'000, 256, 256, kPixels),
           idx_images(3, 257, 1, kPixels),
       }) {
    const Result<Examples> examples = read_idx(files.plain("images", bad), labels);
    ASSERT_FALSE(examples.ok());
    EXPECT_EQ(examples.error().code, Code::kInvalidArgument);
    EXPECT_THAT(examples.error().message, HasSubstr("images"));
  }
}

TEST(DigitsIdx, RefusesLabelsThatDoNotFitTheImages) {
  const TestFiles files;
  const auto images = files.plain("images", idx_images(3, 2, 1, kPixels));
  for (const std::string& bad :
       {std::string(), idx_labels(2, kLabels.substr(1)), idx_labels(3, kLabels.substr(1)), idx_labels(3, kLabels + "1"),
        idx_labels(0xffffffff, kLabels), be(0x803) + be(3) + kLabels, idx_labels(3, std::string("\7\0\xa", 3))}) {
    EXPECT_EQ(read_idx(images, files.plain("labels", bad)).error().code, Code::kInvalidArgument);
  }
}

TEST(DigitsData, AFolderHoldsTheFourFilesOfMnist) {
  const TestFiles files;
  files.packed("train-images-idx3-ubyte.gz", idx_images(3, 2, 1, kPixels));
  files.packed("train-labels-idx1-ubyte.gz", idx_labels(3, kLabels));
  files.plain("t10k-images-idx3-ubyte", idx_images(1, 2, 1, kPixels.substr(0, 2)));
  files.plain("t10k-labels-idx1-ubyte", idx_labels(1, kLabels.substr(0, 1)));
  const Result<Data> data = load_data(files.folder());
  ASSERT_TRUE(data.ok()) << data.error().message;
  EXPECT_EQ(data->train.count(), 3u);
  EXPECT_EQ(data->test.count(), 1u);

  files.plain("t10k-images-idx3-ubyte", idx_images(1, 1, 1, kPixels.substr(0, 1)));
  EXPECT_EQ(load_data(files.folder()).error().code, Code::kInvalidArgument);
}

using Image = std::pair<std::uint8_t, std::vector<float>>;
std::vector<Image> sorted_images(std::initializer_list<const Examples*> parts) {
  std::vector<Image> images;
  for (const Examples* part : parts) {
    for (std::size_t i = 0; i < part->count(); ++i) {
      images.emplace_back(part->labels[i], std::vector<float>(part->image(i).begin(), part->image(i).end()));
    }
  }
  std::sort(images.begin(), images.end());
  return images;
}

TEST(DigitsData, HoldsOutTheSameImagesForEverybody) {
  const Result<Examples> all = read_digits_csv(FLUVIAL_DIGITS_CSV);
  const Result<Data> data = load_data(FLUVIAL_DIGITS_CSV);
  ASSERT_TRUE(all.ok() && data.ok());
  EXPECT_EQ(all->count(), 1797u);
  EXPECT_EQ(data->train.count(), 1437u);
  for (std::uint8_t digit = 0; digit < kClasses; ++digit) {
    EXPECT_EQ(std::count(data->test.labels.begin(), data->test.labels.end(), digit), 36);
  }
  EXPECT_EQ(sorted_images({&data->train, &data->test}), sorted_images({&*all}));
  // Every reported figure depends on which images are held out: a change of that choice must not go unnoticed.
  std::uint64_t mark = 0;
  for (const float pixel : data->test.pixels) mark = mark * 31 + static_cast<std::uint64_t>(pixel * 16);
  EXPECT_EQ(mark, 16985405436354796455u);
}

}  // namespace
}  // namespace fluvial::digits
