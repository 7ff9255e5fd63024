#include "tools/doctor/text_file.h"

#include <fstream>

#include "absl/strings/ascii.h"
#include "base/text.h"

namespace ddprun::launcher {

std::string TextOfFile(const std::string& path) {
  constexpr size_t kBytesMax = 1 << 20;
  std::ifstream file(path, std::ios::binary);
  std::string text(kBytesMax, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  text.resize(static_cast<size_t>(file.gcount()));
  return text;
}

std::string FirstLine(const std::string& path) {
  constexpr size_t kShownBytes = 200;
  const std::string text = TextOfFile(path);
  return Shown(absl::StripAsciiWhitespace(text.substr(0, text.find('\n'))), kShownBytes);
}

}  // namespace ddprun::launcher
