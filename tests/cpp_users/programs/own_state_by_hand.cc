// Samples from an ElasticSampler; the program saves the sampler's position as own state.
// EXPECT: equal within 1e-4
// RUN: %out
#include <ddprun/checkpointed_state.h>
#include <ddprun/checkpointer.h>
#include <ddprun/context.h>
#include <ddprun/distributed_data_parallel.h>
#include <ddprun/elastic_sampler.h>
#include <ddprun/fused_optimizers.h>
#include <ddprun/run_worker.h>
#include <ddprun/status_macros.h>
#include <torch/torch.h>

struct Place : ddprun::CheckpointedState {
  Tensors SaveState() const override {
    const auto epoch = static_cast<int64_t>(at.epoch);
    return {{"place", torch::tensor({epoch, static_cast<int64_t>(at.consumed)})}};
  }
  absl::Status RestoreState(const Tensors& state) override {
    at.epoch = state.at("place")[0].item<int64_t>();
    at.consumed = state.at("place")[1].item<int64_t>();
    return absl::OkStatus();
  }
  ddprun::SamplerState at;
};

absl::Status Train(int /*argc*/, char** argv) {
  DDPRUN_ASSIGN_OR_RETURN(const auto context, ddprun::Context::Create());
  torch::manual_seed(1);
  torch::nn::Linear net(6, 1);
  const torch::Tensor x = torch::randn({240, 6});
  DDPRUN_ASSIGN_OR_RETURN(const auto ddp,
                          ddprun::DistributedDataParallel::Create(net.ptr(), *context));
  ddprun::FusedSGD sgd(ddp->parameters(), torch::optim::SGDOptions(0.02).momentum(0.9));
  ddprun::Checkpointer checkpointer(*context, net.ptr(), sgd, {.directory = argv[1]});
  DDPRUN_ASSIGN_OR_RETURN(auto sampler,
                          ddprun::ElasticSampler::Create(240, {.seed = 3, .global_batch = 12},
                                                         context->rank(), context->world_size()));
  Place place;
  place.at = sampler.state();
  checkpointer.Add("sampler", place);
  DDPRUN_ASSIGN_OR_RETURN(const auto resumed, checkpointer.Restore());
  DDPRUN_RETURN_IF_ERROR(sampler.Restore(place.at));
  for (int64_t step = resumed.value_or(ddprun::TrainingProgress()).step + 1; step <= 600; ++step) {
    const ddprun::StepShare share = sampler.Deal();
    const torch::Tensor batch = x.index_select(0, torch::tensor(share.indices));
    ddp->ZeroGrad();
    const torch::Tensor guess = ddp->Forward([&] { return net->forward(batch); });
    torch::nn::functional::mse_loss(guess, batch.sum(1, true)).backward();
    sgd.step();
    DDPRUN_RETURN_IF_ERROR(sampler.Commit(share));
    place.at = sampler.state();
    if (step % 10 == 0) DDPRUN_RETURN_IF_ERROR(checkpointer.Save({.step = step}));
    if (context->is_main())
      std::printf("step %ld of generation %lu\n", step, context->generation());
  }
  return absl::OkStatus();
}

int main(int argc, char** argv) { return setlinebuf(stdout), ddprun::RunWorker(argc, argv, Train); }
