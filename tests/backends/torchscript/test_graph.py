"""Test what is read of a TorchScript graph against torch's own parser."""
from __future__ import annotations

import torch

from mmexport.backends.torchscript.graph import argument_names, device_type


def test_names_of_arguments_are_those_of_the_parser() -> None:
    schemas = [schema for schema in torch._C._jit_get_all_schemas() if schema.name.startswith('aten::')]
    assert len(schemas) > 1000
    wrong = [str(schema) for schema in schemas if argument_names(str(schema)) != [argument.name for argument in schema.arguments]]
    assert not wrong


def test_the_type_of_devices_is_that_of_torch() -> None:
    assert device_type() == torch._C.DeviceObjType.get()
