#include "launcher/os/python_module.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/text.h"
#include "launcher/os/files.h"

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

namespace {

namespace fs = std::filesystem;

constexpr size_t kFoldersMax = 64;   // searched for a module
constexpr size_t kEntriesMax = 500;  // of one folder
constexpr size_t kLevelsMax = 8;     // from a folder up to its repository's root
constexpr size_t kFoldersShown = 3;

// The module's name at the beginning of `words`, "mymodels.vit"; "" = none.
std::string ModuleAt(absl::string_view words) {
  const auto end = std::find_if_not(words.begin(), words.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.';
  });
  const absl::string_view name(words.data(), static_cast<size_t>(end - words.begin()));
  if (absl::StartsWith(name, ".") || absl::StrContains(name, "..")) return "";
  return std::string(absl::StripSuffix(name, "."));
}

// The module that Python didn't find, of its last line that says so; "" = none does. An import
// names the part that is missing ("No module named 'a.b'": there is an a); python3 -m of a
// module has no quotes.
std::string MissingModule(absl::string_view words) {
  const auto after = [words](absl::string_view sign, size_t at) {
    return at == absl::string_view::npos ? "" : ModuleAt(words.substr(at + sign.size()));
  };
  constexpr absl::string_view kImport = "ModuleNotFoundError: No module named '";
  if (std::string name = after(kImport, words.rfind(kImport)); !name.empty()) return name;
  constexpr absl::string_view kStart = ": No module named ";
  const size_t at = words.rfind(kStart);
  if (at == absl::string_view::npos) return "";
  const size_t line = words.rfind('\n', at) + 1;  // 0 where there is none
  const std::string interpreter = BaseName(std::string(words.substr(line, at - line)));
  return absl::StartsWith(interpreter, "python") ? after(kStart, at) : "";
}

