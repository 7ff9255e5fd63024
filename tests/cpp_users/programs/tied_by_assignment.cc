// Weights that were meant to be tied: the layer has registered its own before.
// EXPECT: worker of rank [01]: .*parameter 'head.weight' got no gradient in the backward pass
// EXPECT: if the loss doesn't always use it, set find_unused_parameters
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

struct BigramsImpl : nn::Module {
  BigramsImpl() { head->weight = embedding->weight; }
  torch::Tensor forward(const torch::Tensor& words) { return head(embedding(words)); }
  nn::Embedding embedding = register_module("embedding", nn::Embedding(20, 8));
  nn::Linear head = register_module("head", nn::Linear(nn::LinearOptions(8, 20).bias(false)));
};
TORCH_MODULE(Bigrams);

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "tied_by_assignment"}, [](ddprun::Session& session) {
        const torch::Tensor text = torch::arange(96).remainder(20);
        auto model = session.Prepare(Bigrams(), ddprun::AdamW(),
                                     ddprun::TensorDataset(text, (text + 1).remainder(20)));
        for (const ddprun::Batch& batch : session.Batches()) {
          session.Backward(nn::functional::cross_entropy(model(batch.inputs), batch.targets));
          session.Step();
        }
      });
}
