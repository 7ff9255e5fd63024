#ifndef DDPRUN_WORKER_INCLUDE_DDPRUN_ANY_OPTIMIZER_H_
#define DDPRUN_WORKER_INCLUDE_DDPRUN_ANY_OPTIMIZER_H_

#include <c10/util/Type.h>
#include <torch/optim/optimizer.h>

#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>
#include <vector>

#include "ddprun/optimizer_kind.h"

namespace ddprun {

// Any optimizer of LibTorch's, or a class of the program's own, for Session::Prepare and Add:
//
//   session.Prepare(Net(), ddprun::OptimizerOf<torch::optim::RMSprop>(
//                              torch::optim::RMSpropOptions().alpha(0.9)), data);
//
// --learning_rate overrides the learning rate of `options`; their other values are used, weight
// decay too (--weight_decay is for AdamW and Sgd). A class of the program's own derives its options
// from torch::optim::OptimizerCloneableOptions, with get_lr(), set_lr(), serialize() and a
// constructor (double rate), and writes its state in save() and load(), as LibTorch's classes do:
//
//   void save(OutputArchive& to) const override {
//     torch::optim::serialize<LionState, LionOptions>(to, *this);
//   }
//   void load(InputArchive& from) override {
//     torch::optim::serialize<LionState, LionOptions>(from, *this);
//   }
//
// Not with a zero_stage, which knows only AdamW and Sgd. An optimizer that calls a closure several
// times a step, as LBFGS does, is stepped by Session::Step with a function.
template <typename Optimizer, typename Options>
AnyOptimizer OptimizerOf(const Options& options) {
  static_assert(std::is_base_of_v<torch::optim::Optimizer, Optimizer>,
                "OptimizerOf takes a class that derives from torch::optim::Optimizer");
  static_assert(std::is_base_of_v<torch::optim::OptimizerOptions, Options>,
                "its options derive from torch::optim::OptimizerCloneableOptions<Options>");
  static_assert(std::is_constructible_v<Optimizer, std::vector<torch::optim::OptimizerParamGroup>,
                                        const Options&>,
                "the optimizer needs a constructor (std::vector<OptimizerParamGroup>, Options)");
  AnyOptimizer any;
  any.name = c10::demangle(typeid(Optimizer).name());
  any.make = [options](const std::vector<AnyOptimizer::Group>& groups) {
    std::vector<torch::optim::OptimizerParamGroup> all;
    for (const AnyOptimizer::Group& group : groups) {
      auto own = std::make_unique<Options>(options);
      own->set_lr(group.learning_rate);
      all.emplace_back(group.parameters, std::move(own));
    }
    return std::make_unique<Optimizer>(std::move(all), options);
  };
  return any;
}

}  // namespace ddprun

#endif  // DDPRUN_WORKER_INCLUDE_DDPRUN_ANY_OPTIMIZER_H_
