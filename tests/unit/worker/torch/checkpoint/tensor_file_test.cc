#include "worker/torch/checkpoint/tensor_file.h"

#include <gtest/gtest.h>

#include <string>

#include <nlohmann/json.hpp>

#include "base/rng.h"

namespace ddprun::worker {
namespace {

constexpr const char* kWeights = "0123456789abcdef01234567";  // 24 bytes

TensorFile Sample() {
  TensorFile file;
  file.metadata = {{"format", "test 1"}, {"run_id", "job7"}};
  file.tensors = {{"model.weight", "F32", {2, 3}, kWeights},
                  {"empty", "F64", {0, 4}, ""},
                  {"progress", "I64", {1}, "ABCDEFGH"},
                  {"a.flag", "BOOL", {}, "\x01"}};
  return file;
}

std::string Encode(const TensorFile& file) {
  std::string bytes = EncodeTensorFileHeader(file);
  for (const TensorEntry& entry : file.tensors)
    bytes.append(entry.bytes.data(), entry.bytes.size());
  return bytes;
}

const TensorEntry* Find(const TensorFile& file, const std::string& name) {
  for (const TensorEntry& entry : file.tensors) {
    if (entry.name == name) return &entry;
  }
  return nullptr;
}

TEST(TensorFileTest, RoundTrips) {
  const std::string bytes = Encode(Sample());
  const absl::StatusOr<TensorFile> read = DecodeTensorFile(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->tensors.size(), Sample().tensors.size());
  for (const TensorEntry& entry : Sample().tensors) {
    ASSERT_NE(Find(*read, entry.name), nullptr) << entry.name;
    EXPECT_EQ(*Find(*read, entry.name), entry);
  }
  EXPECT_EQ(read->metadata.at("run_id"), "job7");
}

TEST(TensorFileTest, IsASafetensorsFile) {
  const std::string bytes = Encode(Sample());
  const uint64_t length = static_cast<unsigned char>(bytes[0]) |
                          static_cast<uint64_t>(static_cast<unsigned char>(bytes[1])) << 8;
  EXPECT_EQ((length + 8) % 64, 0U);
  const nlohmann::json header = nlohmann::json::parse(bytes.substr(8, length));
  EXPECT_EQ(header["model.weight"]["dtype"], "F32");
  EXPECT_EQ(header["model.weight"]["shape"], (std::vector<int>{2, 3}));
  EXPECT_EQ(header["model.weight"]["data_offsets"], (std::vector<int>{0, 24}));
  EXPECT_EQ(header["progress"]["data_offsets"], (std::vector<int>{24, 32}));
  EXPECT_TRUE(header["__metadata__"]["crc32"].is_string());
}

TEST(TensorFileTest, EveryCutIsNoticed) {
  const std::string bytes = Encode(Sample());
  for (size_t length = 0; length < bytes.size(); ++length) {
    const absl::StatusOr<TensorFile> read = DecodeTensorFile(bytes.substr(0, length));
    ASSERT_EQ(read.status().code(), absl::StatusCode::kDataLoss) << "cut to " << length;
  }
}

TEST(TensorFileTest, EveryChangedBitIsNoticed) {
  const std::string bytes = Encode(Sample());
  for (size_t bit = 0; bit < bytes.size() * 8; ++bit) {
    std::string changed = bytes;
    changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << (bit % 8)));
    ASSERT_EQ(DecodeTensorFile(changed).status().code(), absl::StatusCode::kDataLoss)
        << "bit " << bit;
  }
}

TEST(TensorFileTest, BytesAfterTheEndAreNoticed) {
  EXPECT_EQ(DecodeTensorFile(Encode(Sample()) + "x").status().code(), absl::StatusCode::kDataLoss);
}

TEST(TensorFileTest, RandomBytesNeverCrash) {
  Rng rng(3);
  for (int round = 0; round < 2000; ++round) {
    std::string bytes = Encode(Sample()).substr(0, rng.Below(400));
    for (uint64_t i = 0; i < rng.Below(20) && !bytes.empty(); ++i) {
      bytes[rng.Below(bytes.size())] = static_cast<char>(rng.Below(256));
    }
    (void)DecodeTensorFile(bytes).status().code();
  }
}

TEST(TensorFileTest, TheMessageSaysWhatIsWrong) {
  EXPECT_EQ(DecodeTensorFile("abc").status().message(), "damaged or cut short: only 3 bytes");
  std::string changed = Encode(Sample());
  changed.back() ^= 1;
  EXPECT_EQ(DecodeTensorFile(changed).status().message(), "damaged or cut short: wrong checksum");
}

}  // namespace
}  // namespace ddprun::worker