bool Exists(const std::string& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

bool IsFolder(const std::string& path) {
  std::error_code ignored;
  return fs::is_directory(path, ignored);
}

// A package without an __init__.py counts where a file of Python lies in it: a folder "datasets"
// that holds images is no module.
bool IsPackage(const std::string& folder) {
  if (Exists(folder + "/__init__.py")) return true;
  if (!IsFolder(folder)) return false;
  const std::vector<std::string> names = NamesIn(folder, kEntriesMax);
  return std::any_of(names.begin(), names.end(),
                     [](const std::string& name) { return absl::EndsWith(name, ".py"); });
}

bool HasModule(const std::string& folder, const std::string& module) {
  return Exists(absl::StrCat(folder, "/", module, ".py")) ||
         IsPackage(absl::StrCat(folder, "/", module));
}

// In the folders where pip, conda and Debian put packages.
bool EnvironmentHasModule(const std::string& prefix, const std::string& module) {
  for (const char* lib : {"/lib", "/local/lib"}) {
    for (const std::string& name : NamesIn(prefix + lib, kEntriesMax)) {
      if (!absl::StartsWith(name, "python3")) continue;
      for (const char* packages : {"/site-packages", "/dist-packages"}) {
        const std::string path = absl::StrCat(prefix, lib, "/", name, packages, "/", module);
        if (Exists(path) || Exists(path + ".py")) return true;
      }
    }
  }
  return false;
}

// "; /opt/venv/bin/python3 ($VIRTUAL_ENV) has it: …"; "" = no other active Python has it.
std::string InOtherPython(const PythonStart& start, const std::string& module) {
  std::vector<std::pair<std::string, std::string>> others;  // prefix, where it is from
  for (const char* variable : {"VIRTUAL_ENV", "CONDA_PREFIX"}) {
    const std::string prefix = start.environment(variable).value_or("");
    if (!prefix.empty()) others.emplace_back(prefix, absl::StrCat("$", variable));
  }
  const std::string path = start.environment("PATH").value_or("");
  for (const absl::string_view folder : absl::StrSplit(path, ':')) {
    if (!absl::EndsWith(folder, "/bin") || !Exists(absl::StrCat(folder, "/python3"))) continue;
    others.emplace_back(folder.substr(0, folder.size() - 4), "PATH");
    break;
  }
  for (const auto& [prefix, from] : others) {
    const std::string other = prefix + "/bin/python3";
    if (other == start.python || !Exists(other) || !EnvironmentHasModule(prefix, module)) continue;
    return absl::StrCat("; ", other, " (", from, ") has it: export PYTHON_EXEC=", other,
                        " runs it with that one");
  }
  return "";
}

void AddOnce(const std::string& folder, std::vector<std::string>* folders) {
  if (folders->size() < kFoldersMax &&
      std::find(folders->begin(), folders->end(), folder) == folders->end()) {
    folders->push_back(folder);
  }
}

// Absolute, without "." and "..".
std::string Absolute(const std::string& path, const std::string& folder) {
  const std::string whole = (fs::path(folder) / path).lexically_normal().string();
  return whole.size() > 1 ? std::string(absl::StripSuffix(whole, "/")) : whole;
}

std::string ParentOf(const std::string& path) { return fs::path(path).parent_path().string(); }

// Where a project begins: a repository, or what pip can install.
bool IsRoot(const std::string& folder) {
  for (const char* sign : {"/.git", "/.hg", "/pyproject.toml", "/setup.py", "/setup.cfg"}) {
    if (Exists(folder + sign)) return true;
  }
  return false;
}

// `folder` and those above it up to its project's root; `folder` alone where it is in none.
std::vector<std::string> UpToTheRoot(const std::string& folder) {
  std::vector<std::string> folders = {folder};
  while (!IsRoot(folders.back())) {
    const std::string parent = ParentOf(folders.back());
    if (folders.size() == kLevelsMax || parent == "/" || parent == folders.back()) return {folder};
    folders.push_back(parent);
  }
  return folders;
}

// Folders around a start, by how likely a module of the user's own lies in them.
struct Places {
  std::vector<std::string> on_path;  // Python looks there: sys.path[0] and $PYTHONPATH
  std::vector<std::string> above;    // up to the project's root, and each one's src
  std::vector<std::string> below;    // directly in one of the above
};

Places PlacesOf(const PythonStart& start) {
  Places places;
  const std::string working = Absolute(start.folder, "/");
  const std::string of_script =
      start.is_module ? working : ParentOf(Absolute(start.entry_point, working));
  AddOnce(of_script, &places.on_path);
  const std::string python_path = start.environment("PYTHONPATH").value_or("");
  for (const absl::string_view folder : absl::StrSplit(python_path, ':', absl::SkipEmpty())) {
    AddOnce(Absolute(std::string(folder), working), &places.on_path);
  }
  for (const std::string& from : {of_script, working}) {
    for (const std::string& folder : UpToTheRoot(from)) {
      AddOnce(folder, &places.above);
      if (IsFolder(folder + "/src")) AddOnce(folder + "/src", &places.above);
    }
  }
  const std::vector<std::string> around = places.above;
  for (const std::string& folder : around) {
    for (const std::string& name : NamesIn(folder, kEntriesMax)) {
      const std::string path = absl::StrCat(folder, "/", name);
      if (name.front() != '.' && IsFolder(path)) AddOnce(path, &places.below);
    }
  }
  return places;
}

// "; it lies in /repo, where this Python doesn't look"; "" = it is in none of the folders.
std::string InFolder(const std::vector<std::string>& folders, const Places& places,
                     const std::string& module) {
  for (const std::string& folder : folders) {
    const bool looked =
        std::find(places.on_path.begin(), places.on_path.end(), folder) != places.on_path.end();
    if (looked || !HasModule(folder, module)) continue;
    const std::string project = BaseName(folder) == "src" ? ParentOf(folder) : folder;
    const bool installs = Exists(project + "/pyproject.toml") || Exists(project + "/setup.py");
    return absl::StrCat("; it lies in ", folder, ", where this Python doesn't look",
                        installs ? absl::StrCat(", of the project ", project) : "");
  }
  return "";
}

// The modules of a folder, by the names of files.
std::vector<std::string> ModulesIn(const std::string& folder) {
  std::vector<std::string> modules;
  for (const std::string& name : NamesIn(folder, kEntriesMax)) {
    if (absl::EndsWith(name, ".py")) {
      modules.push_back(name);
    } else if (name.find('.') == std::string::npos && IsPackage(absl::StrCat(folder, "/", name))) {
      modules.push_back(name + ".py");
    }
  }
  return modules;
}

// "; /repo has mymodels: is the name misspelled?"; "" = no name is near.
std::string NearMiss(const std::vector<std::string>& folders, const std::string& module) {
  for (const std::string& folder : folders) {
    // With the suffix, as for scripts: of "vti" and "vit" two letters of three differ.
    const std::string near = NearestWord(module + ".py", ModulesIn(folder));
    if (!near.empty()) {
      return absl::StrCat("; ", folder, " has ", absl::StripSuffix(near, ".py"),
                          ": is the name misspelled?");
    }
  }
  return "";
}

// The fact for a module that is missing in a package which Python did find.
std::string InPackage(const Places& places, const std::string& package, const std::string& part) {
  const std::string path = fs::path(absl::StrJoin(absl::StrSplit(package, '.'), "/")).string();
  for (const std::string& folder : places.on_path) {
    const std::string found = absl::StrCat(folder, "/", path);
    if (Exists(found + ".py")) {
      return absl::StrCat("; ", found, ".py is imported as ", package,
                          ", and hides a package of that name");
    }
    if (!IsPackage(found)) continue;
    const std::string near = NearMiss({found}, part);
    return near.empty() ? absl::StrCat("; ", package, " is ", found) : near;
  }
  return absl::StrCat("; its ", package, " has no part ", part);
}

}  // namespace

std::string MissingModuleFact(absl::string_view words, const PythonStart& start) {
  const std::string module = MissingModule(words);
  if (module.empty()) return "";
  const std::string fact =
      absl::StrCat("module: ", start.python, " ran the script, and has no ", module);
  std::string where = InOtherPython(start, module.substr(0, module.find('.')));
  if (!where.empty()) return fact + where;
  const Places places = PlacesOf(start);
  // Python names the part that is missing: of 'a.b' there is an a.
  if (const size_t dot = module.rfind('.'); dot != std::string::npos) {
    return fact + InPackage(places, module.substr(0, dot), module.substr(dot + 1));
  }
  const absl::string_view package = PackageOfModule(module);
  where = InFolder(places.above, places, module);
  if (where.empty() && !package.empty()) {
    where = absl::StrCat("; PyPI's package ", package, " has it");
  }
  if (where.empty()) where = InFolder(places.below, places, module);
  if (where.empty()) where = NearMiss(places.on_path, module);
  if (where.empty()) where = NearMiss(places.above, module);
  if (!where.empty()) return fact + where;
  const auto last =
      places.above.begin() + static_cast<ptrdiff_t>(std::min(kFoldersShown, places.above.size()));
  return absl::StrCat(fact, "; it isn't near the script either (",
                      absl::StrJoin(places.above.begin(), last, ", "), ")");
}

}  // namespace ddprun::launcher
