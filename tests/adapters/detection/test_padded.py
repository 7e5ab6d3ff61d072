"""Test detectors whose pictures are padded into one batch: ``img_shape`` tells where each ends, and boxes end there."""
from __future__ import annotations

import copy
from pathlib import Path

import pytest
import torch

from mmexport.adapters import build_adapter
from mmexport.checker.kinds.detections import NAMES
from mmexport.checker.rules.detection_rows import compare_detections
from mmexport.checker.samples import read_samples
from mmexport.errors import ConfigError
from mmexport.inputs.synthetic import picture
from mmexport.model.build import build_model
from mmexport.patching import patched
from mmexport.verification.test_step import run_test_step, run_test_step_on
from tests.detectors import exported, seeded_detector, tiny_detector
from tests.tiny import SHAPE

# One worker runs them: they share what is computed once.
pytestmark = pytest.mark.xdist_group('atss')

PADDED = dict(shape=SHAPE, img_shape=True)


@pytest.mark.parametrize('name', ['atss', 'fcos'])
def test_boxes_of_a_padded_batch_are_those_of_test_step(name: str) -> None:
    adapter = build_adapter(seeded_detector(name), img_shape=True)
    noise = torch.randn(3, 3, 128, 160, generator=torch.Generator().manual_seed(1)) * 60
    inputs = adapter.network_inputs(noise)
    assert adapter.remarks() == ('no input had padding, as none was a batch: what the file does with img_shape was not seen',)
    assert inputs[1].tolist() == [[96, 96], [128, 160], [76, 160]]
    assert not inputs[0][0, :, 96:].any() and not inputs[0][0, :, :, 96:].any() and inputs[0][1, :, 96:].any()
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(*inputs)
        outputs = dict(zip(NAMES, adapter.decide(raw, *inputs), strict=True))
        expected = adapter.read(run_test_step_on(adapter, *inputs))
        result = compare_detections(outputs, expected, adapter.evidence(raw, inputs[0], recorded), 1e-4)
    assert result['beyond'] == 0 and result['metrics']['rows'] > 30
    assert not any('no input had padding' in line for line in adapter.remarks())
    assert float(outputs['boxes'][0, :, 2].max()) <= 96 < float(outputs['boxes'][1, :, 2].max())


@pytest.mark.parametrize('backend', ['torchscript', pytest.param('onnx', marks=pytest.mark.slow)])
def test_a_file_takes_the_sizes_of_padded_pictures(backend: str, tmp_path: Path) -> None:
    report = exported('atss', tiny_detector('atss', backends=[backend], inputs=PADDED), tmp_path)
    assert report.passed, report.reasons
    image, img_shape = report.artifacts[0].manifest['inputs']
    assert (image['name'], img_shape['name'], img_shape['dtype'], img_shape['dynamic']) == ('image', 'img_shape', 'int64', ['batch'])
    samples, _ = read_samples(report.artifacts[0].folder / 'samples.npz')
    assert any(len(sample.file_inputs[1].unique(dim=0)) > 1 for sample in samples), 'a padded batch of several sizes was checked'
    assert sum(check.passed is True for check in report.pipelines) > 3
    if backend == 'torchscript':
        assert_sizes_of_another_batch_are_refused(next(report.artifacts[0].folder.glob('*.pt')))


def assert_sizes_of_another_batch_are_refused(file: Path) -> None:
    model, batch = torch.jit.load(file), torch.zeros(2, *SHAPE[1:])
    sizes = torch.tensor([SHAPE[2:]] * 2)
    model(batch, sizes)
    with pytest.raises(torch.jit.Error, match='axis batch of img_shape has size 1, and image has 2'):
        model(batch, sizes[:1])
    with pytest.raises(torch.jit.Error, match='img_shape must be int64, as the manifest says'):
        model(batch, sizes.float())


def of_first(sizes: torch.Tensor) -> torch.Tensor:
    """Give the first picture no padding: it is as large as the largest."""
    return torch.cat([sizes.amax(dim=0, keepdim=True), sizes[1:]])


# By what is wrong: the sizes that are taken, of those given (N, 2) and those of the inputs (N, 2).
WRONG = {'ignored': lambda given, whole: whole, 'ignored in the first picture': lambda given, whole: of_first(given),
         'by the share of the height': lambda given, whole: given[:, :1] / whole[:, :1] * whole}


