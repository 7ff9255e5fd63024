// No weight decay for biases and norms, a tenth of the rate for the embedding, as GPTs are trained.
// EXPECT: equal
#include <ddprun/session.h>
#include <torch/torch.h>

#include <vector>

namespace nn = torch::nn;

struct BagImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& words) { return head(norm(embedding(words).mean(1))); }
  nn::Embedding embedding = register_module("embedding", nn::Embedding(12, 8));
  nn::LayerNorm norm = register_module("norm", nn::LayerNorm(nn::LayerNormOptions({8})));
  nn::Linear head = register_module("head", nn::Linear(8, 3));
};
TORCH_MODULE(Bag);

void Train(ddprun::Session& session) {
  const torch::Tensor words = torch::randint(0, 12, {96, 4});
  Bag bag;
  std::vector<torch::Tensor> plain;
  for (const auto& parameter : bag->named_parameters()) {
    if (parameter.value().dim() == 1) plain.push_back(parameter.value());
  }
  auto model =
      session.Prepare(bag, ddprun::AdamW(), ddprun::TensorDataset(words, words.sum(1).remainder(3)),
                      {{.parameters = plain, .weight_decay = 0},
                       {.parameters = bag->embedding->parameters(), .learning_rate_factor = 0.1}});
  for (const ddprun::Batch& batch : session.Batches()) {
    session.Backward(nn::functional::cross_entropy(model(batch.inputs), batch.targets));
    session.Step();
  }
}

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "parameter_groups", .training = {.epochs = 4, .weight_decay = 0.1}},
      Train);
}
