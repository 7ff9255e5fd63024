#include "launcher/core/supervisor/last_generation.h"

#include "base/check.h"

namespace ddprun::launcher {

void LastGeneration::OnEmpty(const GroupEmpty& event) {
  step_ = event.step;
  time_ = event.time;
}

void LastGeneration::Succeed(rendezvous::Generation generation) {
  DDPRUN_CHECK(generation > stores_ended_, "workers that end well leave their stores to others");
  succeeded_ = generation;
}

bool LastGeneration::Withdraw(rendezvous::Generation generation) {
  if (!succeeded() || succeeded_ != generation) return false;
  succeeded_ = rendezvous::Generation();
  return true;
}

bool LastGeneration::EndStores(rendezvous::Generation generation) {
  if (stores_ended_ == generation) return false;
  DDPRUN_CHECK(generation > stores_ended_, "generations end one after the other");
  stores_ended_ = generation;
  return true;
}

}  // namespace ddprun::launcher
