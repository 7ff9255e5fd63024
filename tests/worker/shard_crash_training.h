#ifndef DDPRUN_TESTS_WORKER_SHARD_CRASH_TRAINING_H_
#define DDPRUN_TESTS_WORKER_SHARD_CRASH_TRAINING_H_

#include <torch/nn/module.h>
#include <torch/types.h>

#include <cstdint>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "tests/unit/worker/torch/checkpoint/recorded_disk.h"

namespace ddprun::testing {

// What shard_crash_probe saves: each save has a number, with which everything is filled.
struct CrashLayer : torch::nn::Module {
  torch::Tensor weight = register_parameter("weight", torch::zeros({300}));
  torch::Tensor bias = register_parameter("bias", torch::zeros({70}));
  torch::Tensor mean = register_buffer("mean", torch::zeros({5}));
};

// A call as a line of four numbers and its texts. Several processes append to one file: each call
// is one write, in the order in which they are about to do it.
inline std::string Serialize(const RecordedDisk::Call& call) {
  std::string text;
  for (const int64_t number :
       {static_cast<int64_t>(call.kind), call.said, static_cast<int64_t>(call.path.size()),
        static_cast<int64_t>(call.to.size()), static_cast<int64_t>(call.bytes.size())}) {
    text += std::to_string(number) + " ";
  }
  return text + "\n" + call.path + call.to + call.bytes;
}

inline std::vector<RecordedDisk::Call> ReadCalls(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::vector<RecordedDisk::Call> calls;
  int kind = 0;
  RecordedDisk::Call call;
  size_t path_size = 0;
  size_t to_size = 0;
  size_t bytes_size = 0;
  while (file >> kind >> call.said >> path_size >> to_size >> bytes_size) {
    file.ignore(2);  // " \n"
    call.kind = static_cast<RecordedDisk::Kind>(kind);
    for (auto& [text, size] : {std::pair(&call.path, path_size), std::pair(&call.to, to_size),
                               std::pair(&call.bytes, bytes_size)}) {
      text->resize(size);
      file.read(text->data(), static_cast<std::streamsize>(size));
    }
    calls.push_back(call);
  }
  return calls;
}

}  // namespace ddprun::testing

#endif  // DDPRUN_TESTS_WORKER_SHARD_CRASH_TRAINING_H_
