# shellcheck shell=bash
# The cached environments of LibTorch, Python's torch and the digits. Sourced after setup.sh.
# $ddprun_cache_dir comes from there.
# shellcheck disable=SC2154
# Each is made once, under $ddprun_cache_dir, and stamped with what is in it; a half-made one, or one
# of another version, is made anew.

ddprun_torch_version=2.11.0
# The oldest and the newest that PyPI has for Python 3.11.
ddprun_torch_oldest=1.13.0
ddprun_torch_newest=2.15.0
# The oldest that ddprun's Python modules are tested with.
# shellcheck disable=SC2034  # scripts/test uses it
ddprun_modules_torch_oldest=2.4.1
# With each the Python modules are tested, and the C++ runtime is built and tested.
# shellcheck disable=SC2034  # scripts/test uses it
ddprun_torches_above=(2.12.1 2.13.0 2.14.1 "$ddprun_torch_newest")
# The libraries of CUDA that these need newer than the pinned one has them.
ddprun_torches_above_libraries=(nvidia-nccl-cu13==2.30.7 nvidia-nvshmem-cu13==3.7.2)
ddprun_accelerate_version=1.15.0
ddprun_lightning_version=2.6.6
ddprun_transformers_version=5.23.0
ddprun_mkdocs_version=1.6.1
ddprun_kubernetes_validate_version=1.37.0
ddprun_kubeflow_trainer_version=2.3.0
ddprun_kubeflow_training_version=1.9.4
ddprun_jsonpatch_version=1.47
ddprun_scikit_build_version=1.1.2
ddprun_ziglang_version=0.17.1 # as pyproject.toml says, which a plain "pip wheel" goes by
ddprun_auditwheel_version=6.8.2
ddprun_tensorboard_version=2.20.0
ddprun_scikit_learn_version=1.5.2
ddprun_digits_sha256=09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22

