# Sourced by the scripts for a GPU machine: reads --build DIR out of the arguments, or builds, and sets
# `build` to an absolute directory. What is left of the arguments is in `rest`.
build=""
rest=()
while (($#)); do
  case $1 in
    --build) build=$(cd "$2" && pwd) || exit 2; shift 2 ;;
    *) rest+=("$1"); shift ;;
  esac
done
if [[ -z $build ]]; then
  build=$PWD/build/cuda
  mkdir -p "$build"
  if ! { cmake -S . -B "$build" -DCMAKE_BUILD_TYPE=Release -DSLUICE_CUDA=ON -DCMAKE_CUDA_ARCHITECTURES=native &&
         cmake --build "$build" -j "$(nproc)" --target sluice sluice_policies test_gpu_device test_gpu_ops \
               test_cuda_ops test_gpu_models bench_device; } >"$build/build.log" 2>&1; then
    tail -n 40 "$build/build.log" >&2
    exit 1
  fi
fi
export SLUICE_PLUGIN_PATH=$build/strategies SLUICE_TEST_PLUGIN_DIR=$build/strategies
export SLUICE_CONFIG_DIR=$PWD/configs SLUICE_TEST_DATA=$PWD/tests/data
