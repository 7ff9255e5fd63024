// An encoder over sequences of words; it must repeat the first word at the end.
// EXPECT: equal within 1e-4
#include <ddprun/session.h>
#include <torch/torch.h>

namespace nn = torch::nn;

struct EncoderImpl : nn::Module {
  torch::Tensor forward(const torch::Tensor& words) {
    const torch::Tensor x = embedding(words) + places;
    return head(encoder(x.transpose(0, 1)).select(0, 0));
  }
  nn::Embedding embedding = register_module("embedding", nn::Embedding(10, 16));
  torch::Tensor places = register_parameter("places", torch::randn({6, 16}) * 0.1);
  nn::TransformerEncoder encoder = register_module(
      "encoder", nn::TransformerEncoder(nn::TransformerEncoderOptions(
                     nn::TransformerEncoderLayerOptions(16, 2).dim_feedforward(32).dropout(0), 2)));
  nn::Linear head = register_module("head", nn::Linear(16, 10));
};
TORCH_MODULE(Encoder);

int main(int argc, char** argv) {
  const auto train = [](ddprun::Session& session) {
    const torch::Tensor words = torch::randint(0, 10, {96, 6});
    auto model = session.Prepare(Encoder(), ddprun::Sgd{.momentum = 0.9},
                                 ddprun::TensorDataset(words, words.select(1, 5)));
    for (const ddprun::Batch& batch : session.Batches()) {
      session.Backward(nn::functional::cross_entropy(model(batch.inputs), batch.targets));
      session.Step();
    }
  };
  return ddprun::RunSession(
      argc, argv,
      {.name = "transformer", .training = {.epochs = 4, .learning_rate = 0.02, .warmup_steps = 5}},
      train);
}
