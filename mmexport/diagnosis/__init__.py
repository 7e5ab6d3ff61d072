"""Diagnose a failed format: the smallest module that fails, the line, the cause and the remedy."""
from .consult import Consultation
from .finding import Diagnosis

__all__ = ['Consultation', 'Diagnosis']
