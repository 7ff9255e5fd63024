#include "worker/torch/checkpoint/tensor_file.h"

#include <libdeflate.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace ddprun::worker {
namespace {

using nlohmann::json;

constexpr size_t kLengthBytes = 8;
// The tensors' bytes start at a multiple of this.
constexpr size_t kAlignment = 64;
constexpr const char* kMetadata = "__metadata__";
constexpr const char* kChecksum = "crc32";

uint32_t Checksum(const std::string& header, const std::vector<absl::string_view>& pieces) {
  uint32_t sum = libdeflate_crc32(0, header.data(), header.size());
  for (const absl::string_view piece : pieces) {
    if (piece.empty()) continue;  // a null pointer would begin the sum anew
    sum = libdeflate_crc32(sum, piece.data(), piece.size());
  }
  return sum;
}

absl::Status Damaged(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("damaged or cut short: ", what));
}

// Bytes of a tensor of this type and shape, unless type or size are not sound.
absl::StatusOr<uint64_t> BytesOf(const TensorEntry& entry) {
  uint64_t bytes = TensorTypeBytes(entry.type);
  if (bytes == 0) return Damaged(absl::StrCat("unknown type '", entry.type, "'"));
  for (const int64_t extent : entry.shape) {
    if (extent < 0 || __builtin_mul_overflow(bytes, static_cast<uint64_t>(extent), &bytes)) {
      return Damaged(absl::StrCat("impossible shape of '", entry.name, "'"));
    }
  }
  return bytes;
}

// Reads one entry of the header; its tensor's bytes are data[begin, end).
absl::StatusOr<TensorEntry> ReadEntry(const std::string& name, const json& described,
                                      absl::string_view data, uint64_t begin, uint64_t end) {
  TensorEntry entry;
  entry.name = name;
  entry.type = described.at("dtype").get<std::string>();
  entry.shape = described.at("shape").get<std::vector<int64_t>>();
  DDPRUN_ASSIGN_OR_RETURN(const uint64_t bytes, BytesOf(entry));
  if (end > data.size() || begin > end || end - begin != bytes) {
    return Damaged(absl::StrCat("wrong extent of '", name, "'"));
  }
  entry.bytes = data.substr(begin, bytes);
  return entry;
}

absl::StatusOr<TensorFile> ReadHeader(const json& header, absl::string_view data) {
  TensorFile file;
  std::multimap<uint64_t, TensorEntry> by_place;
  for (const auto& [name, described] : header.items()) {
    if (name == kMetadata) {
      file.metadata = described.get<std::map<std::string, std::string>>();
      continue;
    }
    const auto extent = described.at("data_offsets").get<std::array<uint64_t, 2>>();
    DDPRUN_ASSIGN_OR_RETURN(TensorEntry entry,
                            ReadEntry(name, described, data, extent[0], extent[1]));
    // Empty tensors share their place with the next one; order among them doesn't matter.
    const uint64_t key = extent[0];
    if (entry.bytes.empty()) {
      file.tensors.push_back(std::move(entry));
    } else {
      by_place.emplace(key, std::move(entry));
    }
  }
  uint64_t end = 0;
  for (auto& [place, entry] : by_place) {
    if (place != end) return Damaged(absl::StrCat("a gap or an overlap before '", entry.name, "'"));
    end += entry.bytes.size();
    file.tensors.push_back(std::move(entry));
  }
  if (end != data.size()) {
    return Damaged(absl::StrCat("its tensors have ", end, " bytes, the file ", data.size()));
  }
  return file;
}

// Removes the checksum from the header, and checks the file as `check` says. Returns the stored
// checksum; nullopt for other programs' files.
absl::StatusOr<std::optional<uint32_t>> CheckHeader(json& header, absl::string_view data,
                                                    TensorFileCheck check) {
  const bool has_one = header.contains(kMetadata) && header.at(kMetadata).contains(kChecksum);
  if (!has_one) {
    if (check != TensorFileCheck::kChecksum) return std::nullopt;
    return Damaged("it has no checksum of ddprun's");
  }
  const std::string stored = header.at(kMetadata).at(kChecksum).get<std::string>();
  header.at(kMetadata).erase(kChecksum);
  uint32_t sum = 0;
  const bool is_number = absl::SimpleAtoi(stored, &sum);
  if (check == TensorFileCheck::kLength && is_number) return sum;
  if (is_number && sum == Checksum(header.dump(), {data})) return sum;
  return Damaged(check == TensorFileCheck::kChecksum
                     ? "wrong checksum"
                     : "wrong checksum; if a program changed the file and kept its metadata, have "
                       "it leave out 'crc32'");
}

