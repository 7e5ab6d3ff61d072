"""Test that a seeded checkpoint must be able to show an error; each way in which plain random weights cannot is asserted here."""
from __future__ import annotations

import pytest
import torch
from mmengine.model import BaseModule, Sequential
from mmexport.patches.multi_scale_deformable_attention import MultiScaleDeformableAttention
from torch import Tensor, nn

from mmexport import seeding
from mmexport.adapters import build_adapter
from mmexport.adapters.objectives import SEGMENTS
from mmexport.checker.vacuous import little_change
from mmexport.inputs.synthetic import photograph, picture
from mmexport.model.build import build_model
from mmexport.model.config import load_config
from mmexport.patching import patched
from mmexport.seeding import SCENES, seed_model
from mmexport.seeding.calibrate import FAR_OFF, LARGEST, _adjust, _bounded, _spread, calibrate
from mmexport.seeding.initial import initialise
from mmexport.seeding.layers import LOGIT_MEAN, Spread, layers_without_norm
from tests.tiny import SHAPE, seeded, tiny


def test_attention_weights_and_offsets_are_drawn() -> None:
    model = seeded('mask2former_r50')
    drawn = [parameter for name, parameter in model.named_parameters() if 'attention_weights.weight' in name
             or 'sampling_offsets.weight' in name]
    assert len(drawn) == 4
    assert all(float(parameter.std()) > 0.01 for parameter in drawn)


def test_swapped_attention_levels_show() -> None:
    adapter = build_adapter(seeded('mask2former_r50'), outputs='raw')
    image = picture(SHAPE, 3, adapter)
    swapped = MultiScaleDeformableAttention()
    right = swapped.sample
    swapped.sample = lambda value, shapes, offsets, weights, reference: right(value, shapes, offsets, weights.flip(3), reference)
    with torch.no_grad():
        expected = adapter.raw(image)
        with patched([swapped]):
            actual = adapter.raw(image)
    for expected_value, got in zip(expected[:2], actual[:2], strict=True):
        assert float((expected_value - got).abs().max()) > 1e-2 * float(expected_value.abs().max())


def test_a_broken_attention_mask_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    """The decoder's branches are damped; an error in masked attention must still stand out."""
    adapter = build_adapter(seeded('mask2former_r50'), outputs='raw')
    image = picture(SHAPE, 3, adapter)
    head = adapter.model.panoptic_head
    original = head._forward_head
    with torch.no_grad():
        expected = adapter.raw(image)
        monkeypatch.setattr(head, '_forward_head', lambda *args: (*original(*args)[:2], torch.zeros_like(original(*args)[2])))
        actual = adapter.raw(image)
    for expected_value, got in zip(expected[:2], actual[:2], strict=True):
        assert float((expected_value - got).abs().max()) > 1e-3 * float(expected_value.abs().max())


@pytest.mark.parametrize('name', ['deeplabv3plus', 'bisenetv2', 'segformer_b0', 'segmenter_vit_s'])
def test_outputs_are_not_constant(name: str) -> None:
    adapter = build_adapter(seeded(name), outputs='raw')
    one, other = (dict(logits=adapter.raw(picture(SHAPE, seed, adapter))[0].detach()) for seed in (0, 1))
    assert not little_change([spec.as_dict() for spec in adapter.specs], one, other, 1e-4, adapter.num_classes)


@pytest.mark.parametrize('name', ['bisenetv2', 'hrnet_ocr'])
def test_variances_have_a_floor(name: str) -> None:
    for norm in seeded(name).modules():
        if isinstance(norm, nn.BatchNorm2d):
            assert norm.running_var is not None
            assert float(norm.running_var.min()) >= 0.0099 * float(norm.running_var.mean()) / 2
            assert float(norm.running_var.min()) >= 1e-6


def test_a_kernel_that_nothing_sets_is_drawn() -> None:
    """As in TridentConv, whose kernel is unwritten memory; a constant one is left to `randomise_constants`."""
    class Layer(BaseModule):
        def __init__(self, value: float) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.full((4, 3, 3, 3), value))

    unwritten, constant, conv = Layer(1e-38), Layer(0.0), nn.Conv2d(3, 4, 3)
    with torch.no_grad():
        unwritten.weight[0] = 0
        initialise(Sequential(unwritten, constant, conv), torch.Generator().manual_seed(0))
    assert 0.01 < float(unwritten.weight.std()) < 0.03
    assert not constant.weight.any()
    assert 0.05 < float(conv.weight.std()) < 0.2


def test_logits_of_other_pictures_are_bounded_where_they_saturate() -> None:
    class Head(nn.Module):
        num_classes = cls_out_channels = 2
        num_base_priors = 1

        def __init__(self) -> None:
            super().__init__()
            self.conv_cls = nn.Conv2d(3, 2, 1)

        def predict_by_feat(self) -> None: ...

        def forward(self, image: Tensor) -> Tensor:
            return self.conv_cls(image)

    seen = torch.rand(4, 3, 8, 8, generator=torch.Generator().manual_seed(0))
    for other, bounded in ((seen, False), (100 * seen, True)):
        torch.manual_seed(0)
        once, twice = Head(), Head()
        twice.load_state_dict(once.state_dict())
        calibrate(once, lambda head=once: head(seen), torch.Generator().manual_seed(0))
        calibrate(twice, lambda head=twice: head(seen), torch.Generator().manual_seed(0), lambda head=twice, other=other: head(other))
        assert torch.equal(once.conv_cls.weight, twice.conv_cls.weight) != bounded
        with torch.no_grad():
            assert twice(other).amax() == pytest.approx(4.0, abs=1e-3)


