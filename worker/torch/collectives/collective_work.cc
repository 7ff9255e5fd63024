#include "worker/torch/collectives/collective_work.h"

#include <utility>

namespace ddprun::worker {

CollectiveWork::CollectiveWork(int rank, c10d::OpType type, std::vector<at::Tensor> result)
    : c10d::Work(rank, type),
      result_(std::move(result)),
      future_(
          c10::make_intrusive<c10::ivalue::Future>(c10::ListType::create(c10::TensorType::get()))) {
}

// The future first: a thread that has waited for the work may ask the future for its value.
void CollectiveWork::Complete() {
  future_->markCompleted(c10::IValue(result_));
  finish();
}

void CollectiveWork::Fail(const std::exception_ptr& error) {
  future_->setError(error);
  finish(error);
}

bool CollectiveWork::isSuccess() const { return future_->completed() && !future_->hasError(); }

std::exception_ptr CollectiveWork::exception() const {
  return future_->hasError() ? future_->exception_ptr() : nullptr;
}

}  // namespace ddprun::worker