// Parses the header; every exception of the parser ends here.
absl::StatusOr<TensorFile> ParseHeader(absl::string_view text, absl::string_view data,
                                       TensorFileCheck check) {
  // The parser takes a NUL for the end of its input.
  if (text.find('\0') != absl::string_view::npos) return Damaged("a NUL in its header");
  try {
    json header = json::parse(text.begin(), text.end());
    DDPRUN_ASSIGN_OR_RETURN(const std::optional<uint32_t> checksum,
                            CheckHeader(header, data, check));
    DDPRUN_ASSIGN_OR_RETURN(TensorFile file, ReadHeader(header, data));
    file.checksum = checksum;
    return file;
  } catch (const json::exception& error) {
    return Damaged(absl::StrCat("its header is not as it should be (", error.what(), ")"));
  }
}

}  // namespace

uint64_t TensorTypeBytes(absl::string_view type) {
  static constexpr std::array<std::pair<const char*, uint64_t>, 16> kTypes = {{{"F64", 8},
                                                                               {"F32", 4},
                                                                               {"F16", 2},
                                                                               {"BF16", 2},
                                                                               {"I64", 8},
                                                                               {"I32", 4},
                                                                               {"I16", 2},
                                                                               {"I8", 1},
                                                                               {"U8", 1},
                                                                               {"BOOL", 1},
                                                                               {"U64", 8},
                                                                               {"U32", 4},
                                                                               {"U16", 2},
                                                                               {"F8_E4M3", 1},
                                                                               {"F8_E5M2", 1},
                                                                               {"C64", 8}}};
  for (const auto& [name, bytes] : kTypes) {
    if (type == name) return bytes;
  }
  return 0;
}

namespace {

json DescribeTensors(const TensorFile& file) {
  json header = json::object();
  header[kMetadata] = file.metadata;
  uint64_t begin = 0;
  for (const TensorEntry& entry : file.tensors) {
    const absl::StatusOr<uint64_t> bytes = BytesOf(entry);
    DDPRUN_CHECK(bytes.ok() && *bytes == entry.bytes.size(), entry.name);
    const uint64_t end = begin + entry.bytes.size();
    const bool inserted = header
                              .emplace(entry.name, json{{"dtype", entry.type},
                                                        {"shape", entry.shape},
                                                        {"data_offsets", {begin, end}}})
                              .second;
    DDPRUN_CHECK(inserted, entry.name);
    begin = end;
  }
  return header;
}

// The header with its length in front and blanks behind, so that the tensors' bytes are aligned.
std::string Framed(std::string text) {
  text.append((kAlignment - (kLengthBytes + text.size()) % kAlignment) % kAlignment, ' ');
  std::string encoded(kLengthBytes, '\0');
  const uint64_t length = text.size();
  for (size_t i = 0; i < kLengthBytes; ++i) {
    encoded[i] = static_cast<char>((length >> (8 * i)) & 0xff);
  }
  return encoded + text;
}

}  // namespace

std::string EncodeTensorFileHeader(const TensorFile& file, uint32_t* checksum) {
  json header = DescribeTensors(file);
  std::vector<absl::string_view> pieces;
  for (const TensorEntry& entry : file.tensors) pieces.push_back(entry.bytes);
  const uint32_t sum = Checksum(header.dump(), pieces);
  if (checksum != nullptr) *checksum = sum;
  header[kMetadata][kChecksum] = absl::StrCat(sum);
  return Framed(header.dump());
}

std::string EncodePlainTensorFileHeader(const TensorFile& file) {
  return Framed(DescribeTensors(file).dump());
}

absl::StatusOr<TensorFile> DecodeTensorFile(absl::string_view bytes, TensorFileCheck check) {
  if (bytes.size() < kLengthBytes) return Damaged(absl::StrCat("only ", bytes.size(), " bytes"));
  uint64_t length = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    length |= static_cast<uint64_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  }
  bytes.remove_prefix(kLengthBytes);
  if (length > bytes.size()) {
    return Damaged(absl::StrCat("a header of ", length, " bytes in ", bytes.size(), " bytes"));
  }
  return ParseHeader(bytes.substr(0, length), bytes.substr(length), check);
}

}  // namespace ddprun::worker