def test_norms_see_sixteen_images() -> None:
    norm, recorded = nn.BatchNorm2d(2), []
    model = nn.Sequential(norm)
    model.register_forward_pre_hook(lambda module, args: recorded.append(len(args[0])))
    from mmexport import seeding
    assert seeding.IMAGES >= 16
    batch = torch.randn(16, 2, 4, 4) * 3 + 5
    calibrate(model, lambda: model(batch), torch.Generator())
    assert norm.running_mean is not None
    assert torch.allclose(norm.running_mean, batch.mean((0, 2, 3)), atol=1e-5)
    assert recorded == [16]


@pytest.mark.parametrize('name', ['mask2former_r50', 'mask2former_swin_t'])
def test_five_panoptic_segments_survive_the_configs_thresholds(name: str, photograph_file: object) -> None:
    adapter = build_adapter(seeded(name))
    count = [int((adapter(image)[0].unique() != adapter.num_classes).sum()) for image in (
        *(picture((1, 3, *scene), 6007 + number, adapter) for number, scene in enumerate(SCENES)),
        *(picture((1, 3, 160, 192), number, adapter) for number in range(8, 12)),
        photograph(str(photograph_file), (160, 224), adapter))]
    # Promised for the scenes that it is seeded with; others, which it never saw, mostly have as many.
    assert min(count[:len(SCENES)]) >= SEGMENTS
    assert sorted(count[len(SCENES):])[2] >= SEGMENTS - 1, count


def test_the_seed_decides() -> None:
    states = []
    for seed in (1, 1, 2):
        model = build_model(tiny('segformer_b0'))
        states.append({key: value.clone() for key, value in seed_model(model, seed).items()})
    same = [all(torch.equal(states[0][key], other[key]) for key in states[0]) for other in states[1:]]
    assert same == [True, False]


def test_initial_weights_that_no_regions_suit_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding, 'ATTEMPTS', (0.02,))
    monkeypatch.setattr(seeding, 'varied_enough', lambda *args: True)
    answers = iter([True, False, True, False, True])
    monkeypatch.setattr(seeding, 'rich_enough', lambda *args: next(answers))
    first, *again = (seed_model(build_model(tiny('mask2former_r50'))) for _ in range(3))
    name = 'backbone.layer1.0.conv1.weight'
    assert torch.equal(again[0][name], again[1][name])
    assert not torch.equal(first[name], again[0][name])


def test_seeds_that_never_decide_enough_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seeding, 'ATTEMPTS', (0.02,))
    monkeypatch.setattr(seeding, 'rich_enough', lambda *args: False)
    with pytest.raises(seeding.SeedingError, match='seed 0: no choice of regions .* try another seed'):
        seed_model(build_model(tiny('mask2former_r50')))


def test_larger_pictures_join_the_scenes_where_their_logits_are_far_off() -> None:
    """The head has norms for each level, and the map of stride 128 one cell: logits of 208 x 208 were above 100 there, and 4 elsewhere."""
    cfg = load_config('mmdet::nas_fpn/retinanet_r50_fpn_crop640-50e_coco.py')
    cfg.model.backbone.pop('init_cfg')
    model = build_model(cfg)
    seed_model(model)
    adapter = build_adapter(model, outputs='raw')
    with torch.no_grad():
        raw = adapter.raw(picture((2, 3, 208, 208), 3, adapter))
    levels = [float(values.max()) for spec, values in zip(adapter.specs, raw, strict=True) if spec.name.startswith('scores')]
    assert len(levels) == 5 and all(2.0 < level < FAR_OFF for level in levels), levels


def test_a_checkpoint_that_a_backbone_names_is_not_read() -> None:
    """PVT loads it by itself, whatever the type of its init_cfg."""
    class Backbone(BaseModule):
        def init_weights(self) -> None:
            assert self.init_cfg is None, f'reads {self.init_cfg}'

    model = Sequential(Backbone(init_cfg=dict(checkpoint='https://example.invalid/weights.pth')))
    initialise(model, torch.Generator().manual_seed(0))


def test_a_level_of_few_cells_has_logits_like_those_of_the_scenes_in_other_pictures() -> None:
    """Without norms its features are nearly alike in all pictures: what three cells say of one channel is of no use."""
    torch.manual_seed(0)
    level = nn.Conv2d(16, 60, 3, padding=1)
    features = 1.0 + 0.001 * torch.randn(8, 16, 1, 1)
    spread = Spread(mean=LOGIT_MEAN, bounded=True)
    with torch.no_grad():
        _spread(level, features[:3], torch.Generator().manual_seed(0), spread)
        _adjust({level: spread}, lambda: level(features[:4]), _bounded)
        seen, other = level(features[:4]), level(1.0 + 0.01 * torch.randn(8, 16, 1, 1))
    assert float(seen.max()) == pytest.approx(LARGEST, abs=1e-3)
    assert float(other.max()) < 2 * LARGEST and float(seen.std()) > 1


def test_convolutions_of_a_network_without_norms_are_found() -> None:
    convolutions = [nn.Conv2d(3, 4, 3), nn.Conv2d(4, 4, 3), nn.Conv2d(4, 4, 1)]
    model = nn.Module()
    model.backbone, model.neck = nn.Sequential(convolutions[0], nn.ReLU(), convolutions[1]), nn.Sequential(convolutions[2])
    model.bbox_head = nn.Conv2d(4, 4, 1)
    found = layers_without_norm(model)
    assert set(found) == set(convolutions) and not any(spread.drawn for spread in found.values())
    model.neck.append(nn.BatchNorm2d(4))
    assert not layers_without_norm(model) and not layers_without_norm(nn.Module())
