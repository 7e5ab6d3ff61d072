"""Test models that were really trained: the default command passes, and the file scores what eager scores on validation pictures."""
from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.train_small import CONFIGS, miou, predicted
from mmexport.cli.main import run
from mmexport.inputs.real_image import PACKAGED
from mmexport.inputs.windows import joined, windows_of
from mmexport.model.build import load_model
from mmexport.model.config import load_config
from tests.deployed import network_input

SCORES = json.loads((CONFIGS / 'scores.json').read_text())


def labels_of(file: Path, model: Any, manifest: dict[str, Any]) -> Any:
    """Do what a user of the folder does with a picture (H, W, 3), by the manifest alone but for the model's own preprocessing."""
    run = torch.jit.load(str(file))

    def predict(picture: Any) -> Any:
        image = network_input(picture, manifest)
        if 'sliding' in manifest:
            logits = run(windows_of(image[None], manifest['sliding']))[0]
            return joined(logits, image.shape[1:], manifest['sliding']).argmax(1)[0].numpy()
        return run(image[None])[0][0].numpy()

    return predict


@pytest.mark.parametrize('name', sorted(SCORES))
def test_default_command_passes_and_scores_as_eager(name: str, tmp_path: Path) -> None:
    config, checkpoint = CONFIGS / f'{name}.py', CONFIGS / f'{name}.pth'
    assert checkpoint.stat().st_size < 2e6
    assert SCORES[name]['after'] > SCORES[name]['before'] + 20
    assert run(['export', str(config), str(checkpoint), '--work-dir', str(tmp_path), '--quiet']) == 0
    report = json.loads((tmp_path / 'report.json').read_text())
    assert report['passed'] is True
    actual = report['artifacts'][0]['result']
    if name != 'shapes_slide':
        assert actual['classes'] == dict(seen=[0, 1], never=[])
        assert actual['vacuous'] == {}
    assert all(row['passed'] for row in report['pipelines'] if not row['skipped'])
    model, _ = load_model(load_config(config), str(checkpoint))
    eager = miou(name, lambda picture: predicted(model, picture))
    manifest = json.loads((tmp_path / 'torchscript' / 'manifest.json').read_text())
    assert miou(name, labels_of(tmp_path / 'torchscript' / 'model.pt', model, manifest)) == pytest.approx(eager, abs=0.02)
    assert eager == pytest.approx(SCORES[name]['after'], abs=0.5)


def test_a_sliding_model_is_exported_to_the_other_formats(tmp_path: Path) -> None:
    """``final`` are logits there, under the name that the raw ones have."""
    config, checkpoint = CONFIGS / 'shapes_slide.py', CONFIGS / 'shapes_slide.pth'
    formats = ['onnx', 'openvino', 'torch_export']
    assert run(['export', str(config), str(checkpoint), '--work-dir', str(tmp_path), '--quiet', '--backend', *formats]) == 0
    report = json.loads((tmp_path / 'report.json').read_text())
    assert [artifact['backend'] for artifact in report['artifacts'] if artifact['verified']] == formats


def test_rare_objects_are_found_on_decisive_inputs() -> None:
    """On scenes in which it finds nothing, a few steps lead to foreground."""
    from mmexport.adapters import build_adapter
    from mmexport.inputs.decisive import decisive_inputs
    from mmexport.inputs.synthetic import picture
    model, _ = load_model(load_config(CONFIGS / 'nuclei_unet.py'), str(CONFIGS / 'nuclei_unet.pth'))
    adapter = build_adapter(model)
    scenes = [0.4 * picture((1, 3, 96, 96), seed, adapter) + 1.2 for seed in range(4)]
    bare = [scene for scene in scenes if adapter.decided(adapter.raw(scene), scene) == frozenset({0})]
    assert bare
    made = decisive_inputs(adapter, bare, {0})
    assert made[0].image is not None, made[0].reason
    assert made[0].after == frozenset({0, 1})
    assert made[0].steps <= 16
    assert float((made[0].image - bare[0]).abs().max()) <= 0.5 * float(bare[0].std()) + 1e-5
    assert all(parameter.grad is None for parameter in model.parameters())


def test_one_channel_of_input_is_exported(tmp_path: Path) -> None:
    """Grey pictures, and four channels without a mean."""
    from mmexport import Exporter
    from mmexport.model.build import build_model
    for channels, mean in ((1, [110.0]), (4, None)):
        cfg = load_config(CONFIGS / 'cracks_sigmoid.py')
        cfg.model.backbone.in_channels = channels
        cfg.model.data_preprocessor.update(mean=mean, std=None if mean is None else [60.0], bgr_to_rgb=False)
        torch.manual_seed(0)
        model = build_model(cfg)
        model.init_weights()  # type: ignore[operator]
        cfg.export = dict(outputs='raw')
        if channels == 1:
            grey = [dict(type='LoadImageFromFile', color_type='grayscale'), dict(type='Resize', scale=(96, 64)), dict(type='PackSegInputs')]
            cfg.test_dataloader = dict(dataset=dict(pipeline=grey))
            cfg.export = dict(outputs='raw', inputs=dict(image=str(PACKAGED)))
        report, = Exporter(cfg, model=model, work_dir=tmp_path / str(channels), diagnose=False).run()
        assert report.artifacts[0].manifest['inputs'][0]['traced'][1] == channels
        assert (PACKAGED.name in report.inputs) is (channels == 1)
        assert report.passed, report.reasons
