#include "examples/digits/digits_data.h"

#include <zlib.h>

#include <cstdlib>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace ddprun::examples {
namespace {

constexpr size_t kPixels = size_t{kDigitSide} * kDigitSide;
constexpr float kPixelMax = 16;

bool ParseLine(absl::string_view line, DigitsData* data) {
  const std::vector<absl::string_view> fields = absl::StrSplit(line, ',');
  if (fields.size() != kPixels + 1) return false;
  for (size_t i = 0; i < kPixels; ++i) {
    float pixel = 0;
    if (!absl::SimpleAtof(fields[i], &pixel) || !(pixel >= 0 && pixel <= kPixelMax)) return false;
    data->pixels.push_back(pixel / kPixelMax);
  }
  double label = 0;
  if (!absl::SimpleAtod(fields[kPixels], &label) || !(label >= 0 && label <= 9)) return false;
  data->labels.push_back(static_cast<int64_t>(label));
  return true;
}

}  // namespace

std::string DefaultDigitsPath() {
  const auto variable = [](const char* name) -> std::string {
    const char* value = std::getenv(name);
    return value != nullptr ? value : "";
  };
  if (!variable("DDPRUN_DIGITS").empty()) return variable("DDPRUN_DIGITS");
  std::string cache = variable("DDPRUN_CACHE");
  if (cache.empty() && !variable("XDG_CACHE_HOME").empty()) {
    cache = variable("XDG_CACHE_HOME") + "/ddprun";
  }
  if (cache.empty()) cache = variable("HOME") + "/.cache/ddprun";
  return cache + "/digits/digits.csv.gz";
}

absl::StatusOr<DigitsData> LoadDigits(const std::string& path) {
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (file == nullptr) {
    return absl::NotFoundError(absl::StrCat("can't open the digits '", path,
                                            "': give --data or DDPRUN_DIGITS the path of "
                                            "digits.csv.gz"));
  }
  DigitsData data;
  char line[1024];
  while (gzgets(file.get(), line, sizeof(line)) != nullptr) {
    if (!ParseLine(absl::StripAsciiWhitespace(line), &data)) {
      return absl::DataLossError(absl::StrCat(path, ", line ", data.labels.size() + 1,
                                              ": not 64 pixels of 0 to 16 and a label"));
    }
  }
  int error = Z_OK;
  const char* text = gzerror(file.get(), &error);
  if (error != Z_OK && error != Z_STREAM_END) {
    return absl::DataLossError(absl::StrCat(path, " is damaged: ", text));
  }
  if (data.labels.empty()) return absl::DataLossError(absl::StrCat(path, " is empty"));
  return data;
}

}  // namespace ddprun::examples