# make_environment NAME STAMP WHAT PIP-ARGUMENTS…: a virtual environment with these packages.
make_environment() {
  local name=$1 stamp=$2 what=$3 home="$ddprun_cache_dir/$1" python
  shift 3
  python=$(python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
  stamp="$stamp python=$python"
  if [ "$(cat "$home/.stamp" 2>/dev/null)" = "$stamp" ]; then
    say "$name: is there ($home)"
    return
  fi
  say "$name: installing into $home"
  note "$what"
  rm -rf "$home"
  mkdir -p "$ddprun_cache_dir"
  python3 -m venv "$home" || fail "python3 -m venv could not make $home" "is python3-venv installed?"
  # Large downloads break off now and then; what was fetched stays in pip's cache.
  "$home/bin/pip" install --disable-pip-version-check --progress-bar off "$@" ||
    "$home/bin/pip" install --disable-pip-version-check --progress-bar off "$@" ||
    fail "pip could not install: $*" "is there a network that reaches PyPI, and enough space?" \
      "$(df -h "$ddprun_cache_dir" | tail -n 1)"
  printf '%s\n' "$stamp" >"$home/.stamp"
}

# LibTorch for C++: the wheel with the two libraries that libtorch_cpu.so wants, without the rest.
ensure_libtorch() {
  make_environment libtorch "torch=$ddprun_torch_version minimal" \
    "LibTorch $ddprun_torch_version for C++: about 0.55 GB to download, 1.3 GB on disk, a minute or two" \
    --no-deps "torch==$ddprun_torch_version" nvidia-cuda-cupti==13.0.85 nvidia-cuda-runtime==13.0.96
}

# Python's torch with all that it wants: tests and benchmarks that run Python, and torchrun.
ensure_python_torch() {
  make_environment py-full "torch=$ddprun_torch_version full" \
    "Python's torch $ddprun_torch_version and torchrun: about 2.6 GB to download, 4.8 GB on disk, some minutes" \
    "torch==$ddprun_torch_version" numpy
}

# ensure_torch_below VERSION: a torch that is older than the pinned one, with all that it wants, in the environment torch-VERSION.
ensure_torch_below() {
  local numpy=numpy
  # The oldest was compiled before NumPy's second interface.
  [ "$1" != "$ddprun_torch_oldest" ] || numpy='numpy<2'
  make_environment "torch-$1" "torch=$1 full" \
    "Python's torch $1: up to 2.6 GB to download, 5 GB on disk, some minutes" \
    "torch==$1" "$numpy"
}

# What builds the wheel, and auditwheel, which checks its tag; the compiler and most libraries are Debian's. ziglang has the
# symbols of other versions of glibc (cmake/OldGlibc.cmake).
ensure_wheel_builder() {
  local packages=(
    "scikit-build-core==$ddprun_scikit_build_version" "ziglang==$ddprun_ziglang_version" "auditwheel==$ddprun_auditwheel_version"
  )
  make_environment py-wheel "${packages[*]}" \
    "scikit-build-core $ddprun_scikit_build_version, ziglang and auditwheel: 100 MB to download, 450 MB on disk" "${packages[@]}"
}

# What makes a site of the documents.
ensure_mkdocs() {
  make_environment py-docs "mkdocs=$ddprun_mkdocs_version" \
    "mkdocs $ddprun_mkdocs_version: 10 MB to download" "mkdocs==$ddprun_mkdocs_version"
}

# Kubernetes' schemas, the types of JobSet and PyTorchJob, and a checker of manifests, for those of deploy/kubernetes; PyYAML
# and jsonschema come along.
ensure_kubernetes_schemas() {
  local packages=(
    "kubernetes-validate==$ddprun_kubernetes_validate_version" "jsonpatch==$ddprun_jsonpatch_version"
    "kubeflow-trainer-api==$ddprun_kubeflow_trainer_version" "kubeflow-training==$ddprun_kubeflow_training_version"
  )
  make_environment py-kubernetes "${packages[*]}" \
    "kubernetes-validate $ddprun_kubernetes_validate_version and Kubeflow's types: 20 MB to download, 230 MB on disk" \
    "${packages[@]}"
}

# make_layer NAME STAMP WHAT BELOW PIP-ARGUMENTS…: as make_environment, with the packages of the environments BELOW (names with a
# blank between them).
make_layer() {
  local name=$1 stamp=$2 what=$3 below=$4 home="$ddprun_cache_dir/$1" layer site purelib
  shift 4
  purelib='import sysconfig; print(sysconfig.get_paths()["purelib"])'
  if [ "$(cat "$home/.stamp" 2>/dev/null)" = "$stamp" ]; then
    say "$name: is there ($home)"
    return
  fi
  say "$name: installing into $home"
  note "$what"
  rm -rf "$home"
  python3 -m venv "$home" || fail "python3 -m venv could not make $home" "is python3-venv installed?"
  site=$("$home/bin/python3" -c "$purelib")
  for layer in $below; do "$ddprun_cache_dir/$layer/bin/python3" -c "$purelib"; done >"$site/layers_below.pth"
  "$home/bin/pip" install --quiet --disable-pip-version-check "$@" ||
    fail "pip could not install: $*" "is there a network that reaches PyPI?"
  printf '%s\n' "$stamp" >"$home/.stamp"
}

# ensure_torch_above VERSION: a torch that is newer than the pinned one, in the environment torch-VERSION: the wheel with NCCL and
# NVSHMEM, and the other libraries of CUDA from py-full, which has the same major version of each. libtorch_cpu.so, too, finds
# two of them beside the wheel.
# Requires: ensure_python_torch.
ensure_torch_above() {
  local home="$ddprun_cache_dir/torch-$1" cuda
  make_layer "torch-$1" "torch=$1 ${ddprun_torches_above_libraries[*]} below=$ddprun_torch_version" \
    "torch $1: about 0.8 GB to download, 1.7 GB on disk" \
    py-full --no-deps "torch==$1" "${ddprun_torches_above_libraries[@]}"
  cuda=$(echo "$ddprun_cache_dir"/py-full/lib/python3*/site-packages/nvidia/cu13)
  ln -sfn "$cuda" "$(echo "$home"/lib/python3*/site-packages/nvidia)/cu13"
}

# What launches on top of torchrun: accelerate and Lightning, with the torch of py-full.
# Requires: ensure_python_torch.
ensure_python_launchers() {
  make_layer py-launchers \
    "accelerate=$ddprun_accelerate_version lightning=$ddprun_lightning_version torch=$ddprun_torch_version" \
    "accelerate $ddprun_accelerate_version and Lightning $ddprun_lightning_version: about 20 MB to download, 90 MB on disk" \
    py-full "accelerate==$ddprun_accelerate_version" "pytorch-lightning==$ddprun_lightning_version"
}

# The Trainer of Hugging Face's transformers, for the suite frameworks, and Lightning under its other name.
# Requires: ensure_python_launchers.
ensure_python_frameworks() {
  make_layer py-frameworks \
    "transformers=$ddprun_transformers_version accelerate=$ddprun_accelerate_version lightning=$ddprun_lightning_version \
torch=$ddprun_torch_version" \
    "transformers $ddprun_transformers_version and lightning $ddprun_lightning_version: about 20 MB to download, 200 MB on disk" \
    "py-full py-launchers" "transformers==$ddprun_transformers_version" "lightning==$ddprun_lightning_version"
}

# TensorBoard's own reader of event files, for the tests of ours. It wants a part of setuptools that
# later versions lack.
ensure_tensorboard() {
  make_environment tensorboard "tensorboard=$ddprun_tensorboard_version" \
    "TensorBoard $ddprun_tensorboard_version: about 40 MB to download, 150 MB on disk" \
    "tensorboard==$ddprun_tensorboard_version" 'setuptools<81'
}

# UCI's handwritten digits, out of scikit-learn's wheel (57 kB of 13 MB); sets DDPRUN_DIGITS.
# Requires: ensure_libtorch, because its pip fetches the wheel.
ensure_digits() {
  local home="$ddprun_cache_dir/digits" wheels
  export DDPRUN_DIGITS="$home/digits.csv.gz"
  if digits_are_right; then
    say "digits: are there ($DDPRUN_DIGITS)"
    return
  fi
  say "digits: fetching scikit-learn's wheel for its copy of UCI's handwritten digits (13 MB)"
  mkdir -p "$home"
  wheels=$(mktemp -d)
  if ! "$ddprun_cache_dir/libtorch/bin/pip" download --quiet --disable-pip-version-check --no-deps --only-binary :all: \
    --dest "$wheels" "scikit-learn==$ddprun_scikit_learn_version"; then
    rm -rf "$wheels"
    fail "pip could not fetch scikit-learn $ddprun_scikit_learn_version" "is there a network that reaches PyPI?"
  fi
  python3 - "$wheels" "$DDPRUN_DIGITS" <<'PYTHON'
import glob, os, sys, zipfile
wheel = glob.glob(os.path.join(sys.argv[1], "scikit_learn-*.whl"))[0]
with zipfile.ZipFile(wheel) as archive, open(sys.argv[2] + ".new", "wb") as sink:
    sink.write(archive.read("sklearn/datasets/data/digits.csv.gz"))
os.replace(sys.argv[2] + ".new", sys.argv[2])
PYTHON
  rm -rf "$wheels"
  digits_are_right || fail "$DDPRUN_DIGITS is not what it should be" "remove it and try again"
}

digits_are_right() {
  [ -f "$DDPRUN_DIGITS" ] &&
    [ "$(sha256sum "$DDPRUN_DIGITS" | cut -d ' ' -f 1)" = "$ddprun_digits_sha256" ]
}
