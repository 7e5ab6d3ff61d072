"""Read checkpoints without running code in them."""
from .loading import LoadReport, load_into
from .reading import read_state_dict

__all__ = ['LoadReport', 'load_into', 'read_state_dict']