@pytest.mark.parametrize('how', sorted(WRONG))
def test_a_file_that_takes_other_sizes_fails(how: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mmexport.backends.torchscript.backend import TorchScript
    lower = TorchScript.lower

    def spoiled(self: TorchScript, adapter: object, *args: object) -> object:
        with monkeypatch.context() as changed:
            changed.setattr(type(adapter), 'final',
                            lambda self, raw, image, img_shape: self.kept_within(raw, WRONG[how](img_shape, self.sizes_of(image))))
            return lower(self, adapter, *args)  # type: ignore[arg-type]

    monkeypatch.setattr(TorchScript, 'lower', spoiled)
    report = exported('atss', tiny_detector('atss', backends=['torchscript'], inputs=PADDED), tmp_path)
    assert report.passed is False
    assert any('batch' in reason for reason in report.reasons)


@pytest.mark.parametrize('name', ['detr', 'dino', 'sparse_rcnn', *(pytest.param(name, marks=pytest.mark.slow) for name in (
    'conditional_detr', 'dab_detr', 'deformable_detr', 'ddq', 'queryinst'))])
def test_decoders_of_queries_mask_the_padding_as_test_step_does(name: str) -> None:
    adapter = build_adapter(seeded_detector(name), img_shape=True)
    inputs = adapter.network_inputs(picture((3, 3, 128, 160), 1, adapter))
    with torch.no_grad():
        raw, recorded = adapter.run_with_evidence(*inputs)
        outputs = dict(zip([spec.name for spec in adapter.specs], adapter.decide(raw, *inputs), strict=True))
        expected = adapter.read(run_test_step_on(adapter, *inputs))
        result = compare_detections(outputs, expected, adapter.evidence(raw, inputs[0], recorded), 1e-4)
        filled = adapter.raw(inputs[0], adapter.sizes_of(inputs[0]))
        with patched('auto'):
            actual = adapter.raw(*inputs)
    assert result['beyond'] == 0 and result['metrics']['rows'] > 70
    assert float((raw[0] - filled[0])[0].abs().max()) > 1, 'the padding matters'
    for one, other in zip(raw, actual, strict=True):
        torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-3 * float(one.abs().max()))


@pytest.mark.parametrize('backend', ['torchscript', pytest.param('onnx', marks=pytest.mark.slow)])
def test_a_file_of_queries_takes_the_sizes_of_padded_pictures(backend: str, tmp_path: Path) -> None:
    report = exported('detr', tiny_detector('detr', backends=[backend], inputs=PADDED), tmp_path)
    assert report.passed, report.reasons
    assert sum(check.passed is True for check in report.pipelines) > 3


def test_a_head_that_stretches_its_masks_over_the_padding_refuses_it() -> None:
    with pytest.raises(ConfigError, match='known for the tasks .*two stages.*, and this is detection'):
        build_adapter(build_model(tiny_detector('yolact')), img_shape=True)


@pytest.mark.parametrize('img_shape', [False, True])
def test_a_photograph_that_the_preprocessor_pads_is_masked_as_in_test_step(img_shape: bool) -> None:
    """The file sees the padding as picture; the way to ``test_step`` tells the network where it begins."""
    from mmdet.structures import DetDataSample
    model = copy.deepcopy(seeded_detector('dino'))
    model.data_preprocessor.pad_size_divisor = 32
    adapter = build_adapter(model, img_shape=img_shape)
    pixels = (torch.rand(3, 100, 130, generator=torch.Generator().manual_seed(0)) * 255).to(torch.uint8)
    meta = dict(img_shape=(100, 130), ori_shape=(100, 130), scale_factor=(1.0, 1.0))
    packed = dict(inputs=pixels, data_samples=DetDataSample(metainfo=meta))
    with torch.no_grad():
        expected = adapter.read(run_test_step(adapter, packed))
        image = adapter.model.data_preprocessor(dict(inputs=[pixels], data_samples=[packed['data_samples']]), False)['inputs']
        assert image.shape[2:] == (128, 160)
        outputs, _ = adapter.without_padding(adapter.raw(image), image, (100, 130), {}, {})
        unaware = adapter.final(adapter.raw(image), image)
    torch.testing.assert_close(outputs['boxes'], expected['boxes'], rtol=0, atol=1e-3)
    assert float((unaware[0] - expected['boxes']).abs().max()) > 1
