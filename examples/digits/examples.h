// Labelled images in memory, and the two formats they are read from.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "core/base/result.h"

namespace fluvial::digits {

inline constexpr std::size_t kClasses = 10;

struct Examples {
  std::size_t inputs = 0;            // pixels an image
  std::vector<float> pixels;         // image after image, scaled to [0, 1]
  std::vector<std::uint8_t> labels;  // 0..9, one an image

  std::size_t count() const { return labels.size(); }
  std::span<const float> image(std::size_t index) const { return std::span(pixels).subspan(index * inputs, inputs); }
  Examples part(std::span<const std::uint32_t> indices) const;  // copies
};

// The digits as scikit-learn packages them: gzip or plain CSV, a line an image, 64 pixels of 0..16 and the label.
// kInvalidArgument names file and line.
Result<Examples> read_digits_csv(const std::filesystem::path& file);

// MNIST's format (idx3-ubyte images and idx1-ubyte labels), gzip or plain. kInvalidArgument names the file. Counts and
// sizes are checked before memory is allocated for them.
Result<Examples> read_idx(const std::filesystem::path& images, const std::filesystem::path& labels);

// The images for training, and those that are only used for tests.
struct Data {
  Examples train;
  Examples test;
};
// Loads a CSV file, of which the same 36 images of each digit are held out whatever the seed; or a folder with MNIST's
// four files under their usual names, .gz or not.
Result<Data> load_data(const std::filesystem::path& path);

}  // namespace fluvial::digits
