#include "launcher/core/python_packages.h"

#include <algorithm>
#include <iterator>

namespace ddprun::launcher {
namespace {

struct Known {
  absl::string_view module;
  absl::string_view package;
};

// Sorted by module. A row is added only for a package whose own installation page names both.
constexpr Known kKnown[] = {
    {"Crypto", "pycryptodome"},
    {"Levenshtein", "Levenshtein"},
    {"OpenSSL", "pyOpenSSL"},
    {"PIL", "pillow"},
    {"absl", "absl-py"},
    {"accelerate", "accelerate"},
    {"albumentations", "albumentations"},
    {"attr", "attrs"},
    {"av", "av"},
    {"bitsandbytes", "bitsandbytes"},
    {"boto3", "boto3"},
    {"bs4", "beautifulsoup4"},
    {"click", "click"},
    {"cv2", "opencv-python"},
    {"datasets", "datasets"},
    {"dateutil", "python-dateutil"},
    {"deepspeed", "deepspeed"},
    {"diffusers", "diffusers"},
    {"dotenv", "python-dotenv"},
    {"einops", "einops"},
    {"evaluate", "evaluate"},
    {"faiss", "faiss-cpu"},
    {"fire", "fire"},
    {"fitz", "PyMuPDF"},
    {"flash_attn", "flash-attn"},
    {"flax", "flax"},
    {"fsspec", "fsspec"},
    {"git", "GitPython"},
    {"gymnasium", "gymnasium"},
    {"h5py", "h5py"},
    {"huggingface_hub", "huggingface_hub"},
    {"hydra", "hydra-core"},
    {"imageio", "imageio"},
    {"imblearn", "imbalanced-learn"},
    {"jax", "jax"},
    {"joblib", "joblib"},
    {"jwt", "PyJWT"},
    {"librosa", "librosa"},
    {"lightning", "lightning"},
    {"lmdb", "lmdb"},
    {"matplotlib", "matplotlib"},
    {"ml_collections", "ml-collections"},
    {"mlflow", "mlflow"},
    {"mpi4py", "mpi4py"},
    {"nltk", "nltk"},
    {"numba", "numba"},
    {"numpy", "numpy"},
    {"omegaconf", "omegaconf"},
    {"onnx", "onnx"},
    {"open_clip", "open_clip_torch"},
    {"optuna", "optuna"},
    {"orjson", "orjson"},
    {"pandas", "pandas"},
    {"peft", "peft"},
    {"polars", "polars"},
    {"psutil", "psutil"},
    {"pyarrow", "pyarrow"},
    {"pycocotools", "pycocotools"},
    {"pynvml", "nvidia-ml-py"},
    {"pytorch_lightning", "pytorch-lightning"},
    {"ray", "ray"},
    {"requests", "requests"},
    {"rich", "rich"},
    {"rouge_score", "rouge-score"},
    {"sacrebleu", "sacrebleu"},
    {"safetensors", "safetensors"},
    {"scipy", "scipy"},
    {"seaborn", "seaborn"},
    {"sentencepiece", "sentencepiece"},
    {"serial", "pyserial"},
    {"skimage", "scikit-image"},
    {"sklearn", "scikit-learn"},
    {"soundfile", "soundfile"},
    {"spacy", "spacy"},
    {"tensorboard", "tensorboard"},
    {"tensorboardX", "tensorboardX"},
    {"tensorflow", "tensorflow"},
    {"tiktoken", "tiktoken"},
    {"timm", "timm"},
    {"tokenizers", "tokenizers"},
    {"torch", "torch"},
    {"torch_geometric", "torch_geometric"},
    {"torchaudio", "torchaudio"},
    {"torchmetrics", "torchmetrics"},
    {"torchvision", "torchvision"},
    {"tqdm", "tqdm"},
    {"transformers", "transformers"},
    {"tree", "dm-tree"},
    {"triton", "triton"},
    {"trl", "trl"},
    {"typer", "typer"},
    {"umap", "umap-learn"},
    {"wandb", "wandb"},
    {"webdataset", "webdataset"},
    {"xformers", "xformers"},
    {"yaml", "PyYAML"},
    {"zmq", "pyzmq"},
};

constexpr bool IsSorted() {
  return std::is_sorted(std::begin(kKnown), std::end(kKnown),
                        [](const Known& a, const Known& b) { return a.module < b.module; });
}
static_assert(IsSorted());

}  // namespace

absl::string_view PackageOfModule(absl::string_view module) {
  const Known* const found = std::lower_bound(
      std::begin(kKnown), std::end(kKnown), module,
      [](const Known& known, absl::string_view wanted) { return known.module < wanted; });
  return found != std::end(kKnown) && found->module == module ? found->package : "";
}

}  // namespace ddprun::launcher
