// Trains a small GPT to continue a text, byte by byte: a model, its data and a loss; the rest is
// the Session's. Every Debian has a text for it.
//   ddprun --nproc_per_node 2 --no_python char_gpt --steps 500 --output_dir out
#include <ATen/ops/linear.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/init.h>
#include <torch/nn/modules.h>
#include <torch/types.h>

#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "ddprun/activation_checkpoint.h"
#include "ddprun/session.h"

namespace ddprun::examples {
namespace {

using torch::nn::Embedding;
using torch::nn::LayerNorm;
using torch::nn::LayerNormOptions;
using torch::nn::Linear;
namespace functional = torch::nn::functional;

constexpr double kWeightDeviation = 0.02;  // GPT-2's
constexpr int64_t kEvaluationBatch = 64;

struct GptOptions {
  int64_t layers = 4;
  int64_t width = 144;  // of each position, a multiple of heads
  int64_t heads = 4;
  int64_t context_length = 64;  // bytes that the model sees
};

// Computes what the module's own forward() does, but, as in Python, in one kernel with the bias.
torch::Tensor Apply(const Linear& linear, const torch::Tensor& x) {
  return at::linear(x, linear->weight, linear->bias);
}

// GPT-2's block: attention and perceptron, each behind a norm, and added to the residual stream.
struct BlockImpl : torch::nn::Module {
  BlockImpl(int64_t width, int64_t head_count) : heads(head_count) {
    attention_norm = register_module("attention_norm", LayerNorm(LayerNormOptions({width})));
    attention_in = register_module("attention_in", Linear(width, 3 * width));
    attention_out = register_module("attention_out", Linear(width, width));
    mlp_norm = register_module("mlp_norm", LayerNorm(LayerNormOptions({width})));
    mlp_in = register_module("mlp_in", Linear(width, 4 * width));
    mlp_out = register_module("mlp_out", Linear(4 * width, width));
  }

  // x: [batch, length, width]; so is what it returns.
  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor y = x + Attention(attention_norm(x));
    return y + Apply(mlp_out, torch::gelu(Apply(mlp_in, mlp_norm(y))));
  }

  torch::Tensor Attention(const torch::Tensor& x) {
    const int64_t batch = x.size(0);
    const int64_t length = x.size(1);
    const int64_t width = x.size(2);
    // [query, key, value][batch, head, length, width of a head]
    const std::vector<torch::Tensor> parts = Apply(attention_in, x)
                                                 .view({batch, length, 3, heads, width / heads})
                                                 .permute({2, 0, 3, 1, 4})
                                                 .unbind(0);
    const torch::Tensor mixed =
        at::scaled_dot_product_attention(parts[0], parts[1], parts[2], /*attn_mask=*/{},
                                         /*dropout_p=*/0, /*is_causal=*/true);
    return Apply(attention_out, mixed.transpose(1, 2).reshape({batch, length, width}));
  }

  int64_t heads;
  LayerNorm attention_norm{nullptr}, mlp_norm{nullptr};
  Linear attention_in{nullptr}, attention_out{nullptr}, mlp_in{nullptr}, mlp_out{nullptr};
};
TORCH_MODULE(Block);

struct GptImpl : torch::nn::Module {
  GptImpl(const GptOptions& options, int64_t words, bool recompute_blocks)
      : recompute(recompute_blocks) {
    tokens = register_module("tokens", Embedding(words, options.width));
    positions = register_module("positions", Embedding(options.context_length, options.width));
    for (int64_t i = 0; i < options.layers; ++i) {
      blocks.push_back(
          register_module(absl::StrCat("block", i), Block(options.width, options.heads)));
    }
    norm = register_module("norm", LayerNorm(LayerNormOptions({options.width})));
    head = register_module("head", Linear(options.width, words));
    Initialize();
  }

  void Initialize() {
    const torch::NoGradGuard no_grad;
    for (const std::shared_ptr<torch::nn::Module>& module : modules(/*include_self=*/false)) {
      if (auto* linear = module->as<torch::nn::LinearImpl>()) {
        torch::nn::init::normal_(linear->weight, 0, kWeightDeviation);
        torch::nn::init::zeros_(linear->bias);
      } else if (auto* embedding = module->as<torch::nn::EmbeddingImpl>()) {
        torch::nn::init::normal_(embedding->weight, 0, kWeightDeviation);
      }
    }
  }

  // words: [batch, length] int64. Returns logits of each next word [batch, length, words].
  torch::Tensor forward(const torch::Tensor& words) {
    torch::Tensor x = tokens(words) + positions->weight.slice(0, 0, words.size(1));
    for (Block& block : blocks) {
      if (!recompute || !is_training()) {
        x = block(x);
      } else {
        x = CheckpointActivations(
            [block](const torch::Tensor& in) mutable { return block->forward(in); }, x);
      }
    }
    return Apply(head, norm(x));
  }

