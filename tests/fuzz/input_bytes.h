#ifndef DDPRUN_TESTS_FUZZ_INPUT_BYTES_H_
#define DDPRUN_TESTS_FUZZ_INPUT_BYTES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

namespace ddprun {

// A fuzzer's input as a row of choices.
class InputBytes {
 public:
  InputBytes(const uint8_t* data, size_t size) : data_(data), size_(size) {}
  bool empty() const { return size_ == 0; }
  // Returns zeros after the end.
  uint8_t Next() {
    if (size_ == 0) return 0;
    --size_;
    return *data_++;
  }
  // In [0, bound), of at most 256. Requires: bound > 0.
  size_t Below(size_t bound) { return Next() % bound; }
  bool Chance(uint32_t of_256) { return Next() < of_256; }
  // Mostly `usual`, else something wild.
  uint64_t Around(uint64_t usual) {
    const uint8_t byte = Next();
    if (byte < 240) return usual;
    if (byte < 245) return usual + 1;
    if (byte < 250) return usual - 1;
    return uint64_t{Next()} << Next() % 57;
  }
  uint64_t Number() {
    uint64_t number = 0;
    for (int i = 0; i < 8; ++i) number = number << 8 | Next();
    return number;
  }
  // The next bytes, as many as there are.
  std::string Text(size_t length) {
    length = std::min(length, size_);
    std::string text(reinterpret_cast<const char*>(data_), length);
    data_ += length;
    size_ -= length;
    return text;
  }

 private:
  const uint8_t* data_;
  size_t size_;
};

}  // namespace ddprun

#endif  // DDPRUN_TESTS_FUZZ_INPUT_BYTES_H_
