#ifndef DDPRUN_WORKER_TORCH_CHECKPOINT_TENSOR_FILE_H_
#define DDPRUN_WORKER_TORCH_CHECKPOINT_TENSOR_FILE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace ddprun::worker {

// One tensor of a file. Little-endian, row-major.
struct TensorEntry {
  std::string name;
  std::string type;  // safetensors' names: F32, I64, U8, BF16, …
  std::vector<int64_t> shape;
  absl::string_view bytes;  // points into the caller's memory

  friend bool operator==(const TensorEntry&, const TensorEntry&) = default;
};

// The contents of a safetensors file (https://huggingface.co/docs/safetensors, "Format"): 8 bytes
// of header length, a JSON header, the tensors' bytes without gaps. Python's safetensors reads it.
//
// Our files have the metadata "crc32": gzip's CRC-32 (RFC 1952, 8) over the header without that
// entry and all tensor bytes, so that a torn or changed byte is noticed anywhere. Other programs'
// files have none; for those only the length is checked against the header.
struct TensorFile {
  std::map<std::string, std::string> metadata;  // without "crc32"
  std::vector<TensorEntry> tensors;
  std::optional<uint32_t> checksum = std::nullopt;  // the stored one, of a file that was read
};

// Makes the file's header; the tensors' bytes follow it in the order of `file.tensors`.
// Params: checksum: set to the file's checksum unless null.
// Requires: each tensor's bytes fit its type and shape; names are unique, and no metadata "crc32".
std::string EncodeTensorFileHeader(const TensorFile& file, uint32_t* checksum = nullptr);
// EncodeTensorFileHeader for a file without a checksum, which stays in memory: doesn't read the
// tensors' bytes.
std::string EncodePlainTensorFileHeader(const TensorFile& file);

// How a file is checked when it is read.
enum class TensorFileCheck {
  kChecksum,       // the file must have a checksum: ours
  kChecksumIfAny,  // any program's file
  kLength,         // only the length: of `bytes` only the header is read
};

// Reads a safetensors file; the entries point into `bytes`.
// Errors: DATA_LOSS — it is cut short, damaged, or not such a file; the text says what is wrong.
absl::StatusOr<TensorFile> DecodeTensorFile(absl::string_view bytes,
                                            TensorFileCheck check = TensorFileCheck::kChecksum);

// Bytes of one element; 0 for an unknown type.
uint64_t TensorTypeBytes(absl::string_view type);

}  // namespace ddprun::worker

#endif  // DDPRUN_WORKER_TORCH_CHECKPOINT_TENSOR_FILE_H_
