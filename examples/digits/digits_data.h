#ifndef DDPRUN_EXAMPLES_DIGITS_DIGITS_DATA_H_
#define DDPRUN_EXAMPLES_DIGITS_DIGITS_DATA_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace ddprun::examples {

inline constexpr int kDigitSide = 8;  // images are 8 × 8 pixels

// UCI's Optical Recognition of Handwritten Digits (test part, 1,797 images), as scikit-learn ships
// it.
struct DigitsData {
  std::vector<float> pixels;    // 64 for each image, row by row, in [0, 1]
  std::vector<int64_t> labels;  // 0 to 9
  int64_t size() const { return static_cast<int64_t>(labels.size()); }
};

// DDPRUN_DIGITS, else where scripts/demo and scripts/test put the digits.
std::string DefaultDigitsPath();

// Reads digits.csv.gz: in each line 64 pixels of 0 to 16 and the label, separated by commas.
// Errors: NOT_FOUND — can't be opened; DATA_LOSS — damaged; the text names file and line.
absl::StatusOr<DigitsData> LoadDigits(const std::string& path);

}  // namespace ddprun::examples

#endif  // DDPRUN_EXAMPLES_DIGITS_DIGITS_DATA_H_
