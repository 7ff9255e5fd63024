#include "worker/torch/store/gathering_store.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace ddprun::worker {

GatheringStore* AsGathering(c10d::Store& store) {
  if (auto* part = dynamic_cast<StorePart*>(&store)) {
    return AsGathering(*part->whole()) != nullptr ? part : nullptr;
  }
  return dynamic_cast<GatheringStore*>(&store);
}

std::vector<std::string> Gather(c10d::Store& store, const std::string& key,
                                const std::string& value, const std::vector<std::string>& keys,
                                absl::Duration timeout) {
  if (GatheringStore* gathering = AsGathering(store)) {
    return gathering->Gather(key, value, keys, timeout);
  }
  if (!key.empty()) store.set(key, value);
  std::vector<std::string> values;
  for (const std::string& one : keys) {
    store.wait({one}, absl::ToChronoMilliseconds(timeout));
    values.push_back(store.get_to_str(one));
  }
  return values;
}

std::vector<std::string> GatherWords(c10d::Store& store, const std::string& topic, uint32_t rank,
                                     size_t ranks, const std::string& word,
                                     absl::Duration timeout) {
  std::vector<std::string> keys;
  for (size_t i = 0; i < ranks; ++i) keys.push_back(absl::StrCat(topic, "/", i));
  return Gather(store, keys[rank], word, keys, timeout);
}

std::vector<std::string> StorePart::Gather(const std::string& key, const std::string& value,
                                           const std::vector<std::string>& keys,
                                           absl::Duration timeout) {
  return worker::Gather(*store_, key.empty() ? key : joinKey(key), value, joinKeys(keys), timeout);
}

RendezvousStore::RendezvousStore(c10::intrusive_ptr<c10d::Store> store, size_t ranks,
                                 absl::Duration patience)
    : store_(std::move(store)), ranks_(ranks), patience_(patience) {
  setTimeout(store_->getTimeout());
}

c10::intrusive_ptr<c10d::Store> RendezvousStore::clone() {
  SetNow();
  return c10::make_intrusive<RendezvousStore>(store_->clone(), ranks_, patience_);
}

void RendezvousStore::set(const std::string& key, const std::vector<uint8_t>& value) {
  SetNow();
  known_.clear();  // of an attempt before
  key_ = key;
  value_.assign(value.begin(), value.end());
  if (KeysBeside(key).empty()) SetNow();
}

std::vector<std::string> RendezvousStore::KeysBeside(const std::string& key) const {
  const size_t slash = key.rfind('/');
  const size_t begin = slash == std::string::npos ? 0 : slash + 1;
  uint32_t rank = 0;
  if (!absl::SimpleAtoi(absl::string_view(key).substr(begin), &rank) || rank >= ranks_) return {};
  std::vector<std::string> keys;
  for (size_t i = 0; i < ranks_; ++i) keys.push_back(absl::StrCat(key.substr(0, begin), i));
  return keys;
}

void RendezvousStore::SetNow() {
  const std::string key = std::exchange(key_, "");
  if (!key.empty()) store_->set(key, value_);
}

void RendezvousStore::Fetch(const std::string& key, std::chrono::milliseconds timeout) {
  if (known_.contains(key)) return;
  const std::vector<std::string> keys = KeysBeside(key);
  if (keys.empty()) {
    SetNow();
    return store_->wait({key}, timeout);
  }
  const std::vector<std::string> values =
      Gather(*store_, std::exchange(key_, ""), value_, keys, patience_);
  for (size_t i = 0; i < keys.size(); ++i) known_[keys[i]] = values[i];
}

std::vector<uint8_t> RendezvousStore::get(const std::string& key) {
  Fetch(key, getTimeout());
  const auto found = known_.find(key);
  if (found == known_.end()) return store_->get(key);
  return {found->second.begin(), found->second.end()};
}

void RendezvousStore::wait(const std::vector<std::string>& keys) { wait(keys, getTimeout()); }

void RendezvousStore::wait(const std::vector<std::string>& keys,
                           const std::chrono::milliseconds& timeout) {
  for (const std::string& key : keys) Fetch(key, timeout);
}

std::vector<uint8_t> RendezvousStore::compareSet(const std::string& key,
                                                 const std::vector<uint8_t>& expected,
                                                 const std::vector<uint8_t>& desired) {
  SetNow();
  return store_->compareSet(key, expected, desired);
}

int64_t RendezvousStore::add(const std::string& key, int64_t amount) {
  SetNow();
  return store_->add(key, amount);
}

bool RendezvousStore::deleteKey(const std::string& key) {
  SetNow();
  return store_->deleteKey(key);
}

bool RendezvousStore::check(const std::vector<std::string>& keys) {
  SetNow();
  return store_->check(keys);
}

int64_t RendezvousStore::getNumKeys() {
  SetNow();
  return store_->getNumKeys();
}

}  // namespace ddprun::worker
