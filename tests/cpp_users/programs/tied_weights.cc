// A language model whose head has the embedding's weights.
// EXPECT: equal
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

struct BigramsImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& words) {
    const torch::Tensor x = torch::tanh(mix(embedding(words)));
    return nn::functional::linear(x, embedding->weight);
  }
  nn::Embedding embedding = register_module("embedding", nn::Embedding(20, 8));
  nn::Linear mix = register_module("mix", nn::Linear(8, 8));
};
TORCH_MODULE(Bigrams);

int main(int argc, char** argv) {
  return ddprun::RunSession(
      argc, argv, {.name = "tied_weights", .training = {.epochs = 4, .learning_rate = 0.01}},
      [](ddprun::Session& session) {
        const torch::Tensor text = torch::arange(96 * 5).remainder(20).view({96, 5});
        auto model = session.Prepare(Bigrams(), ddprun::AdamW(),
                                     ddprun::TensorDataset(text, (text + 1).remainder(20)));
        for (const ddprun::Batch& batch : session.Batches()) {
          const torch::Tensor logits = model(batch.inputs);
          session.Backward(
              nn::functional::cross_entropy(logits.flatten(0, 1), batch.targets.flatten()));
          session.Step();
        }
      });
}
