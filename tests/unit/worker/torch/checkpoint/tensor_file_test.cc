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

// Without memory, as LibTorch's: libdeflate takes a null pointer for a new beginning.
TEST(TensorFileTest, EmptyTensorsRoundTrip) {
  TensorFile file = Sample();
  TensorEntry none{.name = "none", .type = "F32", .shape = {0}, .bytes = absl::string_view()};
  file.tensors.insert(file.tensors.begin() + 1, none);
  const std::string bytes = Encode(file);
  const absl::StatusOr<TensorFile> read = DecodeTensorFile(bytes);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_NE(Find(*read, "none"), nullptr);
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

// The value is Python's zlib.crc32 of this header without "crc32", and of the tensors' bytes: files
// of an earlier version are still whole.
TEST(TensorFileTest, TheChecksumIsGzips) {
  uint32_t checksum = 0;
  EncodeTensorFileHeader(Sample(), &checksum);
  EXPECT_EQ(checksum, 4087765468U);
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

// Writes a file as the format's own documentation has it: https://huggingface.co/docs/safetensors,
// "Format".
std::string Foreign(const std::string& header, const std::string& data) {
  std::string bytes(8, '\0');
  bytes[0] = static_cast<char>(header.size());
  return bytes + header + data;
}

constexpr const char* kForeignHeader =
    R"({"__metadata__":{"format":"pt"},"b":{"dtype":"F16","shape":[2],"data_offsets":[8,12]},)"
    R"("a":{"dtype":"F32","shape":[2,1],"data_offsets":[0,8]}}  )";

TEST(TensorFileTest, OthersFilesNeedNoChecksum) {
  const std::string bytes = Foreign(kForeignHeader, "0123456789ab");
  const absl::StatusOr<TensorFile> read = DecodeTensorFile(bytes, TensorFileCheck::kChecksumIfAny);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(*Find(*read, "a"), (TensorEntry{"a", "F32", {2, 1}, "01234567"}));
  EXPECT_EQ(*Find(*read, "b"), (TensorEntry{"b", "F16", {2}, "89ab"}));
  EXPECT_EQ(read->metadata.at("format"), "pt");
  // Metadata are nobody's duty.
  const std::string plain = Foreign(R"({"a":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})", "x");
  EXPECT_TRUE(DecodeTensorFile(plain, TensorFileCheck::kChecksumIfAny).ok());
  // A checkpoint is none of others'.
  EXPECT_EQ(DecodeTensorFile(bytes).status().message(),
            "damaged or cut short: it has no checksum of ddprun's");
}

TEST(TensorFileTest, WithoutAChecksumTheLengthTells) {
  const std::string bytes = Foreign(kForeignHeader, "0123456789ab");
  for (const TensorFileCheck check : {TensorFileCheck::kChecksumIfAny, TensorFileCheck::kLength}) {
    for (size_t length = 0; length < bytes.size(); ++length) {
      ASSERT_EQ(DecodeTensorFile(bytes.substr(0, length), check).status().code(),
                absl::StatusCode::kDataLoss)
          << "cut to " << length;
    }
    EXPECT_EQ(DecodeTensorFile(bytes + "x", check).status().message(),
              "damaged or cut short: its tensors have 12 bytes, the file 13");
  }
}

TEST(TensorFileTest, GapsAndOverlapsAreNoticed) {
  const auto read = [](const std::string& extent) {
    return DecodeTensorFile(Foreign(R"({"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                                    R"("b":{"dtype":"U8","shape":[2],"data_offsets":)" +
                                        extent + "}}",
                                    "0123"),
                            TensorFileCheck::kChecksumIfAny);
  };
  EXPECT_TRUE(read("[2,4]").ok());
  for (const char* extent : {"[1,3]", "[0,2]", "[3,5]"}) {
    EXPECT_EQ(read(extent).status().code(), absl::StatusCode::kDataLoss) << extent;
  }
}

// A checksum in the file counts, whichever program wrote the file; a look at the length alone
// doesn't read the data.
TEST(TensorFileTest, AChangedByteIsNoticedWhereThereIsAChecksum) {
  std::string bytes = Encode(Sample());
  bytes.back() ^= 1;
  EXPECT_FALSE(DecodeTensorFile(bytes, TensorFileCheck::kChecksumIfAny).ok());
  EXPECT_TRUE(DecodeTensorFile(bytes, TensorFileCheck::kLength).ok());
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