  const bool recompute;
  Embedding tokens{nullptr}, positions{nullptr};
  std::vector<Block> blocks;
  LayerNorm norm{nullptr};
  Linear head{nullptr};
};
TORCH_MODULE(Gpt);

// A text as tokens: each byte's number among the different bytes of the text, in order.
struct Text {
  torch::Tensor tokens;  // [n] int64
  int64_t words = 0;     // how many different ones there are
};

absl::StatusOr<Text> ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream contents;
  if (!file.is_open() || !(contents << file.rdbuf())) {
    return absl::NotFoundError(
        absl::StrCat("can't read the text '", path, "': give --data a file of some 10,000 bytes"));
  }
  const std::string text = contents.str();
  std::vector<int64_t> number(256, -1);
  for (const char c : text) number[static_cast<unsigned char>(c)] = 0;
  int64_t words = 0;
  for (int64_t& n : number) {
    if (n == 0) n = words++;
  }
  std::vector<int64_t> tokens;
  tokens.reserve(text.size());
  for (const char c : text) tokens.push_back(number[static_cast<unsigned char>(c)]);
  return Text{.tokens = torch::tensor(tokens), .words = words};
}

// A sample is a window of context_length bytes and the byte after each of them.
Batch Divide(const torch::Tensor& windows) {
  const int64_t length = windows.size(1) - 1;
  return {.inputs = windows.slice(1, 0, length), .targets = windows.slice(1, 1)};
}

Dataset TrainingData(const torch::Tensor& windows) {
  const auto load = [windows](const std::vector<int64_t>& samples, const at::Generator&) {
    return Divide(windows.index_select(0, torch::tensor(samples)));
  };
  return {.size = windows.size(0), .load = load, .samples_name = "windows"};
}

torch::Tensor LossOf(const torch::Tensor& logits, const torch::Tensor& words) {
  return functional::cross_entropy(logits.view({-1, logits.size(-1)}), words.reshape({-1}));
}

// Mean loss over windows that don't overlap; every rank looks at its part.
Evaluation HeldOutLoss(Session& session, SessionModel<GptImpl> gpt, const torch::Tensor& windows) {
  const auto figure = [&session, gpt, windows]() mutable {
    const torch::Tensor mine = session.OwnRows(windows.size(0));
    const torch::Device device = session.device();
    torch::Tensor sum = torch::zeros({}, torch::TensorOptions(device).dtype(torch::kDouble));
    for (int64_t begin = 0; begin < mine.size(0); begin += kEvaluationBatch) {
      const torch::Tensor rows = mine.slice(0, begin, begin + kEvaluationBatch);
      const Batch batch = Divide(windows.index_select(0, rows));
      const torch::Tensor loss = LossOf(gpt(batch.inputs.to(device)), batch.targets.to(device));
      sum += loss * static_cast<double>(rows.size(0));
    }
    return session.SumOverRanks(sum) / static_cast<double>(windows.size(0));
  };
  const auto describe = [count = windows.size(0)](double loss) {
    return absl::StrFormat("loss %.4f on %d held-out windows", loss, count);
  };
  return {.name = "loss",
          .figure = figure,
          .describe = describe,
          .better = ddprun::BetterFigure::kLower};
}

absl::Status CheckShape(const GptOptions& shape) {
  if (shape.width % shape.heads == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "--width ", shape.width, " is no multiple of --heads ", shape.heads, "; give one that is"));
}

absl::Status CheckLength(const Text& text, const std::string& path, const GptOptions& shape) {
  // The tenth that is held out must have at least one window.
  const int64_t least = 10 * (shape.context_length + 2);
  if (text.tokens.size(0) >= least) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("the text '", path, "' has ", text.tokens.size(0),
                                                 " bytes; --context_length ", shape.context_length,
                                                 " needs at least ", least));
}

void Train(Session& session, const GptOptions& shape) {
  const TrainingOptions& options = session.options();
  OrThrow(CheckShape(shape));
  const Text text = OrThrow(ReadText(options.data));
  OrThrow(CheckLength(text, options.data, shape));
  const int64_t window = shape.context_length + 1;
  const int64_t learned = text.tokens.size(0) * 9 / 10;
  auto gpt = session.Prepare(Gpt(shape, text.words, options.gradient_checkpointing), AdamW(),
                             TrainingData(text.tokens.slice(0, 0, learned).unfold(0, window, 1)));
  session.EvaluateWith(HeldOutLoss(
      session, gpt, text.tokens.slice(0, learned).unfold(0, window, shape.context_length)));
  for (const Batch& batch : session.Batches()) {
    session.Backward(LossOf(gpt(batch.inputs), batch.targets));
    session.Step();
  }
}

}  // namespace
}  // namespace ddprun::examples

int main(int argc, char** argv) {
  using namespace ddprun::examples;
  GptOptions shape;
  return ddprun::RunSession(
      argc, argv,
      {.name = "char_gpt",
       .training = {.data = "/usr/share/common-licenses/GPL-3",
                    .batch_size = 8,
                    .lr_schedule = "cosine",
                    .weight_decay = 0.01,
                    .checkpoint_every = 100},
       .introduction = "Trains a small GPT on a text, byte by byte, on as many workers as there "
                       "are:\n  ddprun --nproc_per_node 2 --no_python char_gpt --steps 500\n",
       .uses = {.data = "Any text; a tenth of it is held out.",
                .gradient_checkpointing = true,
                .sync_batch_norm = true},
       .add_options =
           [&shape](ddprun::OptionTable& table) {
             table.Integer("layers", {1, 1000}, &shape.layers, "Blocks.");
             table.Integer("width", {1, 100000}, &shape.width,
                           "Values a position; a multiple of heads.");
             table.Integer("heads", {1, 1000}, &shape.heads, "Of attention.");
             table.Integer("context_length", {1, 100000}, &shape.context_length,
                           "Bytes of a window.");
           }},
      [&shape](ddprun::Session& session) { Train(session, shape); });
}
