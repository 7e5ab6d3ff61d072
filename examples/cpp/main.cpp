// Runs a TorchScript file that mmexport made, with LibTorch alone: no mmcv, no custom operators, no OpenCV.
//   run FOLDER [DEVICE] [PICTURE.ppm]    FOLDER holds model.pt and samples.pt (from samples.py); exit code 0 only when all is equal.
#include <torch/script.h>

#include "common.h"

std::vector<Tensor> outputs_of(torch::jit::script::Module& model, const Tensor& image) {
  std::vector<Tensor> found;
  const auto result = model.forward({image});
  if (result.isTensor()) return {result.toTensor().cpu()};
  for (const auto& item : result.toTupleRef().elements()) found.push_back(item.toTensor().cpu());
  return found;
}

int main(int argc, const char* argv[]) {
  return guarded([&] {
    TORCH_CHECK(argc > 1, "run FOLDER [DEVICE] [PICTURE.ppm]");
    torch::jit::ExtraFilesMap extra{{"manifest.json", ""}};
    auto model = torch::jit::load(std::string(argv[1]) + "/model.pt", torch::Device(argc > 2 ? argv[2] : "cpu"), extra);
    return report([&](const Tensor& image) { return outputs_of(model, image); }, extra["manifest.json"], argc, argv);
  });
}
