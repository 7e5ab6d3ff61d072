"""Find the class names and colours of a checkpoint."""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mmengine.config import Config


def dataset_meta(cfg: Config, checkpoint_meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return class names and palette of the checkpoint's dataset. Without them, the METAINFO of the config's own dataset."""
    saved = checkpoint_meta.get('dataset_meta')
    if isinstance(saved, Mapping) and saved.get('classes'):
        return _meta(saved)
    # mmengine's files of before 0.3, and mmseg 0.x and mmdet 2.x, keep them here.
    if checkpoint_meta.get('CLASSES'):
        return _meta({'classes': checkpoint_meta['CLASSES'], 'palette': checkpoint_meta.get('PALETTE')})
    dataset = (cfg.get('test_dataloader') or {}).get('dataset') or {}
    while 'dataset' in dataset:
        dataset = dataset['dataset']
    class_meta = _metainfo_of(dataset['type'], cfg.get('default_scope') or 'mmengine') if isinstance(dataset.get('type'), str) else {}
    for meta in (dataset.get('metainfo'), cfg.get('metainfo'), cfg.get('dataset_meta'), class_meta):
        if isinstance(meta, Mapping) and meta.get('classes'):
            return _meta(meta)
    return {'classes': []}


def _meta(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return class names, and colours if there is one for each of them."""
    classes = [meta['classes']] if isinstance(meta['classes'], str) else meta['classes']
    names = [str(name) for name in classes]
    palette = meta.get('palette')
    has_palette = isinstance(palette, (list, tuple)) and len(palette) == len(names)
    return {'classes': names, **({'palette': [list(map(int, colour)) for colour in palette]} if has_palette and palette else {})}


def _metainfo_of(dataset: str, scope: str) -> Mapping[str, Any]:
    import importlib

    from mmengine.registry import DATASETS, DefaultScope
    try:
        importlib.import_module(f'{scope}.datasets')
    except ImportError:  # Names of classes are optional; without the packages that datasets need there are none.
        return {}
    with DefaultScope.overwrite_default_scope(scope):
        return getattr(DATASETS.get(dataset), 'METAINFO', None) or {}
