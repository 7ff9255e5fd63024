#include "worker/torch/optim/optimizer_archive.h"

#include <c10/util/Type.h>
#include <torch/serialize/archive.h>

#include <cstdint>
#include <cstring>
#include <exception>
#include <map>
#include <sstream>
#include <string>
#include <typeinfo>

#include "absl/strings/str_cat.h"

namespace ddprun::worker {
namespace {

using torch::optim::Optimizer;
using torch::serialize::InputArchive;
using torch::serialize::OutputArchive;

// By an address as torch::optim::serialize writes it: the parameter's number.
using Numbers = std::map<std::string, std::string>;

Numbers NumbersOfParameters(const Optimizer& optimizer) {
  Numbers numbers;
  for (const auto& group : optimizer.param_groups()) {
    for (const torch::Tensor& parameter : group.params()) {
      const auto address = reinterpret_cast<uintptr_t>(parameter.unsafeGetTensorImpl());
      numbers.emplace(absl::StrCat(address), absl::StrCat(numbers.size()));
    }
  }
  return numbers;
}

std::string Renamed(const std::string& text, const Numbers& numbers) {
  const auto found = numbers.find(text);
  return found == numbers.end() ? text : found->second;
}

void CopyByNumbers(InputArchive& from, const Numbers& numbers, OutputArchive& to) {
  std::map<std::string, std::string> keys;  // by the new one
  for (const std::string& key : from.keys()) keys[Renamed(key, numbers)] = key;
  for (const auto& [name, key] : keys) {
    c10::IValue value;
    from.read(key, value);
    if (value.isModule()) {
      InputArchive part;
      from.read(key, part);
      OutputArchive copy(to.compilation_unit());
      CopyByNumbers(part, numbers, copy);
      to.write(name, copy);
    } else if (value.isString()) {
      to.write(name, c10::IValue(Renamed(value.toStringRef(), numbers)));
    } else if (value.isTensor()) {
      to.write(name, value.toTensor());
    } else {
      to.write(name, value);
    }
  }
}

std::string Bytes(OutputArchive& archive) {
  std::ostringstream stream;
  archive.save_to(stream);
  return stream.str();
}

InputArchive Read(const std::string& bytes) {
  std::istringstream stream(bytes);
  InputArchive archive;
  archive.load_from(stream);
  return archive;
}

absl::Status NoSave(const Optimizer& optimizer, const std::string& why) {
  const std::string name = c10::demangle(typeid(optimizer).name());
  return absl::UnimplementedError(
      absl::StrCat("the state of the optimizer ", name, " can't be saved: ", why,
                   "; have save(OutputArchive& a) const and load(InputArchive& a) call "
                   "torch::optim::serialize<ITS_PARAM_STATE, ITS_OPTIONS>(a, *this)"));
}

}  // namespace

absl::StatusOr<torch::Tensor> SaveToArchive(const Optimizer& optimizer) {
  try {
    OutputArchive saved;
    optimizer.save(saved);
    InputArchive written = Read(Bytes(saved));
    if (written.keys().empty()) return NoSave(optimizer, "its save() writes nothing");
    OutputArchive numbered;
    CopyByNumbers(written, NumbersOfParameters(optimizer), numbered);
    const std::string text = Bytes(numbered);
    torch::Tensor bytes = torch::empty({static_cast<int64_t>(text.size())}, torch::kByte);
    std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
    return bytes;
  } catch (const std::exception& error) {
    return NoSave(optimizer, error.what());
  }
}

absl::Status LoadFromArchive(const torch::Tensor& bytes, Optimizer& optimizer) {
  const torch::Tensor whole = bytes.contiguous();
  try {
    InputArchive archive =
        Read(std::string(static_cast<const char*>(whole.const_data_ptr()), whole.nbytes()));
    optimizer.load(archive);
    return absl::OkStatus();
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(absl::StrCat("the optimizer ",
                                                      c10::demangle(typeid(optimizer).name()),
                                                      " can't load its state: ", error.what()));
  }
}

}  // namespace ddprun::worker
