#include "worker/torch/collectives/message_backend.h"

#include <algorithm>
#include <utility>

namespace ddprun::worker {

MessageBackend::MessageBackend(c10::intrusive_ptr<c10d::Backend> gloo)
    : Backend(gloo->getRank(), gloo->getSize()), gloo_(std::move(gloo)) {}

c10::intrusive_ptr<c10d::Work> MessageBackend::send(std::vector<at::Tensor>& tensors, int to,
                                                    int tag) {
  return Keep(gloo_->send(tensors, to, tag));
}

c10::intrusive_ptr<c10d::Work> MessageBackend::recv(std::vector<at::Tensor>& tensors, int from,
                                                    int tag) {
  return Keep(gloo_->recv(tensors, from, tag));
}

c10::intrusive_ptr<c10d::Work> MessageBackend::Keep(c10::intrusive_ptr<c10d::Work> work) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (aborted_) work->abort();
  works_.erase(
      std::remove_if(works_.begin(), works_.end(), [](const auto& weak) { return weak.expired(); }),
      works_.end());
  works_.emplace_back(work);
  return work;
}

void MessageBackend::abort() {
  const std::lock_guard<std::mutex> lock(mutex_);
  aborted_ = true;
  for (const auto& weak : works_) {
    if (const c10::intrusive_ptr<c10d::Work> work = weak.lock()) work->abort();
  }
}

}  // namespace ddprun::worker
