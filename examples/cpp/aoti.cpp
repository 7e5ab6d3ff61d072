// Runs an AOTInductor package that mmexport made, with LibTorch alone.
//   run_aoti FOLDER [DEVICE] [PICTURE.ppm]    as run; FOLDER holds model.pt2, manifest.json and samples.pt.
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>

#include "common.h"

int main(int argc, const char* argv[]) {
  return guarded([&] {
    TORCH_CHECK(argc > 1, "run_aoti FOLDER [DEVICE] [PICTURE.ppm]");
    const std::string folder = argv[1];
    const torch::Device device(argc > 2 ? argv[2] : "cpu");
    std::ifstream beside(folder + "/manifest.json");
    TORCH_CHECK(beside, folder, "/manifest.json is missing");
    const std::string manifest((std::istreambuf_iterator<char>(beside)), std::istreambuf_iterator<char>());
    torch::inductor::AOTIModelPackageLoader model(folder + "/model.pt2", "model", false, 1, device.is_cuda() ? device.index() : -1);
    const auto made_for = model.get_metadata()["AOTI_DEVICE_KEY"];
    TORCH_CHECK(made_for.empty() || made_for == (device.is_cuda() ? "cuda" : "cpu"), "this package was compiled for ", made_for);
    const Run run = [&](const Tensor& image) {
      // A package reads memory as its example lay there, and asks nothing.
      auto found = model.run({image.contiguous()});
      for (auto& output : found) output = output.cpu();
      return found;
    };
    return report(run, manifest, argc, argv);
  });
}
